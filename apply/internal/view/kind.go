// Package view is a program's view of its live objects: for each kind the metadata of
// the objects that carry the owner's labels. It holds the newer of the state that the
// watch has delivered and the server's answer to our last write.
//
// A [Kind] is filled by [Kind.Watch], which lists and watches, and by
// [Kind.Wrote]. It is read through its methods, from any number of goroutines.
package view

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply/internal/identity"
	"github.com/seed-9e1ffd66/trueup/diff"
)

// Kind is the live state of one kind.
type Kind struct {
	group schema.GroupKind
	owner *identity.Identity
	hooks Hooks
	nudge chan struct{} // the kind's definition must be looked up

	mu        sync.RWMutex
	mapping   *meta.RESTMapping
	records   map[Name]*Record
	round     int32 // of Others
	parts     parts
	writing   map[Name]*writing
	awaited   map[Name]map[any]func()
	lost      map[Name]loss
	brake     brake
	managed   bool     // the server keeps managedFields for this kind
	sources   []string // namespaces that are watched one by one; nil: all at once
	listed    map[string]bool
	state     State            // Served once every source was listed
	errs      map[string]error // the last failure to list or watch, by source, until it works again
	attempted chan struct{}    // closed when the kind is synced, or has failed, for the first time
	complete  chan struct{}    // closed when it is synced for the first time
	began     time.Time        // when the watch was started
}

// Hooks are called, if set, without a lock, and must not block.
type Hooks struct {
	// Drift: another manager has changed or removed a field of ours, or the object was
	// deleted.
	Drift func(Object)
	// Change: the watch shows a new state of an object.
	Change func(Object)
	// Synced: the kind is synced for the first time.
	Synced func()
	// Seen: the watch or a list has delivered the object, in the state of our last
	// write or a newer one.
	Seen func(*metav1.PartialObjectMetadata)
	// Removed: the watch has delivered the deletion of an object that others deleted,
	// with the last state and the last record.
	Removed func(*metav1.PartialObjectMetadata, *Record)
	// Watched: a list, an event or a bookmark has come, with nil, or a list or watch
	// has failed or fallen silent.
	Watched func(error)
	// Turns are the times at which objects are applied again.
	Turns Turns
}

// Object is an object of the kind as it is remembered.
type Object struct {
	Name
	Record Record
	// Gone is whether the object was deleted, or lacks a label of the owner. Then the
	// record is the last one.
	Gone bool
}

// New returns an empty view of a kind, not synced.
func New(kind schema.GroupKind, owner *identity.Identity, hooks Hooks) *Kind {
	return &Kind{
		group: kind, owner: owner, hooks: hooks, nudge: make(chan struct{}, 1), attempted: make(chan struct{}), complete: make(chan struct{}),
		records: map[Name]*Record{}, parts: parts{}, brake: brake{},
	}
}

// GroupKind returns the kind.
func (k *Kind) GroupKind() schema.GroupKind { return k.group }

// Look is a snapshot of one object and its kind.
type Look struct {
	// Known is what is known of the kind.
	Known
	// Mapping is the resource that is watched, nil while it is unknown.
	Mapping *meta.RESTMapping
	// Found is whether there is a record, Record.
	Found  bool
	Record Record
	// Lost is the resourceVersion in which another program deleted or unlabelled the
	// object, and LostUID the object's UID then.
	Lost, LostUID string
	// Managed is whether the server keeps managedFields for the kind.
	Managed bool
}

// Look returns the state of an object and its kind.
func (k *Kind) Look(n Name) Look { return k.LookAt(n, nil) }

// LookAt is Look with a hint of the object, nil for none.
func (k *Kind) LookAt(n Name, hint *Hint) Look {
	k.mu.RLock()
	defer k.mu.RUnlock()
	look := Look{Known: Known{k.state, k.failure()}, Mapping: k.mapping, Managed: k.managed}
	if r := k.find(n, hint); r != nil {
		look.Found, look.Record = true, *r
	} else if l, ok := k.lost[n]; ok {
		look.Lost, look.LostUID = l.version, l.uid.String()
	}
	return look
}

// Known returns what is known of the kind now.
func (k *Kind) Known() Known {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return Known{k.state, k.failure()}
}

// Attempted returns a channel that is closed when the kind is synced, or has failed,
// for the first time, and the time when its watch was started, zero before.
func (k *Kind) Attempted() (<-chan struct{}, time.Time) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.attempted, k.began
}

// Complete returns a channel that is closed when the kind is synced for the first
// time.
func (k *Kind) Complete() <-chan struct{} { return k.complete }

