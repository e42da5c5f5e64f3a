package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/apply/internal/write"
	"github.com/seed-9e1ffd66/trueup/diff"
)

// Overlay states a few fields of objects that belong to others, such as an annotation of
// another team's Service, and gives them back. It neither creates nor deletes an object, sets no
// label of an owner, and watches nothing: the caller decides when to look. It has no state;
// its methods may be called from any number of goroutines. All fields but OnWrite are
// required.
type Overlay struct {
	Objects dynamic.Interface
	Mapper  meta.RESTMapper
	// Manager is the field manager, one for each purpose: an apply under its name gives back
	// the fields that it no longer states. It must not be the Manager of an [Owner].
	Manager string
	// OnWrite is called after each write request.
	OnWrite func(Write)
}

// State reads an object and writes it if it lacks a field of these, has another value, or
// if the Manager owns a field that is no longer stated. It takes the fields from other
// managers. An object that does not exist is an error of the server: apierrors.IsNotFound.
// A write is conditional on the object that was read (UID).
func (o Overlay) State(ctx context.Context, fields *unstructured.Unstructured) (changed bool, err error) {
	if o.Manager == "" {
		return false, errors.New("Overlay.Manager: is required")
	}
	if fields == nil || fields.GetName() == "" {
		return false, errors.New("Overlay.State: fields: needs apiVersion, kind and metadata.name of the object")
	}
	client, err := o.client(fields.GroupVersionKind(), fields.GetNamespace())
	if err != nil {
		return false, err
	}
	live, err := client.Get(ctx, fields.GetName(), metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	missing, err := diff.Fields(fields.Object, live.Object, diff.Options{Manager: o.Manager})
	if err != nil || len(missing) == 0 {
		return false, err
	}
	stated := fields.DeepCopy()
	stated.SetUID(live.GetUID())
	return true, o.apply(ctx, client, stated)
}

// GiveBack makes the Manager own nothing of an object: fields that have no other owner
// are removed. An object that does not exist, or of which the Manager owns nothing, costs a read
// and is no error.
func (o Overlay) GiveBack(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) (changed bool, err error) {
	nothing := &unstructured.Unstructured{Object: map[string]any{}}
	nothing.SetGroupVersionKind(kind)
	nothing.SetNamespace(namespace)
	nothing.SetName(name)
	if changed, err = o.State(ctx, nothing); write.Gone(err) {
		return false, nil
	}
	return changed, err
}

func (o Overlay) client(kind schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error) {
	mapping, err := o.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return o.Objects.Resource(mapping.Resource), nil
	}
	return o.Objects.Resource(mapping.Resource).Namespace(namespace), nil
}

func (o Overlay) apply(ctx context.Context, client dynamic.ResourceInterface, stated *unstructured.Unstructured) error {
	start := time.Now()
	_, err := client.Apply(ctx, stated.GetName(), stated, metav1.ApplyOptions{FieldManager: o.Manager, Force: true})
	kind := stated.GroupVersionKind()
	id := ID{Group: kind.Group, Kind: kind.Kind, Namespace: stated.GetNamespace(), Name: stated.GetName()}
	if o.OnWrite != nil {
		o.OnWrite(Write{ID: id, Verb: "patch", Duration: time.Since(start), Err: err})
	}
	if err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	return nil
}
