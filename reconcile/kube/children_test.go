package kube_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// childView is a live view of ConfigMaps beside a Controller. It reports the
// owner of each one that it sees change or go, as a UID.
type childView struct {
	client    dynamic.Interface
	namespace string
	report    func(owners ...types.UID)

	mu      sync.Mutex
	objects map[types.NamespacedName]*unstructured.Unstructured
}

func viewChildren(client dynamic.Interface, namespace string, report func(owners ...types.UID)) *childView {
	return &childView{client: client, namespace: namespace, report: report, objects: map[types.NamespacedName]*unstructured.Unstructured{}}
}

// Start implements reconcile.Starter.
func (v *childView) Start(ctx context.Context) error {
	ctx = logr.NewContext(ctx, logr.Discard())
	resource := v.client.Resource(maps1).Namespace(v.namespace)
	source := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.ResourceVersion = ""
			return resource.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return resource.Watch(ctx, options)
		},
	}, v.client)
	reflector := cache.NewReflectorWithOptions(source, &unstructured.Unstructured{}, v, cache.ReflectorOptions{})
	for ctx.Err() == nil {
		_ = reflector.ListAndWatchWithContext(ctx)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	return nil
}

// set stores the state of an object, nil when it is gone, and reports its owners
// before and after.
func (v *childView) set(key types.NamespacedName, state *unstructured.Unstructured) {
	v.mu.Lock()
	old := v.objects[key]
	if v.objects[key] = state; state == nil {
		delete(v.objects, key)
	}
	v.mu.Unlock()
	var owners []types.UID
	for _, each := range []*unstructured.Unstructured{old, state} {
		if each != nil {
			if owner := metav1.GetControllerOf(each); owner != nil {
				owners = append(owners, owner.UID)
			}
		}
	}
	v.report(owners...) // in one call: between two a pass could begin
}

// Add implements cache.ReflectorStore.
func (v *childView) Add(object any) error { return v.Update(object) }

// Update implements cache.ReflectorStore.
func (v *childView) Update(object any) error {
	state := object.(*unstructured.Unstructured)
	v.set(kube.KeyOf(state), state)
	return nil
}

// Delete implements cache.ReflectorStore.
func (v *childView) Delete(object any) error {
	v.set(kube.KeyOf(object.(metav1.Object)), nil)
	return nil
}

// Replace implements cache.ReflectorStore.
func (v *childView) Replace(list []any, _ string) error {
	v.mu.Lock()
	gone := maps.Clone(v.objects)
	v.mu.Unlock()
	for _, each := range list {
		state := each.(*unstructured.Unstructured)
		delete(gone, kube.KeyOf(state))
		v.set(kube.KeyOf(state), state)
	}
	for key := range gone {
		v.set(key, nil)
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (v *childView) Resync() error { return nil }

// children returns the names and versions of the children of owner, in order.
func (v *childView) children(owner types.UID) []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var list []string
	for _, each := range v.objects {
		if metav1.IsControlledBy(each, &metav1.ObjectMeta{UID: owner}) {
			list = append(list, each.GetName()+" "+each.GetResourceVersion())
		}
	}
	slices.Sort(list)
	return list
}

func TestAUIDWakesTheObjectThatHasIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		a := w.put(widgets, newWidget("a", 1))
		b := w.put(widgets, newWidget("b", 2))
		c, p := watching(w)
		c.AddUID(a.GetUID(), "none")
		stop := run(t, c)
		synctest.Wait()
		require.Equal(t, "a 1, b 2", p.take(), "each object gets one pass, also one named before the first list")

		c.AddUID(b.GetUID(), "none", b.GetUID(), "")
		synctest.Wait()
		require.Equal(t, "b 2", p.take())
		c.AddUID()
		c.AddUID("")
		c.AddUID("none")
		synctest.Wait()
		require.Empty(t, p.take())

		w.remove(widgets, keyOf("shop", "a"))
		synctest.Wait()
		require.Equal(t, "a absent", p.take())
		c.AddUID(a.GetUID())
		synctest.Wait()
		require.Empty(t, p.take(), "it is gone, which was reported")

		successor := w.put(widgets, newWidget("a", 3))
		synctest.Wait()
		require.Equal(t, "a 3", p.take())
		c.AddUID(a.GetUID())
		synctest.Wait()
		require.Empty(t, p.take(), "the UID of a predecessor names nothing")
		c.AddUID(successor.GetUID())
		synctest.Wait()
		require.Equal(t, "a 3", p.take())

		require.NoError(t, stop())
		c.AddUID(b.GetUID())
		require.Empty(t, p.take())
		stop = run(t, c)
		synctest.Wait()
		require.Equal(t, "a 3, b 2", p.take(), "one pass each after a restart")
		require.NoError(t, stop())
	})
}

