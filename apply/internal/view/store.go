package view

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/internal/kubewatch"
	"github.com/seed-9e1ffd66/trueup/internal/versions"
)

// sink receives the lists and watch events of one source: of one namespace, or of all.
type sink struct {
	kind      *Kind
	namespace string
}

// Sink receives the metadata from lists and watches of a namespace, or of the whole
// cluster if it is empty.
func (k *Kind) Sink(namespace string) kubewatch.Sink { return sink{k, namespace} }

// Put implements kubewatch.Sink.
func (s sink) Put(object any) error {
	m, err := metadata(object)
	if err != nil {
		return err
	}
	s.kind.update(m)
	return nil
}

// Drop implements kubewatch.Sink.
func (s sink) Drop(object any) error {
	m, err := metadata(object)
	if err != nil {
		return err
	}
	s.kind.remove(m)
	return nil
}

// Replace implements kubewatch.Sink.
func (s sink) Replace(objects []any, version string) error {
	listed := make([]*metav1.PartialObjectMetadata, 0, len(objects))
	for _, object := range objects {
		m, err := metadata(object)
		if err != nil {
			return err
		}
		listed = append(listed, m)
	}
	// A streamed list is unordered. The records are allocated in the order of a set's items, so that a
	// pass over all of them reads memory sequentially.
	slices.SortFunc(listed, func(a, b *metav1.PartialObjectMetadata) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	s.kind.replace(s.namespace, listed, version)
	return nil
}

// Reached implements kubewatch.Sink. There is nothing to do.
func (s sink) Reached(string) {}

// watched calls the hook.
func (k *Kind) watched(err error) {
	if k.hooks.Watched != nil {
		k.hooks.Watched(err)
	}
}

func metadata(object any) (*metav1.PartialObjectMetadata, error) {
	m, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return nil, fmt.Errorf("apply: the watch delivered a %T; want *metav1.PartialObjectMetadata", object)
	}
	return m, nil
}

// update takes an object that the watch shows.
func (k *Kind) update(m *metav1.PartialObjectMetadata) {
	n := NameOf(m.Namespace, m.Name)
	shown := newRecord(m, k.owner)
	k.mu.Lock()
	old := k.records[n]
	r, newer := k.merge(n, shown, m.Labels[k.owner.PartLabel])
	late := shown.version < r.version // than the answer to our own write
	if !late {
		r.written = false // the watch has caught up
	}
	touched := newer && k.state == Served && k.touched(n, old, r) && k.brake.allow(n, time.Now())
	found, changed := Object{Name: n, Record: *r}, newer
	var waiting map[any]func()
	if newer {
		waiting = k.awaited[n]
		delete(k.awaited, n)
		if w := k.writing[n]; w != nil {
			w.shown = append(w.shown, shown.version)
			changed = false // it may be our own
		}
	}
	k.mu.Unlock()
	k.announce(found, touched, changed, waiting)
	if !late {
		k.seen(m)
	}
}

// remove handles an object that the watch shows as deleted. It shows one that has lost
// a label of the owner so, too.
func (k *Kind) remove(m *metav1.PartialObjectMetadata) {
	n := NameOf(m.Namespace, m.Name)
	k.mu.Lock()
	old := k.records[n]
	// A newer state, or a newer object of that name, stays.
	gone := old != nil && old.uid == packUID(m.UID) && old.version <= versions.Parse(m.ResourceVersion)
	found := Object{Name: n, Gone: true}
	w := k.writing[n]
	touched := false
	var waiting map[any]func()
	if gone {
		found.Record = *old
		k.drop(n, old)
		waiting = k.awaited[n]
		delete(k.awaited, n)
		if !old.pruned {
			k.lose(n, loss{m.ResourceVersion, old.uid, time.Now()})
		}
		touched = k.state == Served && !old.pruned && w == nil && k.brake.allow(n, time.Now())
	}
	if w != nil {
		w.deleted, w.last = string(m.UID), found.Record
	}
	k.mu.Unlock()
	if gone && !found.Record.pruned && k.hooks.Removed != nil {
		k.hooks.Removed(m, &found.Record)
	}
	k.announce(found, touched, gone, waiting)
	if gone || old == nil {
		k.seen(m)
	}
}

