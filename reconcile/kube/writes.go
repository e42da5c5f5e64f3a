package kube

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Wrote tells that object, of the Controller's kind, is as the server answered
// to a write of ours: its key is not reconciled again before the watch has come
// to that resourceVersion, so that no pass decides on what is known to be old.
// Events meanwhile lead to one pass after that. Call it in the pass that wrote.
//
// After WatchLag the key is reconciled with what the cache holds, which is
// logged: a watch that is broken for that long does not park the key for ever.
// A resourceVersion that is no number, or that the watch has passed already,
// holds nothing.
func (c *Controller[T]) Wrote(object metav1.Object) {
	c.WroteChild(KeyOf(object), c.Kind.Resource, object)
}

// WroteChild is [Controller.Wrote] for an object of another kind of the
// Controller, owned or referenced: key is not reconciled again before the watch
// of that kind has come to it. So a child with a name made up by the server is
// not created a second time.
//
// An object of a kind or namespace that is not watched holds nothing, which is
// logged. One that a selector leaves out is waited for in vain, until the watch
// tells how far it is without it (an API server does so about once a minute) or
// WatchLag is over.
//
// What is not told here is not waited for: a write whose answer was lost, say.
// Names that follow from the owner, as [Name] makes them, are safe against that
// too.
func (c *Controller[T]) WroteChild(key types.NamespacedName, resource schema.GroupVersionResource, child metav1.Object) {
	if c.prepare() != nil {
		return
	}
	k := c.caches.kind(resource)
	if k == nil || k.kind.Namespace != "" && k.kind.Namespace != child.GetNamespace() {
		c.logger().Warn("written object is not watched", slog.String("controller", c.name()),
			slog.Any("key", key), slog.String("kind", resource.GroupResource().String()), slog.Any("object", KeyOf(child)))
		return
	}
	k.expect(key, parseVersion(child.GetResourceVersion()), time.Now())
}

// pendingWrites are those that the watches have not shown yet, by the key that waits
// for them. The lock of caches guards them.
type pendingWrites struct {
	expected map[types.NamespacedName]*expected
	skipped  map[types.NamespacedName]bool // the pass that runs is none
}

// expected is what one key waits for.
type expected struct {
	versions map[*kindCache]uint64
	until    time.Time
	asked    bool // a pass was due meanwhile
}

// expect makes key wait until the watch has come to version.
func (k *kindCache) expect(key types.NamespacedName, version uint64, now time.Time) {
	k.all.mu.Lock()
	defer k.all.mu.Unlock()
	if version <= k.version {
		return
	}
	if k.all.writes.expected == nil {
		k.all.writes.expected = map[types.NamespacedName]*expected{}
	}
	e := k.all.writes.expected[key]
	if e == nil {
		e = &expected{versions: map[*kindCache]uint64{}}
		k.all.writes.expected[key] = e
	}
	e.until = now.Add(k.all.lag)
	e.versions[k] = max(e.versions[k], version)
}

// seen drops what the watch of k has shown, and returns the keys that wait for
// nothing more and have a pass due. The lock is held.
func (w *pendingWrites) seen(k *kindCache, version uint64) []types.NamespacedName {
	var released []types.NamespacedName
	for key, e := range w.expected {
		if wanted, ok := e.versions[k]; !ok || wanted > version {
			continue
		}
		delete(e.versions, k)
		if len(e.versions) == 0 {
			delete(w.expected, key)
			if e.asked {
				released = append(released, key)
			}
		}
	}
	slices.SortFunc(released, compareKeys)
	return released
}

// postpone returns how long a pass for key has to wait at most, zero if not at
// all, and then the resources whose watch is overdue.
func (c *caches) postpone(key types.NamespacedName, now time.Time) (wait time.Duration, overdue []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.writes.expected[key]
	if e == nil {
		return 0, nil
	}
	if wait = e.until.Sub(now); wait <= 0 {
		delete(c.writes.expected, key)
		for k := range maps.Keys(e.versions) {
			overdue = append(overdue, k.kind.Resource.GroupResource().String())
		}
		slices.Sort(overdue)
		return 0, overdue
	}
	e.asked = true
	if c.writes.skipped == nil {
		c.writes.skipped = map[types.NamespacedName]bool{}
	}
	c.writes.skipped[key] = true
	return wait, nil
}

// postponed tells, once, that the pass for key was put off.
func (c *caches) postponed(key types.NamespacedName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	skipped := c.writes.skipped[key]
	delete(c.writes.skipped, key)
	return skipped
}
