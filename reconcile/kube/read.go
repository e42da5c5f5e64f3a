package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Errors of the methods that read the cache.
var (
	// ErrAbsent means that the kind is synced and the object does not exist.
	ErrAbsent = errors.New("absent")
	// ErrNotSynced means that the kind has not been listed yet. It proves no
	// absence.
	ErrNotSynced = errors.New("not synced yet")
	// ErrNotWatched means that the Controller does not watch the resource.
	ErrNotWatched = errors.New("not watched by this controller")
)

// Get returns an object of the Controller's kind as of the last event. It is a
// copy that belongs to the caller. The error wraps [ErrAbsent] if it does not
// exist and [ErrNotSynced] before the first list of a Start. Any other error means
// that T cannot hold the object, or that References panicked for it.
func (c *Controller[T]) Get(key types.NamespacedName) (T, error) {
	var none T
	if err := c.prepare(); err != nil {
		return none, err
	}
	data, err := c.caches.own.read(key)
	if err != nil {
		return none, c.caches.own.describe(key, err)
	}
	object, err := decode[T](data)
	if err != nil {
		return none, c.caches.own.describe(key, err)
	}
	return object, nil
}

// List returns copies of the objects of a namespace, or of all for "", in the
// order of namespace and name. Objects that T cannot hold are left out, and the
// error joins the reasons. The others are valid beside the error. A list with an
// error proves no absence. Each call decodes each object: to read few of many, use
// [Controller.Keys] and [Controller.Get].
func (c *Controller[T]) List(namespace string) ([]T, error) {
	if err := c.prepare(); err != nil {
		return nil, err
	}
	if !c.caches.own.known() {
		return nil, c.caches.own.describe(types.NamespacedName{}, ErrNotSynced)
	}
	var errs []error
	var objects []T
	for _, key := range c.caches.keys(namespace) {
		object, err := c.Get(key)
		switch {
		case err == nil:
			objects = append(objects, object)
		case !errors.Is(err, ErrAbsent): // or deleted since
			errs = append(errs, err)
		}
	}
	return objects, errors.Join(errs...)
}

// Keys returns the keys of the objects of a namespace, or of all for "", in the
// order of namespace and name. There are none before the first list of a Start.
func (c *Controller[T]) Keys(namespace string) []types.NamespacedName {
	if c.prepare() != nil || !c.caches.own.known() {
		return nil
	}
	return c.caches.keys(namespace)
}

// Children returns copies of the objects of an Owned kind whose controller is the
// object of that UID, in the order of namespace and name. Objects of a kind that is
// not Whole hold only metadata, and are of the kind PartialObjectMetadata. The
// error wraps [ErrNotSynced] or [ErrNotWatched].
func (c *Controller[T]) Children(owner types.UID, resource schema.GroupVersionResource) ([]*unstructured.Unstructured, error) {
	k, err := c.kindCache(resource)
	if err != nil {
		return nil, err
	}
	var children []*unstructured.Unstructured
	for _, data := range k.owned(owner) {
		child, err := decode[*unstructured.Unstructured](data)
		if err != nil {
			return nil, k.describe(types.NamespacedName{}, err)
		}
		children = append(children, child)
	}
	return children, nil
}

// Lookup returns a copy of the object that a reference names, of any kind that the
// Controller watches. An object of a kind that is not Whole holds only metadata,
// and is of the kind PartialObjectMetadata. The error wraps [ErrAbsent],
// [ErrNotSynced] or [ErrNotWatched], or is the panic of ReferencesOf for the
// object.
func (c *Controller[T]) Lookup(reference Reference) (*unstructured.Unstructured, error) {
	k, err := c.kindCache(reference.Resource)
	if err != nil {
		return nil, err
	}
	data, err := k.read(reference.key())
	if err != nil {
		return nil, k.describe(reference.key(), err)
	}
	return decode[*unstructured.Unstructured](data)
}

// Users returns the keys of the objects of the Controller's kind that refer to
// the object of reference, directly or by way of others, in the order of
// namespace and name. The object need not exist.
func (c *Controller[T]) Users(reference Reference) []types.NamespacedName {
	if c.prepare() != nil {
		return nil
	}
	return c.caches.usersOf(reference)
}

// kindCache returns the cache of a resource once it is synced.
func (c *Controller[T]) kindCache(resource schema.GroupVersionResource) (*kindCache, error) {
	if err := c.prepare(); err != nil {
		return nil, err
	}
	k := c.caches.kind(resource)
	if k == nil {
		return nil, fmt.Errorf("kube: %s: %w", resource.GroupResource(), ErrNotWatched)
	}
	if !k.known() {
		return nil, k.describe(types.NamespacedName{}, ErrNotSynced)
	}
	return k, nil
}

// part returns what T can hold of an object that it cannot hold as a whole.
func (c *Controller[T]) part(key types.NamespacedName) T {
	object, _ := reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T)
	data, _ := c.caches.own.read(key) // the error is what the caller has
	_ = json.Unmarshal(data, object)  // after a field of another type it goes on with the next one
	return object
}

// decode makes a new T of its JSON form.
func decode[T metav1.Object](data []byte) (T, error) {
	object, _ := reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T)
	if err := json.Unmarshal(data, object); err != nil {
		var none T
		return none, err
	}
	return object, nil
}
