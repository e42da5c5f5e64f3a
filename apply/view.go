package apply

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

	mu      sync.RWMutex
	records map[name]*record
	writing map[name]*writing
	wakes   wakes
	synced  bool
	err     error // the last failure to list or watch; nil once it works again
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

func (v *view) status() (synced bool, err error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.synced, v.err
}

func (v *view) setErr(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.err = err
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
	v.mu.Unlock()
	if touched {
		v.drift(n)
	}
	return nil
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
	gone := old != nil && old.uid == string(m.UID) && old.version <= parseVersion(m.ResourceVersion)
	if gone {
		delete(v.records, n)
	}
	w := v.writing[n]
	if w != nil {
		w.deleted = string(m.UID)
	}
	touched := gone && v.synced && !old.pruned && w == nil && v.wake(n)
	v.mu.Unlock()
	if touched {
		v.drift(n)
	}
	return nil
}

// Replace implements cache.ReflectorStore: the result of a list.
func (v *view) Replace(objects []any, version string) error {
	records := make(map[name]*record, len(objects))
	for _, object := range objects {
		m, err := metadata(object)
		if err != nil {
			return err
		}
		records[name{m.Namespace, m.Name}] = newRecord(m, v.owner)
	}
	at := parseVersion(version)
	var touched []name
	v.mu.Lock()
	old, relist := v.records, v.synced
	v.records, v.synced, v.err = records, true, nil
	for n, known := range old {
		r := records[n]
		switch {
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
	if relist {
		for n, r := range records {
			if v.touched(n, old[n], r) && v.wake(n) {
				touched = append(touched, n)
			}
		}
	}
	v.mu.Unlock()
	for _, n := range touched {
		v.drift(n)
	}
	if !relist && v.known != nil {
		v.known()
	}
	return nil
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
	if w := v.writing[n]; w != nil && w.deleted == answer.uid {
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
	if v.records == nil {
		v.records = map[name]*record{}
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
