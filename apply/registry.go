package apply

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply/internal/identity"
	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
)

// watched is one kind of a registry. Its view never changes; the lock of the registry
// guards the rest.
type watched struct {
	view    *view.Kind
	version string // version that is watched; empty: the preferred one
	fixed   bool   // watched as long as the Live runs
	wanted  int    // number of parts that state it
	uses    int    // calls under way that rely on it
	stop    func() // ends the watch; nil: it is not started
}

// registry has the kinds that a Live watches, for as long as a set states them, a call
// uses them, or an object of them is left. It is also where the ApplySet is remembered,
// which names kinds.
type registry struct {
	identity *identity.Identity
	// hooks returns what is called for the objects of a kind. It is called with the lock
	// held.
	hooks func(schema.GroupKind) view.Hooks

	mu       sync.RWMutex
	kinds    map[schema.GroupKind]*watched
	sorted   []*view.Kind    // of kinds, in the order of group and kind
	wants    map[string]want // of the last set of each part
	applied  uint64          // the number of the last set that was applied
	added    chan struct{}   // a kind was added
	running  bool
	applySet applySet
}

// prepare makes an empty registry ready.
func (r *registry) prepare(id *identity.Identity, hooks func(schema.GroupKind) view.Hooks) {
	r.identity, r.hooks = id, hooks
	r.kinds, r.wants, r.added = map[schema.GroupKind]*watched{}, map[string]want{}, make(chan struct{}, 1)
}

// add starts to watch a kind. The lock is held, except before Start.
func (r *registry) add(kind schema.GroupKind, version string) *watched {
	w := &watched{view: view.New(kind, r.identity, r.hooks(kind)), version: version}
	r.kinds[kind] = w
	r.sort()
	select {
	case r.added <- struct{}{}:
	default:
	}
	return w
}

// setRunning records whether Start is running and reports whether that changed.
func (r *registry) setRunning(running bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running == running {
		return false
	}
	r.running = running
	for kind, w := range r.kinds {
		w.stop = nil
		if running && w.view.Ever() { // left from an earlier run, stale
			next := r.add(kind, w.version)
			next.fixed, next.wanted, next.uses = w.fixed, w.wanted, w.uses
		}
	}
	return true
}

// unstarted returns the kinds whose watches must be started.
func (r *registry) unstarted() []*watched {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var found []*watched
	for _, w := range r.kinds {
		if w.stop == nil {
			found = append(found, w)
		}
	}
	return found
}

func (r *registry) started(w *watched, stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w.stop = stop
}

// view returns the view of a kind, nil if it is not watched.
func (r *registry) view(kind schema.GroupKind) *view.Kind {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if w := r.kinds[kind]; w != nil {
		return w.view
	}
	return nil
}

// plural returns <plural>.<group> of a kind, empty if it is not known.
func (r *registry) plural(kind schema.GroupKind) string {
	if v := r.view(kind); v != nil {
		return v.Plural()
	}
	return ""
}

// closing reports whether the deletion of a namespace of ours is accepted already.
func (r *registry) closing(namespace string) bool {
	v := r.view(schema.GroupKind{Kind: "Namespace"})
	if v == nil {
		return false
	}
	look := v.Look(view.NameOf("", namespace))
	return look.Found && (look.Record.Pruned() || look.Record.Deleting())
}

// views returns the views of all kinds, in the order of group and kind.
func (r *registry) views() []*view.Kind {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.sorted
}

// sort rebuilds the sorted list of the views. The lock is held.
func (r *registry) sort() {
	sorted := make([]*view.Kind, 0, len(r.kinds))
	for _, w := range r.kinds {
		sorted = append(sorted, w.view)
	}
	slices.SortFunc(sorted, func(a, b *view.Kind) int {
		return cmp.Or(cmp.Compare(a.GroupKind().Group, b.GroupKind().Group), cmp.Compare(a.GroupKind().Kind, b.GroupKind().Kind))
	})
	r.sorted = sorted // never changed; may be read without the lock
}

// use returns the views of the kinds of a set, which are watched in the version that is
// asked for. They are watched until done is called, and beyond that while the set is the
// last one of its part.
func (r *registry) use(part string, kinds []schema.GroupKind, version func(schema.GroupKind) string) (views []*view.Kind, done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	views = make([]*view.Kind, len(kinds))
	for i, kind := range kinds {
		w := r.kinds[kind]
		if w == nil {
			w = r.add(kind, version(kind))
		}
		w.uses++
		views[i] = w.view
	}
	r.want(part, kinds)
	return views, func() { r.release(views) }
}

// useAll is use for all watched kinds and for the others that are named. It waits until
// all are synced, because the ApplySet's parent may add kinds.
func (r *registry) useAll(ctx context.Context, others ...schema.GroupKind) (views []*view.Kind, done func()) {
	for {
		views, done = r.useNow(others...)
		waitReady(ctx, views)
		if len(r.views()) <= len(views) || ctx.Err() != nil {
			return views, done
		}
		done()
	}
}

