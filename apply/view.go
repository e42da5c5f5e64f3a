package apply

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/seed-9e1ffd66/trueup/diff"
)

// view is the live state of one kind. A reflector writes it, as its store, and
// so do our own writes, with what the server answered: of two states of an
// object the newer counts, so a slow watch never shows us less than we know.
type view struct {
	owner   *Owner
	mapping *meta.RESTMapping
	drift   func(name) // called without the lock
	known   func()     // called without the lock after the first list, unless nil
	changed func(name) // called without the lock on each event, unless nil
	nudge   chan struct{}

	mu      sync.RWMutex
	records map[name]*record
	writing map[name]*writing
	wakes   wakes
	awaited map[name]bool // others wait until these are ready
	managed bool          // the server keeps managedFields for this kind
	sources []string      // namespaces that are watched one by one; nil: everything at once
	listed  map[string]bool
	synced  bool             // every source was listed
	errs    map[string]error // the last failure to list or watch, by source, until it works again
}

// writing is what happens to an object while writes of ours are under way.
type writing struct {
	count   int
	deleted string // UID of the object that went away meanwhile
}

// name is an object's name within its kind.
type name struct{ namespace, name string }

var _ cache.ReflectorStore = (*view)(nil)

// read calls f with the record of an object, nil when there is none, under the
// lock: f must be short and keep nothing.
func (v *view) read(n name, f func(*record)) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	f(v.records[n])
}

// change is read for an f that writes to the record.
func (v *view) change(n name, f func(*record)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f(v.records[n])
}

// resolved reports whether the resource of the kind is known.
func (v *view) resolved() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.mapping != nil
}

// kind returns the kind as it is watched.
func (v *view) kind() schema.GroupVersionKind {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.mapping.GroupVersionKind
}

// plural returns <plural>.<group>, the name of the kind's definition if it has one.
func (v *view) plural() string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.mapping == nil {
		return ""
	}
	return v.mapping.Resource.Resource + "." + v.mapping.Resource.Group
}

func (v *view) status() (synced bool, err error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.synced, v.failure()
}

// failure joins the errors of the sources.
func (v *view) failure() error {
	var errs []error
	for _, source := range slices.Sorted(maps.Keys(v.errs)) {
		errs = append(errs, v.errs[source])
	}
	return errors.Join(errs...)
}

func (v *view) setErr(source string, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err == nil {
		delete(v.errs, source)
		return
	}
	if v.errs == nil {
		v.errs = map[string]error{}
	}
	v.errs[source] = err
}

// Add implements cache.ReflectorStore.
func (v *view) Add(object any) error { return v.Update(object) }

// Update implements cache.ReflectorStore.
func (v *view) Update(object any) error {
	m, err := metadata(object)
	if err != nil {
		return err
	}
	n := name{m.Namespace, m.Name}
	v.mu.Lock()
	old := v.records[n]
	word := newRecord(m, v.owner)
	r, newer := v.merge(n, word)
	if word.version >= r.version {
		r.written = false // the watch has caught up
	}
	touched := newer && v.synced && v.touched(n, old, r) && v.wake(n)
	if newer && v.awaited[n] {
		delete(v.awaited, n)
		touched = true
	}
	v.mu.Unlock()
	v.announce(n, touched)
	return nil
}

func (v *view) announce(n name, touched bool) {
	if touched {
		v.drift(n)
	}
	if v.changed != nil {
		v.changed(n)
	}
}

// Delete implements cache.ReflectorStore.
func (v *view) Delete(object any) error {
	m, err := metadata(object)
	if err != nil {
		return err
	}
	n := name{m.Namespace, m.Name}
	v.mu.Lock()
	old := v.records[n]
	// An object that left the selector is deleted, too, for a watch. What we
	// know to be newer, or a successor of that name, stays.
	gone := old != nil && old.uid == packUID(m.UID) && old.version <= parseVersion(m.ResourceVersion)
	if gone {
		delete(v.records, n)
	}
	w := v.writing[n]
	if w != nil {
		w.deleted = string(m.UID)
	}
	touched := gone && v.synced && !old.pruned && w == nil && v.wake(n)
	v.mu.Unlock()
	v.announce(n, touched)
	return nil
}

// Replace implements cache.ReflectorStore: the result of a list of everything.
func (v *view) Replace(objects []any, version string) error { return v.replace("", objects, version) }

