package kubewatch

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Store is a [Sink] that keeps a value for each object, found by a key that several
// objects may share. Its methods can be called concurrently.
type Store[K comparable, V any] struct {
	// Read returns the key and the value of an object. One that is not ok is not kept.
	// Required.
	Read func(object metav1.Object) (key K, value V, ok bool)
	// Same reports, if set, that two values of one object differ in nothing that matters:
	// Changed is not called then.
	Same func(old, now V) bool
	// Changed is called, if set, after a value of the key was added, changed or dropped,
	// and once for each key after a list. It must not block.
	Changed func(key K)

	mu     sync.RWMutex
	values map[types.NamespacedName]entry[K, V]
	keys   map[K]map[types.NamespacedName]struct{}
	seen   time.Time
}

type entry[K comparable, V any] struct {
	name  types.NamespacedName
	key   K
	value V
	ok    bool
}

var (
	_ Sink    = (*Store[string, string])(nil)
	_ Reducer = (*Store[string, string])(nil)
)

// Seen returns when the store was last proven to be current, by a list, an event or a
// bookmark: zero before the first list.
func (s *Store[K, V]) Seen() time.Time {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.seen
}

// Synced reports whether the first list has come.
func (s *Store[K, V]) Synced() bool { return !s.Seen().IsZero() }

// Len returns the number of values.
func (s *Store[K, V]) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.values)
}

// All returns the values, in no order.
func (s *Store[K, V]) All() []V {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]V, 0, len(s.values))
	for _, e := range s.values {
		all = append(all, e.value)
	}
	return all
}

// Keys returns the keys that have values, in no order.
func (s *Store[K, V]) Keys() []K {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Keys(s.keys))
}

// Of returns the values of a key, in no order.
func (s *Store[K, V]) Of(key K) []V {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var found []V
	for name := range s.keys[key] {
		found = append(found, s.values[name].value)
	}
	return found
}

// Reduce implements [Reducer].
func (s *Store[K, V]) Reduce(object any) (any, error) {
	m, ok := object.(metav1.Object)
	if !ok {
		return nil, unexpected(object)
	}
	key, value, ok := s.Read(m)
	return entry[K, V]{nameOf(m), key, value, ok}, nil
}

// Put implements [Sink].
func (s *Store[K, V]) Put(object any) error {
	now, ok := object.(entry[K, V])
	if !ok {
		return unexpected(object)
	}
	touched := map[K]struct{}{}
	s.mu.Lock()
	s.set(touched, now)
	s.mu.Unlock()
	s.changed(touched)
	return nil
}

// Drop implements [Sink].
func (s *Store[K, V]) Drop(object any) error {
	m, ok := object.(metav1.Object)
	if !ok {
		return unexpected(object)
	}
	touched := map[K]struct{}{}
	s.mu.Lock()
	s.set(touched, entry[K, V]{name: nameOf(m)})
	s.mu.Unlock()
	s.changed(touched)
	return nil
}

// Replace implements [Sink].
func (s *Store[K, V]) Replace(objects []any, _ string) error {
	listed := make(map[types.NamespacedName]bool, len(objects))
	touched := map[K]struct{}{}
	s.mu.Lock()
	for _, object := range objects {
		now, ok := object.(entry[K, V])
		if !ok {
			s.mu.Unlock()
			return unexpected(object)
		}
		listed[now.name] = true
		s.set(touched, now)
	}
	for name := range s.values {
		if !listed[name] {
			s.set(touched, entry[K, V]{name: name})
		}
	}
	s.seen = time.Now()
	for key := range s.keys {
		touched[key] = struct{}{}
	}
	s.mu.Unlock()
	s.changed(touched)
	return nil
}

// Reached implements [Sink].
func (s *Store[K, V]) Reached(string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = time.Now()
}

// set stores an object, or drops it if it is not ok, and adds the keys that changed to
// touched. The lock is held.
func (s *Store[K, V]) set(touched map[K]struct{}, now entry[K, V]) {
	old, had := s.values[now.name]
	if had && (!now.ok || now.key != old.key) {
		touched[old.key] = struct{}{}
		delete(s.values, now.name)
		if delete(s.keys[old.key], now.name); len(s.keys[old.key]) == 0 {
			delete(s.keys, old.key)
		}
		had = false
	}
	if !now.ok {
		return
	}
	if !had || s.Same == nil || !s.Same(old.value, now.value) {
		touched[now.key] = struct{}{}
	}
	if s.values == nil {
		s.values, s.keys = map[types.NamespacedName]entry[K, V]{}, map[K]map[types.NamespacedName]struct{}{}
	}
	s.values[now.name] = now
	if s.keys[now.key] == nil {
		s.keys[now.key] = map[types.NamespacedName]struct{}{}
	}
	s.keys[now.key][now.name] = struct{}{}
}

func (s *Store[K, V]) changed(keys map[K]struct{}) {
	if s.Changed == nil {
		return
	}
	for key := range keys {
		s.Changed(key)
	}
}

// nameOf returns copies: substrings would keep the whole object in memory.
func nameOf(m metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: strings.Clone(m.GetNamespace()), Name: strings.Clone(m.GetName())}
}

func unexpected(object any) error {
	return fmt.Errorf("the watch delivered a %T; want an object", object)
}
