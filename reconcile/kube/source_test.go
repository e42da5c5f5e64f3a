package kube_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// delivered is a widget as a cache of the process has it.
func delivered(name, version string, size, generation int64) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": size}}}
	o.SetNamespace("shop")
	o.SetName(name)
	o.SetUID(types.UID("uid of " + name))
	o.SetResourceVersion(version)
	o.SetGeneration(generation)
	o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "another"}})
	return o
}

// sourced gives a controller a source, whose sinks the test uses.
func sourced(c *kube.Controller[*widget]) <-chan kube.Sink {
	sinks := make(chan kube.Sink)
	c.Source = func(ctx context.Context, to kube.Sink) {
		sinks <- to
		<-ctx.Done()
	}
	return sinks
}

func TestASourceTakesThePlaceOfTheWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(widgets, newWidget("watched", 9))
		c, p := watching(w)
		c.IgnoreStatus = true
		sinks, stop := sourced(c), run(t, c)
		to := <-sinks
		to.Failed(errors.New("forbidden"))
		synctest.Wait()
		ok, err := c.Synced()
		require.False(t, ok)
		require.ErrorIs(t, err, kube.ErrNotSynced)
		require.ErrorContains(t, err, "widgets.example.com: not synced yet: forbidden")
		require.Empty(t, p.take())

		to.List([]*unstructured.Unstructured{delivered("a", "5", 1, 1), delivered("b", "3", 2, 1)})
		synctest.Wait()
		ok, err = c.Synced()
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, "a 1, b 2", p.take(), "and not what a watch would show")
		a, err := c.Get(keyOf("shop", "a"))
		require.NoError(t, err)
		require.Empty(t, a.ManagedFields)

		to.Put(delivered("a", "6", 1, 1))
		synctest.Wait()
		require.Empty(t, p.take(), "the status alone")
		to.Put(delivered("a", "7", 3, 2))
		to.Drop(delivered("b", "8", 2, 1))
		synctest.Wait()
		require.Equal(t, "a 3, b absent", p.take())
		a, err = c.Get(keyOf("shop", "a"))
		require.NoError(t, err)
		require.Empty(t, a.ManagedFields)
		require.NoError(t, stop())

		stop, to = run(t, c), <-sinks
		to.List([]*unstructured.Unstructured{delivered("c", "9", 4, 1)})
		synctest.Wait()
		require.Equal(t, "a absent, c 4", p.take(), "a list states what there is")
		require.NoError(t, stop())
	})
}

// A source repeats objects that have not changed. Their versions say nothing about how far
// it is.
func TestAPassWaitsUntilASourceShowsItsWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, p := watching(newWorld())
		note, wrote, repeat := c.Reconcile, "5", func() {}
		c.Reconcile = func(ctx context.Context, key types.NamespacedName, object *widget) (reconcile.Result, error) {
			repeat()
			c.Wrote(delivered("a", wrote, 1, 1))
			return note(ctx, key, object)
		}
		sinks, stop := sourced(c), run(t, c)
		to := <-sinks
		to.List([]*unstructured.Unstructured{delivered("a", "5", 1, 1), delivered("b", "3", 0, 1)})
		synctest.Wait()
		require.Equal(t, "a 1, b 0", p.take())
		c.Add(keyOf("shop", "a"))
		synctest.Wait()
		require.Equal(t, "a 1", p.take(), "the list has shown the write")
		wrote = "8" // by the next pass
		to.Put(delivered("a", "6", 2, 2))
		synctest.Wait()
		require.Equal(t, "a 2", p.take(), "a write that changed nothing delays no pass")
		to.Put(delivered("a", "7", 3, 3))
		synctest.Wait()
		require.Empty(t, p.take(), "it has not shown the write")
		repeat = func() { to.Put(delivered("b", "3", 0, 1)) }
		to.Put(delivered("a", "8", 4, 4))
		synctest.Wait()
		require.Equal(t, "a 4", p.take())
		c.Add(keyOf("shop", "a"))
		synctest.Wait()
		require.Equal(t, "a 4", p.take(), "an old object does not take back what was shown")
		wrote = "10"
		c.Add(keyOf("shop", "a"))
		synctest.Wait()
		c.Add(keyOf("shop", "a"))
		synctest.Wait()
		require.Equal(t, "a 4", p.take(), "one has written, and the next waits")
		repeat = func() {}
		to.Drop(delivered("b", "10", 0, 1))
		synctest.Wait()
		require.Equal(t, "a 4, b absent", p.take(), "a deletion shows what was before it, too")
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Empty(t, p.take())
		require.NoError(t, stop())
	})
}

// A callback is slow, so that a pass would have the time to begin.
func TestAPassSeesTheObjectThatEndsItsWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, p := watching(newWorld())
		note := c.Reconcile
		c.Reconcile = func(ctx context.Context, key types.NamespacedName, object *widget) (reconcile.Result, error) {
			c.Wrote(delivered("a", "6", 1, 1))
			return note(ctx, key, object)
		}
		c.References = func(*widget) []kube.Reference {
			time.Sleep(time.Second)
			return nil
		}
		sinks, stop := sourced(c), run(t, c)
		to := <-sinks
		to.List([]*unstructured.Unstructured{delivered("a", "5", 1, 1)})
		synctest.Wait()
		c.Add(keyOf("shop", "a"))
		synctest.Wait()
		require.Equal(t, "a 1", p.take())
		to.Put(delivered("a", "6", 2, 2))
		synctest.Wait()
		require.Equal(t, "a 2", p.take())
		require.NoError(t, stop())
	})
}

// What the cache cannot hold is no object that is absent.
func TestWhatASourceDeliversWrongIsNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, p := watching(newWorld())
		sinks, stop := sourced(c), run(t, c)
		to, wrong := <-sinks, delivered("a", "5", 1, 1)
		wrong.Object["spec"] = math.NaN()
		names := func(synced bool) {
			t.Helper()
			synctest.Wait()
			ok, err := c.Synced()
			require.Equal(t, synced, ok)
			require.ErrorContains(t, err, "unsupported value: NaN")
		}
		to.List([]*unstructured.Unstructured{wrong})
		names(false)
		require.Empty(t, p.take())
		require.NoError(t, stop())

		stop, to = run(t, c), <-sinks
		to.List([]*unstructured.Unstructured{delivered("a", "6", 1, 1)})
		synctest.Wait()
		require.Equal(t, "a 1", p.take())
		_, err := c.Synced()
		require.NoError(t, err)
		to.Put(wrong)
		names(true)
		require.Empty(t, p.take())
		require.NoError(t, stop())
	})
}
