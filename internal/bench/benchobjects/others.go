package benchobjects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// Others is everybody else who writes to the objects of a mix.
type Others struct {
	// Client reaches the API server. Required.
	Client dynamic.Interface
}

// Namespace creates a namespace.
func (o Others) Namespace(ctx context.Context, name string) error {
	namespace := &unstructured.Unstructured{Object: object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": name}}}
	_, err := o.Client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).
		Create(ctx, namespace, metav1.CreateOptions{})
	return err
}

// Share applies the parts of other managers to objects that exist: a second manager
// adds to some and states a value that is there already; a third scales others.
func (o Others) Share(ctx context.Context, objects []*unstructured.Unstructured) error {
	return Each(len(objects), 8, func(i int) error {
		at := objects[i]
		switch {
		case coOwned(at):
			body := fmt.Appendf(
				nil,
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"example.com/second":"yes"}},"data":{"level":"info","second":"added"}}`,
				at.GetName(),
			)
			_, err := o.resource(at).Patch(ctx, at.GetName(), types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "second"})
			return err
		case scaledByOthers(at):
			_, err := o.resource(at).
				Patch(ctx, at.GetName(), types.MergePatchType, []byte(`{"spec":{"replicas":4}}`), metav1.PatchOptions{FieldManager: "autoscaler"}, "scale")
			return err
		default:
			return nil
		}
	})
}

// Edit writes a foreign value into a field that the object states.
func (o Others) Edit(ctx context.Context, at *unstructured.Unstructured) error {
	path, value := edited(at)
	patch := object{}
	if err := unstructured.SetNestedField(patch, value, path...); err != nil {
		return err
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	_, err = o.resource(at).Patch(ctx, at.GetName(), types.MergePatchType, body, metav1.PatchOptions{FieldManager: "intruder"})
	return err
}

// AsStated asks the server whether the field that [Others.Edit] writes is as the
// object states it.
func (o Others) AsStated(ctx context.Context, want *unstructured.Unstructured) (bool, error) {
	have, err := o.resource(want).Get(ctx, want.GetName(), metav1.GetOptions{})
	return err == nil && Stated(want, have), err
}

// Stated reports whether the field that [Others.Edit] writes is as it is stated.
func Stated(want, have *unstructured.Unstructured) bool {
	path, _ := edited(want)
	is, _, err := unstructured.NestedFieldNoCopy(have.Object, path...)
	should, _, failed := unstructured.NestedFieldNoCopy(want.Object, path...)
	return err == nil && failed == nil && is == should
}

func (o Others) resource(at *unstructured.Unstructured) dynamic.ResourceInterface {
	return o.Client.Resource(Resources()[at.GroupVersionKind()]).Namespace(at.GetNamespace())
}

func coOwned(o *unstructured.Unstructured) bool { return strings.HasPrefix(o.GetName(), "shared-") }

func scaledByOthers(o *unstructured.Unstructured) bool {
	return strings.HasPrefix(o.GetName(), "scaled-")
}

// edited returns the path of a field that the object states, and a value that it
// does not state: an edit by mistake.
func edited(o *unstructured.Unstructured) (path []string, value any) {
	switch o.GetKind() {
	case "ConfigMap":
		return []string{"data", "level"}, "edited"
	case "Secret":
		return []string{"metadata", "annotations", "example.com/note"}, "edited"
	case "Service":
		return []string{"spec", "sessionAffinity"}, "ClientIP"
	case "Widget":
		return []string{"spec", "size"}, int64(99)
	default:
		return []string{"spec", "minReadySeconds"}, int64(99)
	}
}

// Each calls f for 0 to n-1, a number of them at once, and joins the errors.
func Each(n, concurrency int, f func(int) error) error {
	next := make(chan int)
	errs := make([]error, n)
	var workers sync.WaitGroup
	for range concurrency {
		workers.Go(func() {
			for i := range next {
				errs[i] = f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
	return errors.Join(errs...)
}
