package apply

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
)

// watched is one kind of a Live. Its view never changes; the lock of the Live guards
// the rest.
type watched struct {
	view    *view.Kind
	version string // version that is watched; empty: the preferred one
	fixed   bool   // watched as long as the Live runs
	wanted  int    // number of parts that state it
	uses    int    // calls under way that rely on it
	stop    func() // ends the watch; nil: it is not started
}

// add starts to watch a kind. The lock is held, except before Start.
func (l *Live) add(kind schema.GroupKind, version string) *watched {
	hooks := view.Hooks{
		Drift:  func(o view.Object) { l.drifted(kind, o) },
		Change: func(o view.Object) { l.changed(kind, o) },
		Synced: func() { l.synced(kind) },

		Turns: view.Turns{Interval: cmp.Or(l.ReapplyInterval, 24*time.Hour), Start: l.prepared},
	}
	if l.OnWatch != nil {
		hooks.Watched = func(err error) { l.OnWatch(kind, err) }
	}
	switch {
	case isDefinition(kind):
		hooks.Seen = l.defined
	case kind == l.Owner.ApplySet.GroupKind():
		hooks.Seen = l.parentSeen
	case kind == jobKind:
		hooks.Removed = func(m *metav1.PartialObjectMetadata, last *view.Record) { l.finished.note(m, last, time.Now()) }
	}
	w := &watched{view: view.New(kind, l.identity, hooks), version: version}
	l.kinds[kind] = w
	l.sort()
	select {
	case l.added <- struct{}{}:
	default:
	}
	return w
}

// setRunning records whether Start is running and reports whether that changed.
func (l *Live) setRunning(running bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running == running {
		return false
	}
	l.running = running
	for kind, w := range l.kinds {
		w.stop = nil
		if running && w.view.Ever() { // left from an earlier run, stale
			next := l.add(kind, w.version)
			next.fixed, next.wanted, next.uses = w.fixed, w.wanted, w.uses
		}
	}
	return true
}

// unstarted returns the kinds whose watches must be started.
func (l *Live) unstarted() []*watched {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var found []*watched
	for _, w := range l.kinds {
		if w.stop == nil {
			found = append(found, w)
		}
	}
	return found
}

func (l *Live) started(w *watched, stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.stop = stop
}

// view returns the view of a kind, nil if it is not watched.
func (l *Live) view(kind schema.GroupKind) *view.Kind {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if w := l.kinds[kind]; w != nil {
		return w.view
	}
	return nil
}

// views returns the views of all kinds, in the order of group and kind.
func (l *Live) views() []*view.Kind {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.sorted
}

// sort rebuilds the sorted list of the views. The lock is held.
func (l *Live) sort() {
	sorted := make([]*view.Kind, 0, len(l.kinds))
	for _, w := range l.kinds {
		sorted = append(sorted, w.view)
	}
	slices.SortFunc(sorted, func(a, b *view.Kind) int {
		return cmp.Or(cmp.Compare(a.GroupKind().Group, b.GroupKind().Group), cmp.Compare(a.GroupKind().Kind, b.GroupKind().Kind))
	})
	l.sorted = sorted // never changed; may be read without the lock
}

// use returns the views of the kinds of a set. They are watched until done is called,
// and beyond that while the set is the last one of its part.
func (l *Live) use(set *Set) (views []*view.Kind, done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	views = make([]*view.Kind, len(set.kinds))
	for i, kind := range set.kinds {
		w := l.kinds[kind]
		if w == nil {
			w = l.add(kind, set.version(kind))
		}
		w.uses++
		views[i] = w.view
	}
	l.want(set.Part(), set.kinds)
	return views, func() { l.release(views) }
}

// useAll is use for all watched kinds and for the others that are named. It waits until
// all are synced, because the ApplySet's parent may add kinds.
func (l *Live) useAll(ctx context.Context, others ...schema.GroupKind) (views []*view.Kind, done func()) {
	for {
		views, done = l.useNow(others...)
		waitReady(ctx, views)
		if len(l.views()) <= len(views) || ctx.Err() != nil {
			return views, done
		}
		done()
	}
}

func (l *Live) useNow(others ...schema.GroupKind) (views []*view.Kind, done func()) {
	l.mu.Lock()
	for _, kind := range others {
		if l.kinds[kind] == nil {
			l.add(kind, "")
		}
	}
	views = l.sorted
	for _, v := range views {
		l.kinds[v.GroupKind()].uses++
	}
	l.mu.Unlock()
	return views, func() { l.release(views) }
}

// release ends a use of kinds, and the watches that are no longer needed.
func (l *Live) release(views []*view.Kind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, v := range views {
		if w := l.kinds[v.GroupKind()]; w != nil {
			w.uses--
			l.releaseKind(v.GroupKind(), w)
		}
	}
}

