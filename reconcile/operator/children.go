package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime/debug"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/external"
)

// children calls the function of the operator. Its panic is the error. It cannot make another
// object of the one that it is called for.
func (w *work[T]) children(ctx context.Context, object T, pass *external.Pass) (children []Object, err error) {
	if pass != nil {
		things := w.operator.Outside.Things(object)
		recorded := *things
		*things = pass.Merge(recorded) // with what was made just now
		defer func() { *things = recorded }()
	}
	namespace, name, uid := object.GetNamespace(), object.GetName(), object.GetUID()
	defer func() {
		if object.GetNamespace() != namespace || object.GetName() != name || object.GetUID() != uid {
			err = reconcile.Terminal(errors.New("it has changed the namespace, name or UID of the object that it is called for"))
		}
		object.SetNamespace(namespace)
		object.SetName(name)
		object.SetUID(uid)
	}()
	defer func() {
		if value := recover(); value != nil {
			err = &reconcile.PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	return w.operator.Children(ctx, object)
}

// set makes the desired state of an object. It is valid together with an error, which names
// the children that are left out: then nothing counts as absent from it.
func (w *work[T]) set(object T, children []Object) (*apply.Set, error) {
	var stated []*unstructured.Unstructured
	var errs []error
	for i, child := range children {
		u, err := w.stated(object, child)
		if err != nil {
			errs = append(errs, fmt.Errorf("child %d: %w", i, err))
			continue
		}
		stated = append(stated, u)
	}
	options := w.operator.Options
	options.Part = string(object.GetUID())
	set, err := apply.NewSet(w.owner, stated, options)
	return set, errors.Join(append(errs, err)...)
}

// stated returns a child with what all children have in common.
func (w *work[T]) stated(object T, child Object) (*unstructured.Unstructured, error) {
	if isNil(child) {
		return nil, errors.New("is nil")
	}
	u, err := w.unstructured(child)
	if err != nil {
		return nil, err
	}
	kind := u.GroupVersionKind()
	id := fmt.Sprintf("%s %q", kind.Kind, u.GetName())
	scope, owned := w.scopes[kind.GroupKind()]
	home := object.GetNamespace()
	switch {
	case !owned:
		return nil, fmt.Errorf("%s: the kind %s is not in Operator.Owns or OwnsCluster", id, kind)
	case scope == meta.RESTScopeRoot && u.GetNamespace() != "":
		return nil, fmt.Errorf("%s: metadata.namespace: is %q, must be empty for a kind of OwnsCluster", id, u.GetNamespace())
	case scope == meta.RESTScopeRoot && home != "":
		// An object in a namespace cannot own it for the garbage collector: the finalizer sees to it.
		return u, nil
	case scope == meta.RESTScopeNamespace && u.GetNamespace() == "" && home == "":
		return nil, fmt.Errorf("%s: metadata.namespace: is required, since %s has none", id, w.operator.Kind.Kind)
	case scope == meta.RESTScopeNamespace && u.GetNamespace() == "":
		u.SetNamespace(home)
	case scope == meta.RESTScopeNamespace && home != "" && u.GetNamespace() != home:
		return nil, fmt.Errorf("%s: metadata.namespace: is %q, must be %q, where its %s is", id, u.GetNamespace(), home, w.operator.Kind.Kind)
	}
	u.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(object, w.operator.Kind)})
	return u, nil
}

// unstructured returns a child whose metadata may be changed.
func (w *work[T]) unstructured(child Object) (*unstructured.Unstructured, error) {
	if u, ok := child.(*unstructured.Unstructured); ok {
		// NewSet copies the rest, which may have values that a deep copy does not take.
		copied := &unstructured.Unstructured{Object: maps.Clone(u.Object)}
		if metadata, ok := u.Object["metadata"].(map[string]any); ok {
			copied.Object["metadata"] = maps.Clone(metadata)
		}
		return copied, nil
	}
	kind := child.GetObjectKind().GroupVersionKind()
	if kind.Kind == "" {
		if w.operator.Scheme == nil {
			return nil, fmt.Errorf("%T %q: has no kind, and Operator.Scheme is not set", child, child.GetName())
		}
		kinds, _, err := w.operator.Scheme.ObjectKinds(child)
		if err != nil {
			return nil, fmt.Errorf("%T %q: Operator.Scheme: %w", child, child.GetName(), err)
		}
		kind = kinds[0]
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(child)
	if err != nil {
		return nil, fmt.Errorf("%T %q: %w", child, child.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(kind)
	return u, nil
}

// isNil reports whether a value is nil, or a pointer that is.
func isNil(value any) bool {
	v := reflect.ValueOf(value)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}
