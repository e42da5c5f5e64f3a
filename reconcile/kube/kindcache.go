package kube

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/internal/kubewatch"
	"github.com/seed-9e1ffd66/trueup/internal/versions"
)

// kindCache holds the objects of one kind as its watch shows them. A reflector
// writes it.
type kindCache struct {
	all                   *caches
	kind                  Kind
	dropped               [][]string // by Kind.Drop
	isOwned, isReferenced bool

	// The lock of caches guards the rest.
	objects  map[types.NamespacedName]*objectState
	children map[types.UID]map[types.NamespacedName]bool // by the UID of their controller
	synced   bool
	woken    bool   // the keys of its first list have been woken
	err      error  // the last failure to list or watch, nil after a success
	version  uint64 // the resourceVersion that the watch has reached
}

// objectState is one object. It is immutable once it is in the cache.
type objectState struct {
	uid, owner types.UID // owner is the UID of the controller, if any
	version    string
	generation int64
	metadata   [sha256.Size]byte // digest without the version, zero if not needed
	data       []byte            // JSON
	err        error             // of References or ReferencesOf
}

// observed is an object as a watch or list delivered it. The zero value stands for
// a deleted object.
type observed struct {
	state      *objectState
	references []Reference
}

var (
	_ kubewatch.Sink    = (*kindCache)(nil)
	_ kubewatch.Reducer = (*kindCache)(nil)
)

func newKindCache(all *caches, kind Kind) *kindCache {
	return &kindCache{all: all, kind: kind, dropped: kind.dropped(), objects: map[types.NamespacedName]*objectState{}}
}

// Put implements kubewatch.Sink.
func (k *kindCache) Put(seen any) error {
	key, now, err := k.observe(seen)
	if err != nil {
		return err
	}
	var found wakeSet
	k.all.mu.Lock()
	k.set(&found, key, now)
	k.all.mu.Unlock()
	k.wakeAll(found.keys)
	return nil
}

// Drop implements kubewatch.Sink.
func (k *kindCache) Drop(seen any) error {
	m, ok := seen.(metav1.Object)
	if !ok {
		return k.unexpected(seen)
	}
	var found wakeSet
	k.all.mu.Lock()
	k.set(&found, KeyOf(m), observed{})
	k.all.mu.Unlock()
	k.wakeAll(found.keys)
	return nil
}

// Replace implements kubewatch.Sink.
func (k *kindCache) Replace(list []any, version string) error {
	listed := make(map[types.NamespacedName]observed, len(list))
	for _, seen := range list {
		key, now, err := k.observe(seen)
		if err != nil {
			return err
		}
		listed[key] = now
	}
	var found wakeSet
	k.all.mu.Lock()
	first := !k.synced
	if first && k == k.all.own {
		for key := range listed { // also without a change
			found.add(key)
		}
	}
	for key := range k.objects {
		if _, ok := listed[key]; !ok {
			k.set(&found, key, observed{})
		}
	}
	for key, now := range listed {
		k.set(&found, key, now)
	}
	k.synced, k.err = true, nil
	released := k.advance(versions.Parse(version))
	k.all.mu.Unlock()
	k.wakeAll(found.keys)
	k.all.wake(released...)
	if first {
		// Now, so that the first passes begin with all keys of the first lists, and
		// none is started a second time for them.
		k.all.mu.Lock()
		k.woken = k.synced
		k.all.closeIfWoken()
		k.all.mu.Unlock()
	}
	return nil
}

// Reduce implements kubewatch.Reducer. A streamed first state is collected without the fields
// that the cache drops.
func (k *kindCache) Reduce(seen any) (any, error) {
	k.trim(seen)
	return seen, nil
}

// Reached implements kubewatch.Sink.
func (k *kindCache) Reached(version string) {
	k.all.mu.Lock()
	released := k.advance(versions.Parse(version))
	k.all.mu.Unlock()
	k.all.wake(released...)
}

// advance records the version that the watch has reached, and returns the keys that
// waited for it. The lock is held. The version falls when a server is restored from
// a backup.
func (k *kindCache) advance(version uint64) []types.NamespacedName {
	k.version = version
	return k.all.writes.seen(k, version)
}

// set stores the state of an object and adds to found the keys to reconcile. The
// lock is held.
func (k *kindCache) set(found *wakeSet, key types.NamespacedName, now observed) {
	old, state := k.objects[key], now.state
	if old == nil && state == nil || old != nil && state != nil && old.uid == state.uid && old.version == state.version {
		return
	}
	// Before the indexes change, because both states count.
	quiet := k.all.ignoreStatus && k == k.all.own && old.sameButStatus(state)
	if !quiet {
		k.all.affected(found, k, key, old, state)
	}
	if k.refers() {
		k.all.graph.set(k.reference(key), now.references)
	}
	if old != nil {
		k.unindex(key, old)
	}
	if state == nil {
		delete(k.objects, key)
		return
	}
	k.objects[key] = state
	k.index(key, state)
}

func (k *kindCache) unindex(key types.NamespacedName, old *objectState) {
	if k == k.all.own {
		delete(k.all.keyOf, old.uid)
	}
	if delete(k.children[old.owner], key); len(k.children[old.owner]) == 0 {
		delete(k.children, old.owner)
	}
}