// replace takes the result of a list of one source.
func (k *Kind) replace(source string, objects []*metav1.PartialObjectMetadata, version string) {
	at, now := versions.Parse(version), time.Now()
	for _, m := range objects {
		if !k.overwrote(NameOf(m.Namespace, m.Name), at) {
			k.seen(m) // before the kind counts as synced
		}
	}
	// Allocate lasting data apart from the garbage of decoding: one small text among
	// the garbage would hold all the memory around it.
	read, parents := make([]Record, len(objects)), make([]unique.Handle[string], len(objects))
	for i, m := range objects {
		parents[i] = parentOf(m)
	}
	for i, m := range objects {
		read[i] = *newRecord(m, k.owner)
	}
	runtime.KeepAlive(parents)
	var drifted, changed []Object
	var waiting []func()
	k.mu.Lock()
	relist := k.listed[source]
	listed := make(map[Name]bool, len(objects))
	if len(k.records) == 0 {
		k.records = make(map[Name]*Record, len(objects))
		k.parts.reserve(objects, k.owner.PartLabel)
	}
	for i, m := range objects {
		n := NameOf(m.Namespace, strings.Clone(m.Name))
		listed[n] = true
		old := k.records[n]
		if old != nil && old.written && old.version > at {
			old.written = false // as below
			continue
		}
		r := read[i].clone()
		r.succeed(old)
		// The list is older than the deletion that we have asked for, or a restored backup
		// has the object again. A second deletion of the UID does no harm.
		r.pruned = false
		k.put(n, old, r, m.Labels[k.owner.PartLabel])
		if !relist || old != nil && old.uid == r.uid && old.version == r.version {
			continue
		}
		changed = append(changed, Object{Name: n, Record: *r})
		if k.touched(n, old, r) && k.brake.allow(n, now) {
			drifted = append(drifted, Object{Name: n, Record: *r})
		}
	}
	for n, old := range k.records {
		switch {
		case listed[n], source != "" && n.Namespace() != source:
		case old.written && old.version > at:
			// Written by us after the list was taken. Only once: a server that was
			// restored counts from a lower version, and its answer then holds.
			old.written = false
		default:
			gone := Object{Name: n, Record: *old, Gone: true}
			k.drop(n, old)
			changed = append(changed, gone)
			if relist && !old.pruned && k.brake.allow(n, now) {
				drifted = append(drifted, gone)
			}
		}
	}
	k.lost = nil // their versions no longer count
	complete := k.list(source)
	if relist || complete {
		waiting = k.allAwaited()
	}
	k.mu.Unlock()
	for _, o := range drifted {
		k.announce(o, true, false, nil)
	}
	for _, o := range changed {
		k.announce(o, false, true, nil)
	}
	for _, wake := range waiting {
		wake()
	}
	if complete && k.hooks.Synced != nil {
		k.hooks.Synced()
	}
}

// announce calls the hooks. The lock is not held.
func (k *Kind) announce(o Object, touched, changed bool, waiting map[any]func()) {
	if touched && k.hooks.Drift != nil {
		k.hooks.Drift(o)
	}
	if changed && k.hooks.Change != nil {
		k.hooks.Change(o)
	}
	for _, wake := range waiting {
		wake()
	}
}

func (k *Kind) seen(m *metav1.PartialObjectMetadata) {
	if k.hooks.Seen != nil {
		k.hooks.Seen(m)
	}
}

// overwrote reports whether an object was written by us after the version at.
func (k *Kind) overwrote(n Name, at uint64) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	old := k.records[n]
	return old != nil && old.written && old.version > at
}

// list records that a source was listed, and reports whether that has made the view
// complete.
func (k *Kind) list(source string) bool {
	if k.listed == nil {
		k.listed = map[string]bool{}
	}
	k.listed[source] = true
	delete(k.errs, source)
	before := k.state
	k.state = Unknown
	if len(k.sources) == 0 || len(k.listed) == len(k.sources) {
		k.state = Served
		k.markAttempted()
		select {
		case <-k.complete:
		default:
			close(k.complete)
		}
	}
	return k.state == Served && before != Served
}

// merge stores a record unless there is a newer one of the object, and returns the
// record that counts.
func (k *Kind) merge(n Name, r *Record, part string) (holds *Record, newer bool) {
	old := k.records[n]
	if old != nil && r.version != 0 && r.version <= old.version {
		return old, false
	}
	r.succeed(old)
	k.put(n, old, r, part)
	delete(k.lost, n)
	return r, true
}

// put makes r the record of the object.
func (k *Kind) put(n Name, old, r *Record, part string) {
	k.managed = k.managed || !r.Bare()
	if (part == "" || r.Strayed()) && old != nil && old.uid == r.uid {
		// Another manager took the label off, or changed it; a repair puts it back.
		part = old.Part()
		r.traits = r.traits&^strayed | old.traits&strayed
	}
	switch {
	case old == nil:
		k.parts.add(part, n, r)
	case old.Part() == part:
		k.parts.replace(old, r)
	default:
		k.parts.remove(old)
		k.parts.add(part, n, r)
	}
	if old != nil {
		old.traits |= replaced
	}
	k.records[n] = r
}

// drop removes the record of the object. Part remains readable.
func (k *Kind) drop(n Name, r *Record) {
	delete(k.records, n)
	r.traits |= replaced
	k.parts.remove(r)
}

// loss is the state in which others deleted or unlabelled an object.
type loss struct {
	version string
	uid     uid
	at      time.Time
}

// lossAge is how long the version of a loss is remembered. It only saves requests.
const lossAge = 10 * time.Minute

func (k *Kind) lose(n Name, how loss) {
	if k.lost == nil {
		k.lost = map[Name]loss{}
	}
	const much = 1024
	if len(k.lost) >= much {
		for other, l := range k.lost {
			if how.at.Sub(l.at) >= lossAge {
				delete(k.lost, other)
			}
		}
	}
	k.lost[n] = how
}

// touched reports whether an object that was old (nil: unseen) and now is r needs a
// repair: another manager has changed a field of ours, or the object has appeared.
func (k *Kind) touched(n Name, old, r *Record) bool {
	news := old == nil || old.uid != r.uid || old.observed != r.observed
	return news && r.Foreign() && k.writing[n] == nil && !r.Deleting() && !r.pruned
}
