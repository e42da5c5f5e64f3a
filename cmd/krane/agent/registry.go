package agent

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply"
	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/render"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// entry is one key with its desired state. It is locked while the cluster is made to
// match it: one object, one worker.
type entry struct {
	locked   chan struct{} // holds a token while it is
	key      statesync.Key
	resource resource
	desired  desired
	// uid is the UID of the root; empty before it is read.
	uid types.UID
	// variables are the plain text of ciphertext; nil before.
	variables  map[string]string
	ciphertext []byte
	keyring    string
	// doubts counts the point queries in a row that disagreed with the stream.
	doubts int
	// fought is after how many repairs a fight was logged.
	fought int
	// failures counts the resyncs that have failed since it last matched.
	failures int
}

func newEntry(key statesync.Key) *entry {
	return &entry{locked: make(chan struct{}, 1), key: key, resource: of(key.Collection)}
}

// lock waits until no other worker has the entry, or ctx ends, which is the error.
func (e *entry) lock(ctx context.Context) error {
	select {
	case e.locked <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: another worker has it: %w", e.key, ctx.Err())
	}
}

// tryLock locks the entry unless a worker has it.
func (e *entry) tryLock() bool {
	select {
	case e.locked <- struct{}{}:
		return true
	default:
		return false
	}
}

func (e *entry) unlock() { <-e.locked }

// desired is the desired state of a key. Received is false before the first
// message.
type desired struct {
	received bool
	version  uint64
	// apply is nil when the key must be absent, and gone is true once it is. Ending is true from the first deletion on, while what
	// isolates its pods is there.
	apply        proto.Message
	gone, ending bool
	// deferred is a deletion that no proven list has confirmed yet.
	deferred bool
}

// plain returns the decrypted variables if they belong to the desired version of the
// deployment.
func (e *entry) plain(d *ctrlv1.ApplyDeployment) (map[string]string, bool) {
	if e.variables == nil || e.keyring != d.GetEnvironmentId() || !bytes.Equal(e.ciphertext, d.GetEncryptedEnvironmentVariables()) {
		return nil, false
	}
	return e.variables, true
}

// registry has the entries, and the key of each object.
type registry struct {
	mu      sync.Mutex
	entries map[statesync.Key]*entry
	// objects are by component, because two components have objects of a kind.
	objects map[render.Component]map[apply.ID]statesync.Key
	// peek is each entry's desired state for readers that have not locked it.
	peek map[statesync.Key]desired
	// ids are those that live objects carry.
	ids map[statesync.Key]string
}

func newRegistry() *registry {
	r := &registry{
		entries: map[statesync.Key]*entry{},
		objects: map[render.Component]map[apply.ID]statesync.Key{},
		peek:    map[statesync.Key]desired{},
		ids:     map[statesync.Key]string{},
	}
	for _, res := range resources() {
		r.objects[res.component] = map[apply.ID]statesync.Key{}
	}
	return r
}

// entry returns the entry of the key, a new one if there is none.
func (r *registry) entry(key statesync.Key) *entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[key]
	if e == nil {
		e = newEntry(key)
		r.entries[key] = e
	}
	return e
}

// set makes d the desired state of e, which is locked.
func (r *registry) set(e *entry, d desired) {
	e.desired = d
	r.mu.Lock()
	defer r.mu.Unlock()
	r.peek[e.key] = d
}

// desired returns the desired state of a key.
func (r *registry) desired(key statesync.Key) desired {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.peek[key]
}

// present returns the keys that are desired to be present.
func (r *registry) present() []statesync.Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	var keys []statesync.Key
	for key, d := range r.peek {
		if d.apply != nil {
			keys = append(keys, key)
		}
	}
	return keys
}

// ending returns the keys of which what isolates the pods is there.
func (r *registry) ending() []statesync.Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	var keys []statesync.Key
	for key, d := range r.peek {
		if d.ending {
			keys = append(keys, key)
		}
	}
	return keys
}

// confirm returns the keys of a collection whose deletion was deferred and is what the
// proven list states. They are not deferred any more.
func (r *registry) confirm(collection string, listed map[statesync.Key]statesync.Item) []statesync.Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	var keys []statesync.Key
	for key, d := range r.peek {
		if item := listed[key]; key.Collection == collection && d.deferred && item.Deleted && item.Version == d.version {
			d.deferred = false
			r.peek[key] = d
			keys = append(keys, key)
		}
	}
	return keys
}

// claim stores that the objects belong to e. If one belongs to another desired key, it stores nothing and returns both.
func (r *registry) claim(e *entry, ids ...apply.ID) (taken apply.ID, by statesync.Key, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.objects[e.resource.component]
	for _, id := range ids {
		if key, known := of[id]; known && key != e.key && r.peek[key].apply != nil {
			return id, key, false
		}
	}
	for _, id := range ids {
		of[id] = e.key
	}
	return apply.ID{}, statesync.Key{}, true
}

// owner returns the key of an object.
func (r *registry) owner(component render.Component, id apply.ID) (statesync.Key, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key, ok := r.objects[component][id]
	return key, ok
}

// setID stores the id that the root of a key carries.
func (r *registry) setID(key statesync.Key, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids[key] = id
}

// id returns what setID has stored.
func (r *registry) id(key statesync.Key) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ids[key]
}

// forget drops the entries of a collection that are not in its list, have no worker and are not ending.
func (r *registry) forget(collection string, listed map[statesync.Key]statesync.Item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, e := range r.entries {
		if _, ok := listed[key]; ok || key.Collection != collection || r.peek[key].ending || !e.tryLock() {
			continue
		}
		delete(r.entries, key)
		delete(r.peek, key)
		delete(r.ids, key)
		for id, at := range r.objects[e.resource.component] {
			if at == key {
				delete(r.objects[e.resource.component], id)
			}
		}
		e.unlock()
	}
}
