package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// attempts bounds how often a write is repeated at once because somebody else
// wrote in between. After that its error is that of the pass.
const attempts = 5

// Finalizer keeps an object of one kind until what was made for it elsewhere is
// gone. It holds no state, and is safe for concurrent use. It needs get and patch
// on the resource.
type Finalizer struct {
	// Client reaches the API server. Required.
	Client dynamic.Interface

	// Resource is the kind of the objects. Required.
	Resource schema.GroupVersionResource

	// Name is what stands in metadata.finalizers: a domain of yours, a slash and
	// a name, like "shop.example.com/teardown". Required.
	Name string

	// Poll is when to look again after a teardown that is not done. Default 5s.
	Poll time.Duration

	// OnWrite is called with the object after each write: [Controller.Wrote] fits.
	// Default nil, which is none.
	OnWrite func(object metav1.Object)
}

// Finalize is called at the beginning of each pass, before any effect outside
// the object. As long as the object is wanted, it makes sure that the finalizer
// is there, and alive is true: go on. Otherwise end the pass with what it
// returns.
//
// When the object is being deleted, Finalize calls teardown, and removes the
// finalizer only once that says gone: that it has looked, and that nothing is
// left. While it is not, or fails, the finalizer stays, and teardown is called
// again at Poll, or by the backoff of the pass: it must be safe to repeat, as
// reconcile.Steps.Undo is. It is not called when our finalizer is not there.
//
// Each write is one patch, bound to the resourceVersion that it was made for, so
// that a finalizer which somebody else adds or removes at the same time is never
// lost; on a conflict the object is read again. An object that is gone, or has a
// successor of its name, needs nothing and is not alive. When nothing is to be
// written, no request is made.
//
// The object must be the caller's own: its finalizers and resourceVersion become
// those on the server. The error is that of a request or of teardown, or about
// the configuration; it is terminal then.
func (f *Finalizer) Finalize(ctx context.Context, object metav1.Object,
	teardown func(ctx context.Context) (gone bool, err error),
) (alive bool, result reconcile.Result, err error) {
	if err := f.validate(); err != nil {
		return false, result, reconcile.Terminal(err)
	}
	if object.GetDeletionTimestamp() == nil {
		alive, err = f.change(ctx, object, true)
		if err != nil || object.GetDeletionTimestamp() == nil {
			return alive, result, err
		}
		// It was deleted since the event; what it has, it shows now.
	}
	if !f.on(object) {
		return false, result, nil
	}
	gone, err := teardown(ctx)
	if err != nil {
		return false, result, fmt.Errorf("teardown: %w", err)
	}
	if !gone {
		result.RequeueAfter = f.Poll
		if f.Poll <= 0 {
			result.RequeueAfter = 5 * time.Second
		}
		return false, result, nil
	}
	_, err = f.change(ctx, object, false)
	return false, result, err
}

// change adds or removes the finalizer. It reports whether the object has it
// then.
func (f *Finalizer) change(ctx context.Context, object metav1.Object, add bool) (bool, error) {
	resource := f.Client.Resource(f.Resource).Namespace(object.GetNamespace())
	for attempt := 1; ; attempt++ {
		if f.on(object) == add {
			return add, nil
		}
		if add && object.GetDeletionTimestamp() != nil {
			return false, nil // the server would refuse
		}
		patch, err := f.patch(object, add)
		if err != nil {
			return false, err
		}
		written, err := resource.Patch(ctx, object.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
		if err == nil {
			take(object, written)
			if f.OnWrite != nil {
				f.OnWrite(object)
			}
			return add, nil
		}
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		// A finalizer added to what is being deleted is invalid, not a conflict.
		outdated := apierrors.IsConflict(err) || add && apierrors.IsInvalid(err)
		if attempt == attempts || !outdated {
			return false, f.describe(object, err)
		}
		current, getErr := resource.Get(ctx, object.GetName(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(getErr), getErr == nil && current.GetUID() != object.GetUID():
			return false, nil
		case getErr != nil:
			return false, f.describe(object, getErr)
		case current.GetResourceVersion() == object.GetResourceVersion():
			return false, f.describe(object, err) // it was not outdated
		}
		take(object, current)
	}
}

// patch replaces the whole list, as a JSON merge patch does, and so states what
// it was made of.
func (f *Finalizer) patch(object metav1.Object, add bool) ([]byte, error) {
	list := slices.Clone(object.GetFinalizers())
	if add {
		list = append(list, f.Name)
	} else {
		list = slices.DeleteFunc(list, func(name string) bool { return name == f.Name })
	}
	if list == nil {
		list = []string{}
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": object.GetUID(), "resourceVersion": object.GetResourceVersion(), "finalizers": list,
	}})
}

func (f *Finalizer) on(object metav1.Object) bool {
	return slices.Contains(object.GetFinalizers(), f.Name)
}

func (f *Finalizer) validate() error {
	switch {
	case f.Client == nil:
		return errors.New("kube: Finalizer.Client is required")
	case f.Resource.Resource == "":
		return errors.New("kube: Finalizer.Resource is required")
	case f.Name == "":
		return errors.New("kube: Finalizer.Name is required")
	case !strings.Contains(f.Name, "/"):
		return fmt.Errorf("kube: Finalizer.Name is %q; want a domain before it, as in shop.example.com/teardown", f.Name)
	}
	for _, problem := range validation.IsQualifiedName(f.Name) {
		return fmt.Errorf("kube: Finalizer.Name is %q; want a qualified name: %s", f.Name, problem)
	}
	return nil
}

func (f *Finalizer) describe(object metav1.Object, err error) error {
	return describe(f.Resource, KeyOf(object), fmt.Errorf("finalizer: %w", err))
}

// take makes the metadata of object that a pass relies on that of current.
func take(object, current metav1.Object) {
	object.SetResourceVersion(current.GetResourceVersion())
	object.SetFinalizers(current.GetFinalizers())
	object.SetDeletionTimestamp(current.GetDeletionTimestamp())
}
