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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// attempts bounds how often a write is repeated after a conflict within one call.
// The last conflict becomes the error of the call.
const attempts = 5

// Finalizer keeps a deleted object until its teardown is verified. It serves the
// objects of one kind, holds no state, and is safe for concurrent use. It needs get
// and patch on the resource.
type Finalizer struct {
	// Client reaches the API server. Required.
	Client dynamic.Interface

	// Resource is the kind of the objects. Required.
	Resource schema.GroupVersionResource

	// Name is the entry in metadata.finalizers: a domain of the caller, a slash and
	// a name, such as "shop.example.com/teardown". Required.
	Name string

	// Poll is the delay before a teardown that is not complete is called again.
	// Default 5s.
	Poll time.Duration

	// OnWrite is called with the object after each write. [Controller.Wrote] fits.
	// Default nil.
	OnWrite func(object metav1.Object)
}

// Finalize adds the finalizer to a live object, or tears down a deleted one. Call it
// at the beginning of each pass, before any effect outside the object. While the
// object is not being deleted, Finalize ensures the finalizer and returns alive true:
// the pass continues. Otherwise the pass ends with the returned result and error.
//
// When the object is being deleted, Finalize calls teardown. It removes the
// finalizer only when teardown returns gone true, which means that teardown has
// checked and found no remains. Otherwise the finalizer stays, and teardown is
// called again after Poll, or after an error by the backoff of the pass. It must be
// safe to repeat, as reconcile.Steps.Undo is. It is not called for an object
// without this finalizer.
//
// Each write is one patch that carries the resourceVersion of the object, so a
// finalizer that another client adds or removes at the same time is never lost.
// After a conflict the object is read again. A deleted object, or one replaced by
// a successor of the same name, is not alive and causes no write. No request is
// sent when no write is needed.
//
// The object must belong to the caller: its finalizers and resourceVersion become
// those on the server, and after a conflict its status does. The error is the error of a request or of teardown. An
// invalid configuration is a terminal error.
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
		// It was deleted since the event, and change has read its finalizers.
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

// Remove removes the finalizer from an object, which may be live. What [Finalizer.Finalize] says
// of writes, conflicts, the object and errors holds. An object that is gone is no error.
func (f *Finalizer) Remove(ctx context.Context, object metav1.Object) error {
	if err := f.validate(); err != nil {
		return reconcile.Terminal(err)
	}
	_, err := f.change(ctx, object, false)
	return err
}

// change adds or removes the finalizer. It reports whether the object has it
// afterwards.
func (f *Finalizer) change(ctx context.Context, object metav1.Object, add bool) (bool, error) {
	resource := f.Client.Resource(f.Resource).Namespace(object.GetNamespace())
	for attempt := 1; ; attempt++ {
		if f.on(object) == add {
			return add, nil
		}
		if add && object.GetDeletionTimestamp() != nil {
			return false, nil // the server would reject it
		}
		patch, err := f.patch(object, add)
		if err != nil {
			return false, err
		}
		written, err := resource.Patch(ctx, object.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
		if err == nil {
			copyMetadata(object, written)
			if f.OnWrite != nil {
				f.OnWrite(object)
			}
			return add, nil
		}
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		// The server answers Invalid, not Conflict, to a finalizer that is added to an
		// object that is being deleted.
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
			return false, f.describe(object, err) // the object was not outdated
		}
		if err := refresh(object, current); err != nil {
			return false, f.describe(object, err)
		}
	}
}

// patch returns a merge patch that replaces the whole list of finalizers. It carries
// the resourceVersion that the list was computed from.
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
		return errors.New("kube: Finalizer.Client: is required")
	case f.Resource.Resource == "":
		return errors.New("kube: Finalizer.Resource: is required")
	case f.Name == "":
		return errors.New("kube: Finalizer.Name: is required")
	case !strings.Contains(f.Name, "/"):
		return fmt.Errorf("kube: Finalizer.Name: is %q, must begin with a domain, as in shop.example.com/teardown", f.Name)
	}
	for _, problem := range validation.IsQualifiedName(f.Name) {
		return fmt.Errorf("kube: Finalizer.Name: is %q, must be a qualified name: %s", f.Name, problem)
	}
	return nil
}

func (f *Finalizer) describe(object metav1.Object, err error) error {
	return describe(f.Resource, KeyOf(object), fmt.Errorf("finalizer: %w", err))
}

// refresh gives the object what a later state of it has. The status comes with the
// resourceVersion: a write of an older status with it would undo what was written meanwhile.
func refresh(object metav1.Object, later *unstructured.Unstructured) error {
	copyMetadata(object, later)
	if o, ok := object.(*unstructured.Unstructured); ok {
		delete(o.Object, "status")
		if status, has := later.Object["status"]; has {
			o.Object["status"] = runtime.DeepCopyJSONValue(status)
		}
		return nil
	}
	if !statusField(object).IsValid() {
		return nil // it has none
	}
	status, _, err := unstructured.NestedMap(later.Object, "status")
	if err != nil {
		return err
	}
	return setStatus(object, status)
}

// copyMetadata copies the metadata that a pass relies on from current to object.
func copyMetadata(object, current metav1.Object) {
	object.SetResourceVersion(current.GetResourceVersion())
	object.SetFinalizers(current.GetFinalizers())
	object.SetDeletionTimestamp(current.GetDeletionTimestamp())
}
