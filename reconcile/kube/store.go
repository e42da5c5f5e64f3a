package kube

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// store is what the watch of one kind shows. A reflector writes it.
type store struct {
	*mirror

	kind                  Kind
	isOwned, isReferenced bool
	calls                 calls

	// The lock of the mirror guards the rest.
	objects  map[types.NamespacedName]*objectState
	children map[types.UID]map[types.NamespacedName]bool // by the UID of their controller
	synced   bool
	err      error  // the last failure to list or watch, nil once that works again
	version  uint64 // how far the watch has come
}

// objectState is one object. It is not changed once it is in the store.
type objectState struct {
	uid, owner types.UID // owner is that of the controller, if any
	version    string
	generation int64
	data       []byte // JSON
	err        error  // of References or ReferencesOf
}

// observed is what a watch showed of an object, the zero value if it is gone.
type observed struct {
	state      *objectState
	references []Reference
}

var (
	_ cache.TransformingStore      = (*store)(nil)
	_ cache.ResourceVersionUpdater = (*store)(nil)
)

func newStore(m *mirror, kind Kind) *store {
	return &store{mirror: m, kind: kind, objects: map[types.NamespacedName]*objectState{}}
}

// Add implements cache.ReflectorStore.
func (s *store) Add(seen any) error { return s.Update(seen) }

// Update implements cache.ReflectorStore.
func (s *store) Update(seen any) error {
	key, now, err := s.observe(seen)
	if err != nil {
		return err
	}
	var found wakeSet
	s.mu.Lock()
	s.set(&found, key, now)
	s.mu.Unlock()
	s.wakeAll(found.keys)
	return nil
}

// Delete implements cache.ReflectorStore. An object that left the selector is
// deleted, too, for a watch.
func (s *store) Delete(seen any) error {
	m, ok := seen.(metav1.Object)
	if !ok {
		return s.unexpected(seen)
	}
	var found wakeSet
	s.mu.Lock()
	s.set(&found, KeyOf(m), observed{})
	s.mu.Unlock()
	s.wakeAll(found.keys)
	return nil
}

// Replace implements cache.ReflectorStore: the result of a list.
func (s *store) Replace(list []any, version string) error {
	listed := make(map[types.NamespacedName]observed, len(list))
	for _, seen := range list {
		key, now, err := s.observe(seen)
		if err != nil {
			return err
		}
		listed[key] = now
	}
	var found wakeSet
	s.mu.Lock()
	first := !s.synced
	if first && s == s.own {
		for key := range listed { // changed or not
			found.add(key)
		}
	}
	for key := range s.objects {
		if _, ok := listed[key]; !ok {
			s.set(&found, key, observed{})
		}
	}
	for key, now := range listed {
		s.set(&found, key, now)
	}
	s.synced, s.err = true, nil
	released := s.advance(parseVersion(version))
	if first {
		s.settled()
	}
	s.mu.Unlock()
	s.wakeAll(found.keys)
	s.wake(released...)
	return nil
}

// Resync implements cache.ReflectorStore. There is nothing to do.
func (s *store) Resync() error { return nil }

// Transformer implements cache.TransformingStore: a first state that is streamed
// is collected without what is dropped anyway.
func (s *store) Transformer() cache.TransformFunc {
	return func(seen any) (any, error) {
		s.slim(seen)
		return seen, nil
	}
}

// UpdateResourceVersion implements cache.ResourceVersionUpdater: the watch has
// come to version, by an event or without.
func (s *store) UpdateResourceVersion(version string) {
	s.mu.Lock()
	released := s.advance(parseVersion(version))
	s.mu.Unlock()
	s.wake(released...)
}

// advance takes note of how far the watch has come, and returns the keys that
// waited for it. The lock is held. A server that was restored from a backup
// counts from a lower version.
func (s *store) advance(version uint64) []types.NamespacedName {
	s.version = version
	return s.writes.seen(s, version)
}

// set stores the state of an object and adds to found the keys that this
// concerns. The lock is held.
func (s *store) set(found *wakeSet, key types.NamespacedName, now observed) {
	old, state := s.objects[key], now.state
	if old == nil && state == nil || old != nil && state != nil && old.uid == state.uid && old.version == state.version {
		return
	}
	// Before the indexes change: they must lead from both states.
	quiet := s.ignoreStatus && s == s.own && old.sameButStatus(state)
	if !quiet {
		s.affected(found, s, key, old, state)
	}
	if s.refers() {
		s.graph.set(s.reference(key), now.references)
	}
	if old != nil {
		s.unindex(key, old)
	}
	if state == nil {
		delete(s.objects, key)
		return
	}
	s.objects[key] = state
	s.index(key, now)
}

