package kube_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
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

// logbook is a bytes.Buffer for several goroutines.
type logbook struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.String()
}

func textLogger(l *logbook) *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// one returns a controller that wants one child for each widget, under a name
// made up by the server, and creates it if the cache shows none.
func one(w *world, told bool) *kube.Controller[*widget] {
	c := &kube.Controller[*widget]{Client: w, Kind: kube.Kind{Resource: widgets}, Owned: []kube.Kind{{Resource: maps1}}}
	c.Reconcile = func(ctx context.Context, key types.NamespacedName, object *widget) (reconcile.Result, error) {
		if object == nil {
			return reconcile.Result{}, nil
		}
		children, err := c.Children(object.UID, maps1)
		if err != nil || len(children) > 0 {
			return reconcile.Result{}, err
		}
		owner := &unstructured.Unstructured{}
		owner.SetName(object.Name)
		owner.SetUID(object.UID)
		wanted := child("", owner)
		wanted.SetGenerateName(object.Name + "-")
		written, err := w.Resource(maps1).Namespace(key.Namespace).Create(ctx, wanted, metav1.CreateOptions{})
		if err == nil && told {
			c.WroteChild(key, maps1, written)
		}
		return reconcile.Result{}, err
	}
	return c
}

func TestNoChildIsCreatedTwiceHoweverLateItsWatchIs(t *testing.T) {
	t.Parallel()
	for _, told := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			c := one(w, told)
			seen := 0
			c.OnPass = func(reconcile.KeyPass[types.NamespacedName]) { seen++ }
			stop := run(t, c)
			synctest.Wait()
			w.hold(maps1, true)
			w.put(widgets, newWidget("a", 1))
			for range 5 {
				time.Sleep(time.Second)
				w.change(widgets, keyOf("shop", "a"), label)
			}
			synctest.Wait()
			if !told {
				require.Len(t, w.all(maps1), 6, "this is what is prevented")
				require.NoError(t, stop())
				return
			}
			require.Len(t, w.all(maps1), 1)
			require.Equal(t, 1, seen, "what is put off is no pass")
			w.hold(maps1, false)
			synctest.Wait()
			require.Len(t, w.all(maps1), 1)
			require.Equal(t, 2, seen, "the events were not lost")
			require.NoError(t, stop())
		})
	}
}

func TestAKeyWaitsForItsOwnWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(widgets, newWidget("a", 1))
		w.put(widgets, newWidget("b", 1))
		c, p := watching(w)
		plain := c.Reconcile
		c.Reconcile = func(ctx context.Context, key types.NamespacedName, object *widget) (reconcile.Result, error) {
			result, err := plain(ctx, key, object)
			if key.Name == "a" && object != nil && object.Spec.Size < 3 {
				object.Spec.Size++
				c.Wrote(w.put(widgets, object))
			}
			return result, err
		}
		w.hold(widgets, true)
		stop := run(t, c)
		synctest.Wait()
		require.Equal(t, "a 1, b 1", p.take())
		c.Add(keyOf("shop", "a"), keyOf("shop", "b"))
		synctest.Wait()
		require.Equal(t, "b 1", p.take(), "a is known to be 2 by now; b waits for nothing")
		w.hold(widgets, false)
		synctest.Wait()
		require.Equal(t, "a 2, a 3", p.take())
		require.NoError(t, stop())
	})
}

func TestAWriteThatIsShownAlreadyDelaysNoPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(widgets, newWidget("a", 1))
		c, p := watching(w)
		stop := run(t, c)
		synctest.Wait()
		require.Equal(t, "a 1", p.take())
		w.hold(widgets, true)
		listed := w.get(widgets, keyOf("shop", "a"))
		c.Wrote(listed)
		c.Add(keyOf("shop", "a"))
		synctest.Wait()
		require.Equal(t, "a 1", p.take(), "the list has shown it")
		w.hold(widgets, false)
		w.put(widgets, newWidget("a", 2))
		synctest.Wait()
		require.Equal(t, "a 2", p.take())
		w.hold(widgets, true)
		c.Wrote(listed)
		c.Add(keyOf("shop", "a"))
		synctest.Wait()
		require.Equal(t, "a 2", p.take(), "an older object does not take back what was shown")
		require.NoError(t, stop())
	})
}

// A callback is slow, so that a pass would have the time to begin.
func TestAPassSeesTheObjectThatEndsItsWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(widgets, newWidget("a", 1))
		c, p := watching(w)
		c.References = func(*widget) []kube.Reference {
			time.Sleep(time.Second)
			return nil
		}
		stop := run(t, c)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, "a 1", p.take())
		w.hold(widgets, true)
		c.Wrote(w.put(widgets, newWidget("a", 2)))
		c.Add(keyOf("shop", "a"))
		synctest.Wait()
		require.Empty(t, p.take())
		w.hold(widgets, false)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		require.Equal(t, "a 2", p.take())
		require.NoError(t, stop())
	})
}