// want records the kinds that the newest set of a part states. The lock is held.
func (l *Live) want(part string, kinds []schema.GroupKind) {
	last := l.wants[part]
	before := last.kinds
	if len(before) == len(kinds) && (len(kinds) == 0 || &before[0] == &kinds[0]) {
		return // the same set
	}
	for _, kind := range kinds {
		l.kinds[kind].wanted++
	}
	for _, kind := range before {
		if w := l.kinds[kind]; w != nil {
			w.wanted--
			l.releaseKind(kind, w)
		}
	}
	if len(kinds) == 0 {
		delete(l.wants, part)
		return
	}
	last.kinds = kinds
	l.wants[part] = last
}

// want is what is remembered of the sets of a part.
type want struct {
	kinds   []schema.GroupKind // of the last one
	applied uint64             // the number of the last one that was applied
	ids     map[ID]membership  // what that one states
}

// lead makes a set the newest that was applied of its part.
func (l *Live) lead(set *Set) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, ok := l.wants[set.Part()]
	if !ok || last.applied != 0 && set.accepted.Load().number == last.applied {
		return
	}
	l.applied++
	last.applied, last.ids = l.applied, set.ids
	l.wants[set.Part()] = last
	set.accepted.Store(&acceptance{l, l.applied})
}

// overtaken returns an error if another set was applied after this one and states an
// object that the plan deletes. A set that was never applied is the newest.
func (l *Live) overtaken(set *Set, plan *prunePlan) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	last := l.wants[set.Part()]
	if number := set.accepted.Load().number; number == 0 || number >= last.applied {
		return nil
	}
	for i := range plan.due {
		if id := plan.due[i].ID; last.ids[id] != absent {
			return fmt.Errorf("%w: another set was applied after this one, and states %s", ErrStalePlan, id)
		}
	}
	return nil
}

// releaseKind ends the watch of a kind that is no longer needed: no set states it, and
// we have no object of it. The lock is held.
func (l *Live) releaseKind(kind schema.GroupKind, w *watched) {
	if w.fixed || w.wanted > 0 || w.uses > 0 || w.view.Len() > 0 {
		return
	}
	// A kind that cannot be listed is kept if it was ever listed, or may have members.
	if w.view.Unseen() != nil && (w.view.Ever() || l.applySet.stated.kinds[kind.String()]) {
		return
	}
	if w.stop != nil {
		w.stop()
	}
	delete(l.kinds, kind)
	l.sort()
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

func (l *Live) drifted(kind schema.GroupKind, o view.Object) {
	if l.OnDrift != nil {
		l.OnDrift(l.observed(kind, o))
	}
}

func (l *Live) observed(kind schema.GroupKind, o view.Object) Observed {
	found := observe(kind, o.Name, &o.Record, l.identity)
	found.Gone = o.Gone
	return found
}

func (l *Live) changed(kind schema.GroupKind, o view.Object) {
	if l.OnChange != nil {
		l.OnChange(l.observed(kind, o))
	}
	if cures(kind) {
		l.retryRejected(kind, o.Namespace(), o.Name.Name())
	}
	if o.Gone {
		l.statuses.forget(ID{Group: kind.Group, Kind: kind.Kind, Namespace: o.Namespace(), Name: o.Name.Name()})
		l.mu.Lock()
		defer l.mu.Unlock()
		if w := l.kinds[kind]; w != nil {
			l.releaseKind(kind, w)
		}
	}
}

// retryRejected allows another attempt on rejected objects, because an object has
// changed that may have caused the rejection.
func (l *Live) retryRejected(kind schema.GroupKind, namespace, name string) {
	if isNamespace(kind) {
		namespace = name
	}
	for _, o := range l.rejections.cure(namespace) {
		if l.OnDrift != nil {
			o.owner = l.identity
			l.OnDrift(o)
		}
	}
}

func (l *Live) synced(kind schema.GroupKind) {
	if l.OnSynced != nil {
		l.OnSynced(kind)
	}
}

// defined wakes the views that wait for a definition, when one changes. Its name
// is <plural>.<group>.
func (l *Live) defined(m *metav1.PartialObjectMetadata) {
	for _, v := range l.views() {
		if synced, _ := v.Status(); !synced && strings.HasSuffix(m.Name, "."+v.GroupKind().Group) {
			v.Nudge()
		}
	}
}

// parentSeen reads the kinds of the ApplySet's members, and watches them: some may no
// longer be in any set.
func (l *Live) parentSeen(m *metav1.PartialObjectMetadata) {
	if m.Name != l.Owner.ApplySet.Name || m.Namespace != l.Owner.ApplySet.Namespace {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.applySet.stated = membersOf(m.Annotations)
	l.applySet.traced = l.applySet.traced || !l.applySet.absent
	l.watchStated()
}

// watchStated watches the kinds that the parent lists. The lock is held.
func (l *Live) watchStated() {
	for text := range l.applySet.stated.kinds {
		kind := schema.ParseGroupKind(text)
		if l.kinds[kind] == nil {
			l.add(kind, "")
		}
	}
}