func TestAnEmptyUIDNamesNoObject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		o := w.put(widgets, newWidget("a", 1))
		o.SetUID("")
		w.mu.Lock()
		w.commit(widgets, keyOf("shop", "a"), o)
		w.mu.Unlock()
		c, p := watching(w)
		c.Owned = []kube.Kind{{Resource: maps1}}
		stop := run(t, c)
		synctest.Wait()
		require.Equal(t, "a 1", p.take())
		c.AddUID("")
		orphan := child("orphan", o)
		orphan.SetOwnerReferences(nil)
		w.put(maps1, orphan)
		synctest.Wait()
		require.Empty(t, p.take())
		require.NoError(t, stop())
	})
}

// A watch that was cut shows the old and the new object as one change.
func TestTheUIDOfAPredecessorWakesNothingWhenTheWatchMissedItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		a := w.put(widgets, newWidget("a", 1))
		c, p := watching(w)
		stop := run(t, c)
		synctest.Wait()
		w.hold(widgets, true)
		w.remove(widgets, keyOf("shop", "a"))
		successor := w.put(widgets, newWidget("a", 2))
		c.AddUID(successor.GetUID())
		synctest.Wait()
		require.Equal(t, "a 1", p.take(), "the cache does not hold it yet")
		w.cut(true)
		w.hold(widgets, false)
		time.Sleep(time.Minute)
		require.Equal(t, "a 2", p.take())
		c.AddUID(a.GetUID())
		synctest.Wait()
		require.Empty(t, p.take())
		c.AddUID(successor.GetUID())
		synctest.Wait()
		require.Equal(t, "a 2", p.take())
		require.NoError(t, stop())
	})
}

func TestAnotherViewOfTheChildrenWakesTheirOwner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		a := w.put(widgets, newWidget("a", 1))
		b := w.put(widgets, newWidget("b", 2))
		w.put(maps1, child("child-00", a))
		c, p := watching(w)
		stop := run(t, c)
		stopView := run(t, viewChildren(w, "", c.AddUID))
		synctest.Wait()
		p.take()

		w.put(maps1, child("child-01", a))
		synctest.Wait()
		require.Equal(t, "a 1", p.take(), "created")
		w.change(maps1, keyOf("shop", "child-00"), label)
		synctest.Wait()
		require.Equal(t, "a 1", p.take(), "changed")
		w.remove(maps1, keyOf("shop", "child-00"))
		synctest.Wait()
		require.Equal(t, "a 1", p.take(), "deleted")
		w.change(maps1, keyOf("shop", "child-01"), func(o *unstructured.Unstructured) {
			o.SetOwnerReferences(child("", b).GetOwnerReferences())
		})
		synctest.Wait()
		require.Equal(t, "a 1, b 2", p.take(), "it moved")
		w.remove(widgets, keyOf("shop", "b"))
		synctest.Wait()
		require.Equal(t, "b absent", p.take())
		w.remove(maps1, keyOf("shop", "child-01"))
		synctest.Wait()
		require.Empty(t, p.take(), "the owner is gone, and was reported so")
		require.Equal(t, 2, w.watches(), "each kind is watched once")
		require.NoError(t, stopView())
		require.NoError(t, stop())
	})
}

// TestNoChangeIsLostBetweenTwoViews is the random world with the children in
// another view: the last pass of each object must have seen the children that
// there are.
func TestNoChangeIsLostBetweenTwoViews(t *testing.T) {
	t.Parallel()
	for range 5 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { randomViews(t, seed) })
		})
	}
}

func randomViews(t *testing.T, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	w := newWorld()
	var mu sync.Mutex
	seen := map[types.NamespacedName][]string{}
	c := &kube.Controller[*widget]{Client: w, Kind: kube.Kind{Resource: widgets}, Workers: 3}
	view := viewChildren(w, "", c.AddUID)
	c.Reconcile = func(_ context.Context, key types.NamespacedName, o *widget) (reconcile.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		if o == nil {
			delete(seen, key)
		} else {
			seen[key] = append([]string{o.ResourceVersion}, view.children(o.UID)...)
		}
		return reconcile.Result{}, nil
	}
	stop, stopView := run(t, c), run(t, view)
	for range 1000 {
		randomEvent(w, random)
		if random.IntN(100) == 0 {
			require.NoError(t, stop())
			stop = run(t, c)
		}
		if random.IntN(4) == 0 {
			time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
		}
	}
	for _, resource := range []schema.GroupVersionResource{widgets, maps1} {
		w.fails(resource, nil)
		w.hold(resource, false)
	}
	time.Sleep(10 * time.Minute)

	want := map[types.NamespacedName][]string{}
	for _, o := range w.all(widgets) {
		parts := []string{o.GetResourceVersion()}
		for i := range 20 {
			each := w.get(maps1, keyOf("shop", fmt.Sprintf("child-%02d", i)))
			if each != nil && each.GetOwnerReferences()[0].UID == o.GetUID() {
				parts = append(parts, each.GetName()+" "+each.GetResourceVersion())
			}
		}
		want[keyOf(o.GetNamespace(), o.GetName())] = parts
	}
	mu.Lock()
	require.Empty(t, cmp.Diff(want, seen), "seed %d", seed)
	mu.Unlock()
	require.NoError(t, stopView())
	require.NoError(t, stop())
}