func (k *kindCache) index(key types.NamespacedName, state *objectState) {
	if k == k.all.own && state.uid != "" { // only test doubles leave it empty
		if k.all.keyOf == nil {
			k.all.keyOf = map[types.UID]types.NamespacedName{}
		}
		k.all.keyOf[state.uid] = key
	}
	if k.isOwned && state.owner != "" {
		if k.children == nil {
			k.children = map[types.UID]map[types.NamespacedName]bool{}
		}
		if k.children[state.owner] == nil {
			k.children[state.owner] = map[types.NamespacedName]bool{}
		}
		k.children[state.owner][key] = true
	}
}

func (k *kindCache) wakeAll(keys map[types.NamespacedName]bool) {
	k.all.wake(slices.SortedFunc(maps.Keys(keys), compareKeys)...)
}

// observe converts an object that the watch delivered to its cached form. It may
// change the object.
func (k *kindCache) observe(seen any) (types.NamespacedName, observed, error) {
	m, ok := seen.(metav1.Object)
	if !ok {
		return types.NamespacedName{}, observed{}, k.unexpected(seen)
	}
	key := KeyOf(m)
	state := &objectState{uid: m.GetUID(), version: m.GetResourceVersion(), generation: m.GetGeneration()}
	if controller := metav1.GetControllerOfNoCopy(m); controller != nil {
		state.owner = controller.UID
	}
	data, err := json.Marshal(seen)
	if err != nil {
		return key, observed{}, k.describe(key, err)
	}
	state.data = data
	if k.all.ignoreStatus && k == k.all.own {
		if state.metadata, err = digestOf(seen); err != nil {
			return key, observed{}, k.describe(key, err)
		}
	}
	now := observed{state: state}
	if k.refers() {
		if now.references, err = k.all.references(k.reference(key), data); err != nil {
			state.err = fmt.Errorf("references: %w", err)
			if k == k.all.own {
				return key, now, nil // it becomes the error of the passes, which are logged
			}
			k.all.logger.Warn("References callback failed", slog.String("controller", k.all.controller),
				slog.String("kind", k.kind.Resource.GroupResource().String()), slog.Any("key", key), slog.Any("error", err))
		}
	}
	return key, now, nil
}

// refers reports whether objects of the kind are in the graph of references.
func (k *kindCache) refers() bool { return k == k.all.own || k.isReferenced }

func (k *kindCache) reference(key types.NamespacedName) Reference {
	return Reference{Resource: k.kind.Resource, Namespace: key.Namespace, Name: key.Name}
}

// trim drops the fields of a delivered object that the cache does not keep.
func (k *kindCache) trim(seen any) {
	if m, ok := seen.(metav1.Object); ok {
		m.SetManagedFields(nil)
	}
	partial := metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: "PartialObjectMetadata"}
	switch object := seen.(type) {
	case *metav1.PartialObjectMetadata:
		object.TypeMeta = partial
	case *unstructured.Unstructured:
		if !k.kind.Whole {
			object.Object = map[string]any{"apiVersion": partial.APIVersion, "kind": partial.Kind, "metadata": object.Object["metadata"]}
		}
		for _, path := range k.dropped {
			unstructured.RemoveNestedField(object.Object, path...)
		}
	}
}

// read returns the JSON of an object.
func (k *kindCache) read(key types.NamespacedName) ([]byte, error) {
	k.all.mu.RLock()
	defer k.all.mu.RUnlock()
	state := k.objects[key]
	switch {
	case !k.synced:
		return nil, ErrNotSynced
	case state == nil:
		return nil, ErrAbsent
	}
	return state.data, state.err
}

// owned returns the JSON of the objects whose controller is owner.
func (k *kindCache) owned(owner types.UID) [][]byte {
	k.all.mu.RLock()
	defer k.all.mu.RUnlock()
	var list [][]byte
	for _, key := range slices.SortedFunc(maps.Keys(k.children[owner]), compareKeys) {
		list = append(list, k.objects[key].data)
	}
	return list
}

func (k *kindCache) known() bool {
	k.all.mu.RLock()
	defer k.all.mu.RUnlock()
	return k.synced
}

// describe adds the object or kind to err.
func (k *kindCache) describe(key types.NamespacedName, err error) error {
	return describe(k.kind.Resource, key, err)
}

func (k *kindCache) unexpected(seen any) error {
	return fmt.Errorf("kube: the watch of %s delivered a %T; want an object", k.kind.Resource.GroupResource(), seen)
}

// sameButStatus reports whether two states of one object differ in the status
// alone, judged by generation and metadata.
func (o *objectState) sameButStatus(other *objectState) bool {
	if o == nil || other == nil || o.uid != other.uid || o.generation == 0 || o.generation != other.generation {
		return false
	}
	return o.err == nil && other.err == nil && o.metadata == other.metadata && o.metadata != [sha256.Size]byte{}
}

// digestOf digests the metadata of a delivered object without its version and
// managers. It returns zero for an object of another type than the watch of a whole
// kind delivers, which equals none.
func digestOf(seen any) (digest [sha256.Size]byte, err error) {
	object, ok := seen.(*unstructured.Unstructured)
	if !ok {
		return digest, nil
	}
	metadata, _ := object.Object["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	delete(metadata, "resourceVersion")
	delete(metadata, "managedFields")
	data, err := json.Marshal(metadata)
	return sha256.Sum256(data), err
}