func (r *registry) useNow(others ...schema.GroupKind) (views []*view.Kind, done func()) {
	r.mu.Lock()
	for _, kind := range others {
		if r.kinds[kind] == nil {
			r.add(kind, "")
		}
	}
	views = r.sorted
	for _, v := range views {
		r.kinds[v.GroupKind()].uses++
	}
	r.mu.Unlock()
	return views, func() { r.release(views) }
}

// release ends a use of kinds, and the watches that are no longer needed.
func (r *registry) release(views []*view.Kind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range views {
		if w := r.kinds[v.GroupKind()]; w != nil {
			w.uses--
			r.releaseKind(v.GroupKind(), w)
		}
	}
}

// want records the kinds that the newest set of a part states. The lock is held.
func (r *registry) want(part string, kinds []schema.GroupKind) {
	last := r.wants[part]
	before := last.kinds
	if len(before) == len(kinds) && (len(kinds) == 0 || &before[0] == &kinds[0]) {
		return // the same set
	}
	for _, kind := range kinds {
		r.kinds[kind].wanted++
	}
	for _, kind := range before {
		if w := r.kinds[kind]; w != nil {
			w.wanted--
			r.releaseKind(kind, w)
		}
	}
	if len(kinds) == 0 {
		delete(r.wants, part)
		return
	}
	last.kinds = kinds
	r.wants[part] = last
}

// want is what is remembered of the sets of a part.
type want struct {
	kinds   []schema.GroupKind // of the last one
	applied uint64             // the number of the last one that was applied
	ids     map[ID]membership  // what that one states
}

// lead makes a set the newest that was applied of its part, and returns the number that it
// has as such. Number is the one that it had before, 0 for none, and ids are what it
// states.
func (r *registry) lead(part string, number uint64, ids map[ID]membership) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.wants[part]
	if !ok || last.applied != 0 && number == last.applied {
		return number
	}
	r.applied++
	last.applied, last.ids = r.applied, ids
	r.wants[part] = last
	return r.applied
}

// newest returns the number of the newest set of a part that was applied, 0 for none, and
// what it states.
func (r *registry) newest(part string) (number uint64, ids map[ID]membership) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.wants[part].applied, r.wants[part].ids
}

// removed ends the watch of a kind if the object that has gone was its last.
func (r *registry) removed(kind schema.GroupKind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.kinds[kind]; w != nil {
		r.releaseKind(kind, w)
	}
}

// parentSeen takes the members that the ApplySet's parent lists. They are partial if there
// may be more.
func (r *registry) parentSeen(stated members, partial bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if partial {
		stated = stated.union(r.applySet.stated)
	}
	r.state(stated)
	r.applySet.traced = r.applySet.traced || !partial && !r.applySet.absent
	r.watchStated()
}

// state takes the members that the parent names now, and ends the watches of kinds that it does
// not name any more and that are not needed. The lock is held.
func (r *registry) state(stated members) {
	before := r.applySet.stated
	r.applySet.stated = stated
	for text := range before.kinds {
		kind := schema.ParseGroupKind(text)
		if w := r.kinds[kind]; w != nil && !stated.kinds[text] {
			r.releaseKind(kind, w)
		}
	}
}

// releaseKind ends the watch of a kind that is no longer needed: no set states it, and
// we have no object of it. The lock is held.
func (r *registry) releaseKind(kind schema.GroupKind, w *watched) {
	if w.fixed || w.wanted > 0 || w.uses > 0 || w.view.Len() > 0 {
		return
	}
	// As long as the ApplySet's parent names it, the proof that there is no object must be of now.
	if r.applySet.stated.kinds[kind.String()] {
		return
	}
	// A kind that cannot be listed is kept if it was ever listed.
	if w.view.Known().Doubt() != nil && w.view.Ever() {
		return
	}
	if w.stop != nil {
		w.stop()
	}
	delete(r.kinds, kind)
	r.sort()
}

// syncWait bounds how long a call waits for a kind whose watch has just been started.
const syncWait = 5 * time.Second

// waitReady waits until each kind is synced or has failed. Otherwise a call that adds a
// kind would find it unsynced. It waits for no kind longer than syncWait after the
// start of its watch.
func waitReady(ctx context.Context, views []*view.Kind) {
	var late <-chan time.Time
	for _, v := range views {
		done, began := v.Attempted()
		select {
		case <-done:
			continue
		default:
		}
		left := syncWait
		if !began.IsZero() {
			left -= time.Since(began)
		}
		if late == nil {
			late = time.After(max(0, left))
		}
		select {
		case <-done:
		case <-late:
			return
		case <-ctx.Done():
			return
		}
	}
}

// watchStated watches the kinds that the parent lists. The lock is held.
func (r *registry) watchStated() {
	for text := range r.applySet.stated.kinds {
		kind := schema.ParseGroupKind(text)
		if r.kinds[kind] == nil {
			r.add(kind, "")
		}
	}
}

// dropPart records that a part no longer has a set.
func (r *registry) dropPart(part string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.want(part, nil)
}
