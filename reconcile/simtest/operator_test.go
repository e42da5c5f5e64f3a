package simtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// operator does for Widgets what controller does, with package reconcile/kube: it
// decides on its caches, and deletes its Parts before a Widget goes.
type operator struct {
	client     dynamic.Interface
	controller kube.Controller[*widget]
	finalizer  kube.Finalizer
	status     kube.Status[*widget]
}

type widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec struct {
		Replicas int    `json:"replicas"`
		Text     string `json:"text,omitempty"`
	} `json:"spec"`
	Status struct {
		Parts int `json:"parts,omitempty"`
	} `json:"status,omitzero"`
}

func (w *widget) text() kube.Reference {
	return kube.Reference{Resource: configMaps, Namespace: w.Namespace, Name: w.Name + "-text"}
}

func runOperator(ctx context.Context, net http.RoundTripper) error {
	client, err := dynamic.NewForConfig(&rest.Config{Host: "http://simtest", Transport: net, QPS: -1})
	if err != nil {
		return err
	}
	o := &operator{client: client}
	o.controller.Client, o.controller.Kind, o.controller.Reconcile = client, kube.Kind{Resource: widgets}, o.reconcile
	// A Part that was deleted, and that a restored backup brings back with its old version, is no
	// change to a cache that has not seen it go.
	o.controller.Resync = 10 * time.Minute
	o.controller.Owned = []kube.Kind{{Resource: parts}}
	o.controller.Referenced = []kube.Kind{{Resource: configMaps, Whole: true}}
	o.controller.References = func(w *widget) []kube.Reference { return []kube.Reference{w.text()} }
	o.finalizer = kube.Finalizer{Client: client, Resource: widgets, Name: "example.com/parts", OnWrite: o.controller.Wrote}
	o.status = kube.Status[*widget]{Client: client, Resource: widgets, OnWrite: o.controller.Wrote}
	return o.controller.Start(ctx)
}

func (o *operator) reconcile(ctx context.Context, key types.NamespacedName, w *widget) (reconcile.Result, error) {
	if w == nil {
		return reconcile.Result{}, nil
	}
	alive, result, err := o.finalizer.Finalize(ctx, w, func(ctx context.Context) (gone bool, err error) {
		left, err := o.scale(ctx, key, w, 0)
		return left == 0 && err == nil, err
	})
	if !alive || err != nil {
		return result, err
	}
	count, failed := o.scale(ctx, key, w, w.Spec.Replicas)
	failed = errors.Join(failed, o.text(ctx, key, w))
	return result, errors.Join(failed, o.status.Update(ctx, w, func(w *widget) { w.Status.Parts = count }))
}

// scale makes the Parts 0 to want-1, and returns how many the cache has.
func (o *operator) scale(ctx context.Context, key types.NamespacedName, w *widget, want int) (int, error) {
	own, err := o.controller.Children(w.UID, parts)
	if err != nil {
		return 0, err
	}
	missing := map[string]bool{}
	for i := range want {
		missing[kube.Name(0, w.Name, fmt.Sprint(i))] = true
	}
	api := o.client.Resource(parts).Namespace(key.Namespace)
	for _, each := range own {
		if missing[each.GetName()] {
			delete(missing, each.GetName())
			continue
		}
		uid := each.GetUID()
		err := api.Delete(ctx, each.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil && !apierrors.IsNotFound(err) {
			return len(own), err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		written, err := api.Create(ctx, o.child(w, "example.com/v1", "Part", name), metav1.CreateOptions{})
		if err != nil {
			return len(own), err
		}
		o.controller.WroteChild(key, parts, written)
	}
	return len(own), nil
}

func (o *operator) child(w *widget, apiVersion, kind, name string) *unstructured.Unstructured {
	child := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
	child.SetNamespace(w.Namespace)
	child.SetName(name)
	child.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(w, widgets.GroupVersion().WithKind("Widget"))})
	return child
}

func (o *operator) text(ctx context.Context, key types.NamespacedName, w *widget) error {
	api, name := o.client.Resource(configMaps).Namespace(w.Namespace), w.text().Name
	live, err := o.controller.Lookup(w.text())
	var written *unstructured.Unstructured
	switch {
	case errors.Is(err, kube.ErrAbsent):
		if w.Spec.Text == "" {
			return nil
		}
		wanted := o.child(w, "v1", "ConfigMap", name)
		wanted.Object["data"] = map[string]any{"text": w.Spec.Text}
		written, err = api.Create(ctx, wanted, metav1.CreateOptions{})
	case err != nil:
		return err
	case !metav1.IsControlledBy(live, w):
		return nil
	case w.Spec.Text == "":
		uid := live.GetUID()
		return api.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	default:
		if now, _, _ := unstructured.NestedString(live.Object, "data", "text"); now == w.Spec.Text {
			return nil
		}
		var patch []byte
		patch, err = json.Marshal(map[string]any{"metadata": map[string]any{"uid": live.GetUID()}, "data": map[string]any{"text": w.Spec.Text}})
		if err == nil {
			written, err = api.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
	}
	if err == nil {
		o.controller.WroteChild(key, configMaps, written)
	}
	return err
}
