package kube

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/internal/versions"
)

// watchLag is how long a key waits at most for the watch to show a write.
const watchLag = time.Minute

// Wrote delays the passes for an object until the watch has shown a write of it.
// The object is of the Controller's kind, as the server answered the write. Its key
// is not reconciled before the watch has reached its resourceVersion, so no pass
// decides on an older state. Events in between start one pass after that. Call it
// in the pass that wrote.
//
// After a minute the key is reconciled with the cached state, which is logged: a
// broken watch never delays a key longer. A resourceVersion that is not a number,
// or that the watch has already reached, causes no delay.
func (c *Controller[T]) Wrote(object metav1.Object) {
	c.WroteChild(KeyOf(object), c.Kind.Resource, object)
}

// WroteChild is [Controller.Wrote] for an object of an Owned or Referenced kind.
// key is not reconciled before the watch of that kind has reached the
// resourceVersion of child. A child with a generated name is thus not created a
// second time.
//
// A child of a kind or namespace that is not watched causes no delay, which is
// logged. A child that the selector leaves out delays the key until the watch
// reports a later resourceVersion (an API server does so about once a minute) or
// the minute is over.
//
// A write that is not passed to WroteChild causes no delay, for example one whose
// answer was lost. Names derived from the owner, as by [Name], are safe in that
// case too.
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
	k.expect(key, versions.Parse(child.GetResourceVersion()), time.Now())
}

// pendingWrites are the writes that the watches have not shown yet, by the key that
// waits for them. The lock of caches guards them.
type pendingWrites struct {
	expected map[types.NamespacedName]*expected
	skipped  map[types.NamespacedName]bool // the current pass of the key was postponed
}

// expected holds the versions that one key waits for.
type expected struct {
	versions map[*kindCache]uint64
	until    time.Time
	asked    bool // a pass was due in between
}

// expect makes key wait until the watch has reached version.
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
	e.until = now.Add(watchLag)
	e.versions[k] = max(e.versions[k], version)
}

// seen drops the writes that the watch of k has shown. It returns the keys that
// wait for no other write and have a pass due. The lock is held.
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

// postpone returns how long a pass for key has to wait at most. If it is zero, it
// also returns the resources whose watch is overdue.
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

// postponed reports, once, whether the pass for key was postponed.
func (c *caches) postponed(key types.NamespacedName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	skipped := c.writes.skipped[key]
	delete(c.writes.skipped, key)
	return skipped
}