// Ever reports whether the kind was ever synced.
func (k *Kind) Ever() bool {
	select {
	case <-k.complete:
		return true
	default:
		return false
	}
}

// Mapping returns the resource that is watched, nil while it is unknown.
func (k *Kind) Mapping() *meta.RESTMapping {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.mapping
}

// Plural returns <plural>.<group>, the name of the kind's definition if it has
// one, and empty while that is unknown.
func (k *Kind) Plural() string {
	mapping := k.Mapping()
	if mapping == nil {
		return ""
	}
	return mapping.Resource.Resource + "." + mapping.Resource.Group
}

// Len returns the number of objects.
func (k *Kind) Len() int {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return len(k.records)
}

// Each calls yield for each object in no order, until it returns false. It holds a
// lock: yield must call no method of the view. A kind that is not synced has none.
func (k *Kind) Each(yield func(Name, *Record) bool) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.state != Served {
		return true
	}
	for n, r := range k.records {
		if !yield(n, r) {
			return false
		}
	}
	return true
}

// EachOf is Each for the objects of one part. Its cost depends on the part only.
func (k *Kind) EachOf(part Part, yield func(Name, *Record) bool) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.state != Served {
		return true
	}
	return k.parts.each(part, yield)
}

// Remember records the observed state of an object, if it still equals seen, as the
// result of an apply of the hash.
func (k *Kind) Remember(n Name, seen, hash diff.Sum) (held bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.records[n]
	if held = r != nil && r.observed == seen; held {
		r.remember(hash)
		k.hooks.Turns.recalled(r, time.Now())
	}
	return held
}

// pruneShows is how long the watch may take to show a deletion that was accepted.
const pruneShows = 30 * time.Second

// Prune marks the object as one whose deletion was accepted. If the watch still shows it as it
// was some time later, the answer was none of the server, but perhaps the page of a proxy: then
// the mark is void, and the object has drifted.
func (k *Kind) Prune(n Name, of string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.records[n]; r != nil && r.uid.String() == of {
		r.pruned = true
		time.AfterFunc(pruneShows, func() { k.unprune(n, of) })
	}
}

func (k *Kind) unprune(n Name, of string) {
	k.mu.Lock()
	r := k.records[n]
	void := r != nil && r.uid.String() == of && r.pruned && !r.Deleting()
	var found Object
	if void {
		r.pruned = false
		found = Object{Name: n, Record: *r}
	}
	k.mu.Unlock()
	k.announce(found, void, false, nil)
}

// Await calls wake once, from the goroutine of a watch, when the object changes or is
// deleted, or when a doubt about the kind ends; at once if it already is in a later
// version than the given one. A second call with the same key replaces the first.
func (k *Kind) Await(n Name, version uint64, key any, wake func()) {
	k.mu.Lock()
	r := k.records[n]
	late := r != nil && r.version > version
	if !late {
		if k.awaited == nil {
			k.awaited = map[Name]map[any]func(){}
		}
		if k.awaited[n] == nil {
			k.awaited[n] = map[any]func(){}
		}
		k.awaited[n][key] = wake
	}
	k.mu.Unlock()
	if late {
		wake()
	}
}

// Forget ends an Await.
func (k *Kind) Forget(n Name, key any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if delete(k.awaited[n], key); len(k.awaited[n]) == 0 {
		delete(k.awaited, n)
	}
}

// allAwaited ends each Await and returns what to call. The lock is held.
func (k *Kind) allAwaited() (wakes []func()) {
	for _, by := range k.awaited {
		wakes = slices.AppendSeq(wakes, maps.Values(by))
	}
	k.awaited = nil
	return wakes
}

// failure joins the errors of the sources.
func (k *Kind) failure() error {
	if len(k.errs) == 0 {
		return nil
	}
	var errs []error
	for _, source := range slices.Sorted(maps.Keys(k.errs)) {
		errs = append(errs, k.errs[source])
	}
	return errors.Join(errs...)
}

// fail records a failure of a source; nil: it works.
func (k *Kind) fail(source string, err error) {
	k.mu.Lock()
	if err == nil {
		var wakes []func()
		doubted := len(k.errs) > 0
		if delete(k.errs, source); doubted && len(k.errs) == 0 {
			wakes = k.allAwaited()
		}
		k.mu.Unlock()
		for _, wake := range wakes {
			wake()
		}
		return
	}
	defer k.mu.Unlock()
	if k.errs == nil {
		k.errs = map[string]error{}
	}
	k.errs[source] = err
	k.markAttempted()
}

// markAttempted closes the channel of Attempted. The lock is held.
func (k *Kind) markAttempted() {
	select {
	case <-k.attempted:
	default:
		close(k.attempted)
	}
}