func TestAWriteThatTheWatchDoesNotShowParksNoKeyForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var log logbook
		c := one(w, true)
		c.Logger = textLogger(&log)
		stop := run(t, c)
		synctest.Wait()
		w.hold(maps1, true)
		w.put(widgets, newWidget("a", 1))
		synctest.Wait()
		w.change(widgets, keyOf("shop", "a"), label)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		require.Len(t, w.all(maps1), 1)
		require.NotContains(t, log.String(), "write not seen")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Len(t, w.all(maps1), 2, "with what is known")
		require.Contains(t, log.String(), `msg="write not seen by the watch" controller=widgets.example.com key=shop/a kind=configmaps`)
		w.hold(maps1, false)
		require.NoError(t, stop())
	})
}

func TestADeletedObjectAndAnUnwatchedWriteHoldNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(widgets, newWidget("a", 1))
		c, p := watching(w)
		var log logbook
		c.Logger = textLogger(&log)
		c.Owned = []kube.Kind{{Resource: maps1, Namespace: "shop"}}
		stop := run(t, c)
		synctest.Wait()
		p.take()
		w.hold(widgets, true)
		c.Wrote(w.put(widgets, newWidget("a", 2)))
		w.remove(widgets, keyOf("shop", "a"))
		c.Add(keyOf("shop", "a"))
		synctest.Wait()
		require.Empty(t, p.take())
		w.hold(widgets, false)
		synctest.Wait()
		// Each of the two events asks for a pass, and the first may see either state.
		require.Regexp(t, "^(a 2, |a absent, )?a absent$", p.take())

		w.put(widgets, newWidget("b", 1))
		synctest.Wait()
		p.take()
		foreign := newSecret("x", "")
		foreign.SetResourceVersion("999999")
		c.WroteChild(keyOf("shop", "b"), secrets, foreign)
		require.Contains(t, log.String(), "written object is not watched")
		foreign.SetNamespace("elsewhere")
		c.WroteChild(keyOf("shop", "b"), maps1, foreign)
		foreign.SetResourceVersion("opaque")
		c.WroteChild(keyOf("shop", "b"), widgets, foreign)
		c.Add(keyOf("shop", "b"))
		synctest.Wait()
		require.Equal(t, "b 1", p.take())
		require.NoError(t, stop())
	})
}

func TestWhatCameDuringTheWaitIsNotLostIfTheWriteItselfWakesNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(widgets, newWidget("a", 1))
		c, p := watching(w)
		c.IgnoreStatus = true
		stop := run(t, c)
		synctest.Wait()
		p.take()
		w.hold(widgets, true)
		w.change(widgets, keyOf("shop", "a"), func(o *unstructured.Unstructured) { o.Object["status"] = map[string]any{"phase": "x"} })
		c.Wrote(w.get(widgets, keyOf("shop", "a")))
		c.Add(keyOf("shop", "a"))
		synctest.Wait()
		require.Empty(t, p.take())
		w.hold(widgets, false)
		synctest.Wait()
		require.Equal(t, "a 1", p.take())
		require.NoError(t, stop())
	})
}

func TestARelistShowsAWriteToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := one(w, true)
		var seen atomic.Int64
		c.OnPass = func(reconcile.KeyPass[types.NamespacedName]) { seen.Add(1) }
		stop := run(t, c)
		synctest.Wait()
		w.hold(maps1, true)
		w.put(widgets, newWidget("a", 1))
		synctest.Wait()
		w.change(widgets, keyOf("shop", "a"), label)
		synctest.Wait()
		require.EqualValues(t, 1, seen.Load())
		w.cut(true)
		time.Sleep(10 * time.Second)
		require.Len(t, w.all(maps1), 1)
		require.Greater(t, seen.Load(), int64(1), "long before the minute is over")
		w.hold(maps1, false)
		require.NoError(t, stop())
	})
}

func TestPassesBeginOnceWhatIsAwaitedHasCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(widgets, newWidget("a", 1))
		c, p := watching(w)
		arrived := make(chan struct{})
		c.Await = func(ctx context.Context) error {
			select {
			case <-arrived:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		stop := run(t, c)
		time.Sleep(29 * time.Second)
		synctest.Wait()
		require.Empty(t, p.take())
		close(arrived)
		synctest.Wait()
		require.Equal(t, "a 1", p.take())
		require.NoError(t, stop())
	})
}

func TestWhatIsAwaitedForTooLongKeepsNoPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(widgets, newWidget("a", 1))
		c, p := watching(w)
		var log logbook
		c.Logger = textLogger(&log)
		c.Await = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		stop := run(t, c)
		time.Sleep(31 * time.Second)
		synctest.Wait()
		require.Equal(t, "a 1", p.take())
		require.Contains(t, log.String(), "passes begin although something is not seen yet")
		require.Contains(t, log.String(), `controller=widgets.example.com error="context deadline exceeded"`)
		require.NoError(t, stop())
	})
}