// replace takes the result of a list of one source.
func (v *view) replace(source string, objects []any, version string) error {
	records := make(map[name]*record, len(objects))
	for _, object := range objects {
		m, err := metadata(object)
		if err != nil {
			return err
		}
		records[nameOf(m.Namespace, m.Name)] = newRecord(m, v.owner)
	}
	at := parseVersion(version)
	var touched []name
	v.mu.Lock()
	old, relist := v.records, v.listed[source]
	for _, r := range records {
		v.managed = v.managed || !r.bare
	}
	for n, known := range old {
		r := records[n]
		switch {
		case source != "" && n.namespace != source:
			records[n] = known
		case known.written && known.version > at:
			// Written by us after the list was taken. Only once: a server that was
			// restored counts from a lower version, and what it says then holds.
			known.written = false
			records[n] = known
		case r == nil:
			if relist && !known.pruned && v.wake(n) {
				touched = append(touched, n)
			}
		default:
			r.succeed(known)
		}
	}
	v.records = records
	known := v.list(source)
	if relist {
		for n, r := range records {
			if v.touched(n, old[n], r) && v.wake(n) {
				touched = append(touched, n)
			}
		}
		for n := range v.awaited {
			touched = append(touched, n)
		}
		v.awaited = nil
	}
	v.mu.Unlock()
	for _, n := range touched {
		v.drift(n)
	}
	if v.changed != nil {
		for _, object := range objects {
			m, _ := metadata(object)
			v.changed(name{m.Namespace, m.Name})
		}
	}
	if known && v.known != nil {
		v.known()
	}
	return nil
}

// list notes that a source was listed, and reports whether the view has become
// complete by that.
func (v *view) list(source string) bool {
	if v.listed == nil {
		v.listed = map[string]bool{}
	}
	v.listed[source] = true
	delete(v.errs, source)
	before := v.synced
	v.synced = len(v.sources) == 0 || len(v.listed) == len(v.sources)
	return v.synced && !before
}

// Resync implements cache.ReflectorStore. There is nothing to do.
func (v *view) Resync() error { return nil }

// wrote takes the server's answer to our apply of the object.
func (v *view) wrote(m *metav1.PartialObjectMetadata, hash diff.Sum) {
	n := name{m.Namespace, m.Name}
	answer := newRecord(m, v.owner)
	applied := answer.observed
	v.mu.Lock()
	defer v.mu.Unlock()
	if w := v.writing[n]; w != nil && w.deleted == answer.uid.String() {
		return // it is gone already
	}
	r, newer := v.merge(n, answer)
	if newer {
		r.written = true
	}
	if r.uid == answer.uid {
		// The view may be ahead of the answer: then what it has observed since
		// differs from what was applied, and stands as a foreign change.
		r.remember(hash)
		r.applied = applied
	}
}

// remember takes what is observed of an object, if it still is what was seen, as
// the answer to an apply of the hash.
func (v *view) remember(n name, seen, hash diff.Sum) (held bool) {
	v.change(n, func(r *record) {
		if held = r != nil && r.observed == seen; held {
			r.remember(hash)
		}
	})
	return held
}

// await makes the next change of an object start a pass, unless it already is in
// another version.
func (v *view) await(n name, version uint64) {
	v.mu.Lock()
	r := v.records[n]
	late := r != nil && r.version > version
	if !late {
		if v.awaited == nil {
			v.awaited = map[name]bool{}
		}
		v.awaited[n] = true
	}
	v.mu.Unlock()
	if late {
		v.drift(n)
	}
}

// began and ended surround a write of ours. A change that arrives in between
// may be our own, so it is judged at the end, when the answer is known.
func (v *view) began(n name) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.writing == nil {
		v.writing = map[name]*writing{}
	}
	if v.writing[n] == nil {
		v.writing[n] = &writing{}
	}
	v.writing[n].count++
}

// ended says whether the write was a deletion, which explains an absence.
func (v *view) ended(n name, deletion bool) {
	v.mu.Lock()
	w := v.writing[n]
	if w.count--; w.count == 0 {
		delete(v.writing, n)
	}
	r := v.records[n]
	touched := (r != nil && !r.unknown() && v.touched(n, nil, r) ||
		r == nil && w.deleted != "" && !deletion) && v.wake(n)
	v.mu.Unlock()
	if touched {
		v.drift(n)
	}
}

// merge stores a record unless a newer state of the object is known, and
// returns the one that holds.
func (v *view) merge(n name, r *record) (holds *record, newer bool) {
	old := v.records[n]
	if old != nil && r.version != 0 && r.version <= old.version {
		return old, false
	}
	r.succeed(old)
	v.managed = v.managed || !r.bare
	if v.records == nil {
		v.records = map[name]*record{}
	}
	if old == nil {
		n = nameOf(n.namespace, n.name)
	}
	v.records[n] = r
	return r, true
}

// touched reports whether an object that was old (nil: not known) and now is r
// deserves an early pass: what we own of it was changed, or it appeared, and not
// by us.
func (v *view) touched(n name, old, r *record) bool {
	news := old == nil || old.uid != r.uid || old.observed != r.observed
	return news && r.foreign() && v.writing[n] == nil && !r.deleting && !r.pruned
}

// wake reports whether a change to the object may start a pass, and counts it.
func (v *view) wake(n name) bool {
	if v.wakes == nil {
		v.wakes = wakes{}
	}
	return v.wakes.allow(n, time.Now())
}

func metadata(object any) (*metav1.PartialObjectMetadata, error) {
	m, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return nil, fmt.Errorf("apply: the watch delivered a %T; want *metav1.PartialObjectMetadata", object)
	}
	return m, nil
}