func (s *store) unindex(key types.NamespacedName, old *objectState) {
	if s == s.own {
		delete(s.keyOf, old.uid)
	}
	if delete(s.children[old.owner], key); len(s.children[old.owner]) == 0 {
		delete(s.children, old.owner)
	}
}

func (s *store) index(key types.NamespacedName, now observed) {
	state := now.state
	if s == s.own {
		if s.keyOf == nil {
			s.keyOf = map[types.UID]types.NamespacedName{}
		}
		s.keyOf[state.uid] = key
	}
	if s.isOwned && state.owner != "" {
		if s.children == nil {
			s.children = map[types.UID]map[types.NamespacedName]bool{}
		}
		if s.children[state.owner] == nil {
			s.children[state.owner] = map[types.NamespacedName]bool{}
		}
		s.children[state.owner][key] = true
	}
}

func (s *store) wakeAll(keys map[types.NamespacedName]bool) {
	s.wake(slices.SortedFunc(maps.Keys(keys), compareKeys)...)
}

// observe makes what is kept of an object that the watch delivered, which it may
// change.
func (s *store) observe(seen any) (types.NamespacedName, observed, error) {
	m, ok := seen.(metav1.Object)
	if !ok {
		return types.NamespacedName{}, observed{}, s.unexpected(seen)
	}
	key := KeyOf(m)
	state := &objectState{uid: m.GetUID(), version: m.GetResourceVersion(), generation: m.GetGeneration()}
	if controller := metav1.GetControllerOfNoCopy(m); controller != nil {
		state.owner = controller.UID
	}
	s.slim(seen)
	data, err := json.Marshal(seen)
	if err != nil {
		return key, observed{}, s.describe(key, err)
	}
	state.data = data
	now := observed{state: state}
	if s.refers() {
		if now.references, err = s.references(s.reference(key), data); err != nil {
			state.err = fmt.Errorf("references: %w", err)
			if s == s.own {
				return key, now, nil // the error of its passes, which are logged
			}
			s.logger.Warn("references failed", slog.String("controller", s.controller),
				slog.String("kind", s.kind.Resource.GroupResource().String()), slog.Any("key", key), slog.Any("error", err))
		}
	}
	return key, now, nil
}

// refers reports whether objects of the kind are in the graph of references.
func (s *store) refers() bool { return s == s.own || s.isReferenced }

func (s *store) reference(key types.NamespacedName) Reference {
	return Reference{Resource: s.kind.Resource, Namespace: key.Namespace, Name: key.Name}
}

// slim drops what is not kept of an object that the watch delivered.
func (s *store) slim(seen any) {
	if m, ok := seen.(metav1.Object); ok && !s.keepManagedFields {
		m.SetManagedFields(nil)
	}
	partial := metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: "PartialObjectMetadata"}
	switch object := seen.(type) {
	case *metav1.PartialObjectMetadata:
		object.TypeMeta = partial
	case *unstructured.Unstructured:
		if !s.kind.Whole {
			object.Object = map[string]any{"apiVersion": partial.APIVersion, "kind": partial.Kind, "metadata": object.Object["metadata"]}
		}
	}
}

// read returns the JSON of an object.
func (s *store) read(key types.NamespacedName) ([]byte, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	state := s.objects[key]
	switch {
	case !s.synced:
		return nil, ErrNotSynced
	case state == nil:
		return nil, ErrAbsent
	}
	return state.data, state.err
}

// owned returns the JSON of the objects whose controller is owner.
func (s *store) owned(owner types.UID) [][]byte {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var list [][]byte
	for _, key := range slices.SortedFunc(maps.Keys(s.children[owner]), compareKeys) {
		list = append(list, s.objects[key].data)
	}
	return list
}

func (s *store) known() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.synced
}

// describe says which object or kind err is about.
func (s *store) describe(key types.NamespacedName, err error) error {
	return describe(s.kind.Resource, key, err)
}

func (s *store) unexpected(seen any) error {
	return fmt.Errorf("kube: the watch of %s delivered a %T; want an object", s.kind.Resource.GroupResource(), seen)
}

// sameButStatus tells that of two states of one object only the status differs,
// as far as generation and metadata show it.
func (o *objectState) sameButStatus(other *objectState) bool {
	if o == nil || other == nil || o.uid != other.uid || o.generation == 0 || o.generation != other.generation {
		return false
	}
	var a, b metav1.PartialObjectMetadata
	if json.Unmarshal(o.data, &a) != nil || json.Unmarshal(other.data, &b) != nil {
		return false
	}
	for _, m := range []*metav1.PartialObjectMetadata{&a, &b} {
		m.ResourceVersion, m.ManagedFields = "", nil
	}
	return o.err == nil && other.err == nil && equality.Semantic.DeepEqual(a.ObjectMeta, b.ObjectMeta)
}

// parseVersion returns the number that a resourceVersion is, 0 for what is none.
func parseVersion(version string) uint64 {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
