package kube_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// passes records the passes of a controller.
type passes struct {
	mu   sync.Mutex
	list []string
}

func (p *passes) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, fmt.Sprintf(format, args...))
}

// take returns the passes since the last call, in order of their text.
func (p *passes) take() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.list
	p.list = nil
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// watching returns a controller that writes down its passes: the name of the
// object, and its size or that it is absent.
func watching(w *world) (*kube.Controller[*widget], *passes) {
	p := &passes{}
	c := &kube.Controller[*widget]{Client: w, Kind: kube.Kind{Resource: widgets}}
	c.Reconcile = func(_ context.Context, key types.NamespacedName, object *widget) (reconcile.Result, error) {
		if object == nil {
			p.note("%s absent", key.Name)
		} else {
			p.note("%s %d", key.Name, object.Spec.Size)
		}
		return reconcile.Result{}, nil
	}
	return c, p
}

func run(t *testing.T, starter reconcile.Starter) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- starter.Start(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-done
	})
}

func newWidget(name string, size int64) *widget {
	w := &widget{Spec: widgetSpec{Size: size}}
	w.APIVersion, w.Kind, w.Namespace, w.Name = "example.com/v1", "Widget", "shop", name
	return w
}

func newSecret(name, content string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": "shop", "name": name},
		"data": map[string]any{"password": content},
	}}
}

func child(name string, owner *unstructured.Unstructured) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"a": "b"}}}
	o.SetNamespace("shop")
	o.SetName(name)
	yes := true
	o.SetOwnerReferences(
		[]metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Widget", Name: owner.GetName(), UID: owner.GetUID(), Controller: &yes}},
	)
	return o
}

func label(o *unstructured.Unstructured) {
	o.SetLabels(map[string]string{"seen": o.GetResourceVersion()})
}

func TestEveryObjectGetsAPassAtStartAndOnEachChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(widgets, newWidget("a", 1))
		w.put(widgets, newWidget("b", 2))
		c, p := watching(w)
		stop := run(t, c)
		synctest.Wait()
		require.Equal(t, "a 1, b 2", p.take())

		w.put(widgets, newWidget("a", 3))
		synctest.Wait()
		require.Equal(t, "a 3", p.take())
		w.put(widgets, newWidget("c", 4))
		synctest.Wait()
		require.Equal(t, "c 4", p.take())
		w.remove(widgets, keyOf("shop", "b"))
		synctest.Wait()
		require.Equal(t, "b absent", p.take())

		time.Sleep(time.Hour)
		synctest.Wait()
		require.Empty(t, p.take(), "at rest there are no passes")
		require.Empty(t, w.requests(), "and no requests")
		require.NoError(t, stop())
	})
}

func TestNothingRunsBeforeEveryKindIsKnownAndWhatIsMissingIsSaid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(widgets, newWidget("a", 1))
		w.fails(secrets, errors.New("secrets is forbidden"))
		c, p := watching(w)
		c.Referenced = []kube.Kind{{Resource: secrets}}
		stop := run(t, c)
		time.Sleep(time.Minute)
		require.Empty(t, p.take())
		synced, err := c.Synced()
		require.False(t, synced)
		require.ErrorIs(t, err, kube.ErrNotSynced)
		require.EqualError(t, err, "secrets: not synced yet: secrets is forbidden")
		_, err = c.Lookup(kube.Reference{Resource: secrets, Namespace: "shop", Name: "x"})
		require.ErrorIs(t, err, kube.ErrNotSynced, "absence is not known")
		require.NotErrorIs(t, err, kube.ErrAbsent)

		w.fails(secrets, nil)
		time.Sleep(time.Minute)
		require.Equal(t, "a 1", p.take(), "it was tried again")
		synced, err = c.Synced()
		require.True(t, synced)
		require.NoError(t, err)

		w.fails(widgets, errNetwork)
		w.cut(false)
		time.Sleep(time.Minute)
		synced, err = c.Synced()
		require.True(t, synced, "what was known still is")
		require.ErrorIs(t, err, errNetwork)
		require.Empty(t, p.take(), "and an outage is no absence")
		w.fails(widgets, nil)
		time.Sleep(2 * time.Minute)
		_, err = c.Synced()
		require.NoError(t, err)
		require.Empty(t, p.take(), "a list of what is known already wakes nobody")
		require.NoError(t, stop())
		synced, _ = c.Synced()
		require.True(t, synced)
	})
}

func TestTheFirstListIsNeverAnOldState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c, _ := watching(w)
		stop := run(t, c)
		synctest.Wait()
		require.NoError(t, stop())
		require.Len(t, w.lists, 1)
		require.Empty(t, w.lists[0].ResourceVersion, "0 would be any state that the server still has")
	})
}

func TestAChangeOfAChildWakesItsOwnerByUID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		a := w.put(widgets, newWidget("a", 1))
		w.put(widgets, newWidget("b", 2))
		w.put(maps1, child("a1", a))
		c, p := watching(w)
		c.Owned = []kube.Kind{{Resource: maps1}}
		stop := run(t, c)
		synctest.Wait()
		require.Equal(t, "a 1, b 2", p.take())

		w.change(maps1, keyOf("shop", "a1"), label)
		synctest.Wait()
		require.Equal(t, "a 1", p.take(), "changed")
		w.put(maps1, child("a2", a))
		synctest.Wait()
		require.Equal(t, "a 1", p.take(), "created")
		children, err := c.Children(a.GetUID(), maps1)
		require.NoError(t, err)
		require.Len(t, children, 2)
		require.Equal(t, "a1", children[0].GetName())
		require.NotContains(t, children[0].Object, "data", "only metadata is kept")
		w.remove(maps1, keyOf("shop", "a1"))
		synctest.Wait()
		require.Equal(t, "a 1", p.take(), "deleted")

		stranger := a.DeepCopy()
		stranger.SetUID("of-a-predecessor")
		w.put(maps1, child("a3", stranger))
		synctest.Wait()
		require.Empty(t, p.take(), "the name of the owner is not enough")
		w.change(maps1, keyOf("shop", "a2"), func(o *unstructured.Unstructured) { o.SetOwnerReferences(nil) })
		synctest.Wait()
		require.Equal(t, "a 1", p.take(), "orphaned")
		children, err = c.Children(a.GetUID(), maps1)
		require.NoError(t, err)
		require.Empty(t, children)

		w.put(maps1, child("a4", a))
		w.remove(widgets, keyOf("shop", "a"))
		synctest.Wait()
		p.take()
		w.remove(maps1, keyOf("shop", "a4"))
		synctest.Wait()
		require.Empty(t, p.take(), "the owner is gone, and was reported so")
		require.NoError(t, stop())
	})
}

func TestAChangeOfAReferencedObjectWakesItsUsers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		using := func(name, secret string) *widget {
			o := newWidget(name, 1)
			o.Spec.Secret = secret
			return o
		}
		w.put(widgets, using("a", "x"))
		w.put(widgets, using("b", "x"))
		w.put(widgets, using("c", "y"))
		c, p := watching(w)
		c.Referenced = []kube.Kind{{Resource: secrets}}
		c.References = func(o *widget) []kube.Reference {
			return []kube.Reference{{Resource: secrets, Namespace: o.Namespace, Name: o.Spec.Secret}}
		}
		stop := run(t, c)
		synctest.Wait()
		require.Equal(t, "a 1, b 1, c 1", p.take())
		x := kube.Reference{Resource: secrets, Namespace: "shop", Name: "x"}
		require.Equal(t, []types.NamespacedName{keyOf("shop", "a"), keyOf("shop", "b")}, c.Users(x))
		_, err := c.Lookup(x)
		require.ErrorIs(t, err, kube.ErrAbsent)

		w.put(secrets, newSecret("x", "one"))
		synctest.Wait()
		require.Equal(t, "a 1, b 1", p.take(), "created")
		found, err := c.Lookup(x)
		require.NoError(t, err)
		require.NotContains(t, found.Object, "data", "the password is not kept")
		w.put(secrets, newSecret("x", "two"))
		synctest.Wait()
		require.Equal(t, "a 1, b 1", p.take(), "edited")

		w.put(widgets, using("b", "y"))
		synctest.Wait()
		require.Equal(t, "b 1", p.take())
		w.remove(secrets, keyOf("shop", "x"))
		synctest.Wait()
		require.Equal(t, "a 1", p.take(), "deleted; b uses it no more")
		w.put(secrets, newSecret("y", "three"))
		synctest.Wait()
		require.Equal(t, "b 1, c 1", p.take())
		w.remove(widgets, keyOf("shop", "c"))
		synctest.Wait()
		require.Equal(t, "c absent", p.take())
		w.put(secrets, newSecret("y", "four"))
		w.put(secrets, newSecret("unused", "five"))
		synctest.Wait()
		require.Equal(t, "b 1", p.take())
		require.NoError(t, stop())
	})
}

func TestObjectsOfTheSameKindCanReferToEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(widgets, newWidget("parent", 1))
		w.put(widgets, newWidget("preview", 2))
		c, p := watching(w)
		c.References = func(o *widget) []kube.Reference {
			if o.Name == "parent" {
				return nil
			}
			return []kube.Reference{{Resource: widgets, Namespace: "shop", Name: "parent"}}
		}
		stop := run(t, c)
		synctest.Wait()
		p.take()
		w.put(widgets, newWidget("parent", 3))
		synctest.Wait()
		require.Equal(t, "parent 3, preview 2", p.take())
		require.NoError(t, stop())
	})
}

func TestAbsenceIsReportedUntilAPassForItSucceeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(widgets, newWidget("a", 1))
		c, p := watching(w)
		plain, failures := c.Reconcile, 2
		c.Reconcile = func(ctx context.Context, key types.NamespacedName, object *widget) (reconcile.Result, error) {
			result, _ := plain(ctx, key, object)
			if object == nil && failures > 0 {
				failures--
				return result, errNetwork
			}
			return result, nil
		}
		stop := run(t, c)
		synctest.Wait()
		p.take()
		w.remove(widgets, keyOf("shop", "a"))
		time.Sleep(time.Hour)
		require.Equal(t, "a absent, a absent, a absent", p.take())
		require.NoError(t, stop())
	})
}

func TestAnEventDuringAPassCausesOneMoreAndAHungObjectDelaysNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(widgets, newWidget("hung", 1))
		w.put(widgets, newWidget("other", 1))
		w.put(widgets, newWidget("poison", 1))
		c, p := watching(w)
		c.Workers = 2
		plain, proceed := c.Reconcile, make(chan bool)
		c.Reconcile = func(ctx context.Context, key types.NamespacedName, object *widget) (reconcile.Result, error) {
			switch key.Name {
			case "hung":
				<-proceed
			case "poison":
				panic("poison")
			}
			return plain(ctx, key, object)
		}
		stop := run(t, c)
		synctest.Wait()
		require.Equal(t, "other 1", p.take())
		for size := range int64(3) {
			w.put(widgets, newWidget("hung", 2+size))
			w.put(widgets, newWidget("other", 2+size))
			synctest.Wait()
		}
		require.Equal(t, "other 2, other 3, other 4", p.take())
		close(proceed)
		synctest.Wait()
		require.Equal(t, "hung 1, hung 4", p.take(), "three events, one more pass")
		require.NoError(t, stop())
	})
}

func TestAPassThatNeverReturnsEndsAfterFiveMinutes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(widgets, newWidget("a", 1))
		c, p := watching(w)
		hangs := true
		c.Reconcile = func(ctx context.Context, key types.NamespacedName, _ *widget) (reconcile.Result, error) {
			if hangs {
				hangs = false
				<-ctx.Done()
				return reconcile.Result{}, fmt.Errorf("look at it: %w", ctx.Err())
			}
			return reconcile.Result{}, nil
		}
		c.OnPass = func(pass reconcile.KeyPass[types.NamespacedName]) { p.note("%s: %v", pass.Duration, pass.Err) }
		stop := run(t, c)
		time.Sleep(5*time.Minute - time.Millisecond)
		require.Empty(t, p.take())
		time.Sleep(time.Minute)
		require.Equal(t, "0s: <nil>, 5m0s: the pass has reached its limit of 5m0s: look at it: context deadline exceeded", p.take())
		require.NoError(t, stop())
	})
}

func TestAChangeOfStatusAloneIsIgnoredWhenAskedTo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(widgets, newWidget("a", 1))
		c, p := watching(w)
		c.IgnoreStatus = true
		stop := run(t, c)
		synctest.Wait()
		require.Equal(t, "a 1", p.take())
		w.change(widgets, keyOf("shop", "a"), func(o *unstructured.Unstructured) { o.Object["status"] = map[string]any{"phase": "x"} })
		synctest.Wait()
		require.Empty(t, p.take())
		a, err := c.Get(keyOf("shop", "a"))
		require.NoError(t, err)
		require.Equal(t, "x", a.Status.Phase, "it is seen nevertheless")
		w.change(widgets, keyOf("shop", "a"), label)
		synctest.Wait()
		require.Equal(t, "a 1", p.take(), "a label")
		w.put(widgets, newWidget("a", 2))
		synctest.Wait()
		require.Equal(t, "a 2", p.take(), "the spec")
		w.change(widgets, keyOf("shop", "a"), func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"example.com/x"}) })
		synctest.Wait()
		p.take()
		w.remove(widgets, keyOf("shop", "a"))
		synctest.Wait()
		require.Equal(t, "a 2", p.take(), "a deletion that waits for a finalizer")
		require.NoError(t, stop())
	})
}

func TestAnObjectThatTheTypeCannotHoldHurtsNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(widgets, newWidget("good", 1))
		bad := w.put(widgets, newWidget("bad", 1))
		w.change(widgets, keyOf("shop", "bad"), func(o *unstructured.Unstructured) { o.Object["spec"] = "text" })
		c, p := watching(w)
		c.References = func(o *widget) []kube.Reference {
			if o.Spec.Size == 13 {
				panic("thirteen")
			}
			return nil
		}
		stop := run(t, c)
		synctest.Wait()
		require.Equal(t, "good 1", p.take(), "and no absence of the bad one")
		_, err := c.Get(keyOf("shop", "bad"))
		require.ErrorContains(t, err, "kube: widgets.example.com shop/bad: ")
		require.NotErrorIs(t, err, kube.ErrAbsent)
		list, err := c.List("")
		require.ErrorContains(t, err, "shop/bad")
		require.Len(t, list, 1)
		require.Len(t, c.Keys("shop"), 2)
		require.Empty(t, c.Keys("elsewhere"))
		require.Len(t, c.Parked(), 1)

		bad.Object["spec"] = map[string]any{"size": int64(5)}
		w.put(widgets, bad)
		synctest.Wait()
		require.Equal(t, "bad 5", p.take())
		require.Empty(t, c.Parked())
		w.put(widgets, newWidget("good", 13))
		synctest.Wait()
		require.Empty(t, p.take())
		require.ErrorContains(t, c.Parked()[keyOf("shop", "good")], "references: panic: thirteen")
		require.NoError(t, stop())
	})
}

func TestWhatTheTypeCanHoldOfAnObjectThatItCannotHoldGoesToMisfit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(widgets, newWidget("bad", 3))
		w.change(widgets, keyOf("shop", "bad"), func(o *unstructured.Unstructured) {
			o.Object["spec"] = map[string]any{"secret": int64(7), "size": int64(4)}
		})
		c, p := watching(w)
		c.Referenced = []kube.Kind{{Resource: secrets}}
		c.References = func(o *widget) []kube.Reference { return nil }
		c.Misfit = func(_ context.Context, key types.NamespacedName, part *widget, err error) (reconcile.Result, error) {
			p.note("%s %s %d %v", key, part.UID, part.Spec.Size, errors.Is(err, reconcile.ErrTerminal))
			return reconcile.Result{}, nil
		}
		stop := run(t, c)
		synctest.Wait()
		require.Regexp(t, `^shop/bad \S+ 4 true$`, p.take())
		require.Empty(t, c.Parked())
		require.NoError(t, stop())
	})
}

func TestARestartReplaysAllAndReportsWhatWentMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		for _, name := range []string{"a", "b", "c"} {
			w.put(widgets, newWidget(name, 1))
		}
		c, p := watching(w)
		stop := run(t, c)
		synctest.Wait()
		require.Equal(t, "a 1, b 1, c 1", p.take())
		require.EqualError(t, c.Start(t.Context()), "kube: controller widgets.example.com is running already")
		require.NoError(t, stop())

		w.remove(widgets, keyOf("shop", "b"))
		w.fails(widgets, errNetwork)
		stop = run(t, c)
		synctest.Wait()
		_, err := c.Get(keyOf("shop", "a"))
		require.ErrorIs(t, err, kube.ErrNotSynced, "what was known before may be long out of date")
		_, err = c.List("")
		require.ErrorIs(t, err, kube.ErrNotSynced)
		require.Empty(t, c.Keys(""))
		_, err = c.Children("uid", secrets)
		require.ErrorIs(t, err, kube.ErrNotWatched)
		w.fails(widgets, nil)
		time.Sleep(time.Minute)
		require.Equal(t, "a 1, b absent, c 1", p.take())
		require.NoError(t, stop())
		require.Empty(t, p.take())
	})
}

func TestAResyncAndAddLookAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(widgets, newWidget("a", 1))
		w.put(widgets, newWidget("b", 1))
		c, p := watching(w)
		c.Resync = time.Minute
		stop := run(t, c)
		synctest.Wait()
		p.take()
		time.Sleep(61 * time.Second)
		require.Equal(t, "a 1, b 1", p.take())
		c.Add(keyOf("shop", "b"))
		synctest.Wait()
		require.Equal(t, "b 1", p.take())
		require.NoError(t, stop())
	})
}

func TestManagedFieldsAreNotKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		a := newWidget("a", 1)
		a.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "somebody"}}
		w.put(widgets, a)
		s := newSecret("x", "one")
		s.SetManagedFields(a.ManagedFields)
		w.put(secrets, s)
		c, _ := watching(w)
		c.Referenced = []kube.Kind{{Resource: secrets, Whole: true}}
		stop := run(t, c)
		synctest.Wait()
		got, err := c.Get(keyOf("shop", "a"))
		require.NoError(t, err)
		require.Nil(t, got.ManagedFields)
		secret, err := c.Lookup(kube.Reference{Resource: secrets, Namespace: "shop", Name: "x"})
		require.NoError(t, err)
		require.Nil(t, secret.GetManagedFields())
		require.Contains(t, secret.Object, "data", "Whole")
		require.NoError(t, stop())
	})
}

func TestFieldsThatArePassedByAreNotKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		a := newWidget("a", 1)
		a.Labels = map[string]string{"team": "x"}
		w.put(widgets, a)
		s := newSecret("x", "one")
		s.Object["spec"] = map[string]any{"size": int64(1), "template": map[string]any{"a": "b"}, "list": []any{map[string]any{"a": "b"}}}
		w.put(secrets, s)
		c, p := watching(w)
		c.Kind.Drop = "spec"
		c.Referenced = []kube.Kind{{Resource: secrets, Whole: true, Drop: "spec.template,data.password,spec.list.a,absent.field"}}
		stop := run(t, c)
		synctest.Wait()
		require.Equal(t, "a 0", p.take())
		got, err := c.Get(keyOf("shop", "a"))
		require.NoError(t, err)
		require.Equal(t, map[string]string{"team": "x"}, got.Labels)
		secret, err := c.Lookup(kube.Reference{Resource: secrets, Namespace: "shop", Name: "x"})
		require.NoError(t, err)
		require.Equal(t, map[string]any{"size": int64(1), "list": []any{map[string]any{"a": "b"}}}, secret.Object["spec"])
		require.Equal(t, map[string]any{}, secret.Object["data"])
		w.put(widgets, newWidget("a", 2))
		synctest.Wait()
		require.Equal(t, "a 0", p.take(), "a change of such a field starts a pass")
		require.NoError(t, stop())
	})
}

func TestWhatTheCacheReturnsBelongsToTheCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		a := newWidget("a", 1)
		a.Labels = map[string]string{"mine": "no"}
		w.put(widgets, a)
		c := &kube.Controller[*unstructured.Unstructured]{Client: w, Kind: kube.Kind{Resource: widgets}}
		c.Reconcile = func(_ context.Context, _ types.NamespacedName, o *unstructured.Unstructured) (reconcile.Result, error) {
			o.SetLabels(nil)
			return reconcile.Result{}, nil
		}
		stop := run(t, c)
		synctest.Wait()
		first, err := c.Get(keyOf("shop", "a"))
		require.NoError(t, err)
		first.SetName("changed")
		list, err := c.List("shop")
		require.NoError(t, err)
		want := w.get(widgets, keyOf("shop", "a"))
		require.Empty(t, cmp.Diff(want.Object, list[0].Object))
		require.NoError(t, stop())
	})
}

func TestStopWaitsForThePassInHandAndForTheLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(widgets, newWidget("a", 1))
		c, _ := watching(w)
		var ended bool
		c.Reconcile = func(ctx context.Context, _ types.NamespacedName, _ *widget) (reconcile.Result, error) {
			<-ctx.Done()
			time.Sleep(time.Minute)
			ended = true
			return reconcile.Result{}, nil
		}
		stop := run(t, c)
		synctest.Wait()
		require.NoError(t, stop())
		require.True(t, ended)
		require.Zero(t, w.watches(), "no watch is left open")
	})
}

func TestStopWaitsForAListInHand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var ended atomic.Bool
		w.listing = func(ctx context.Context) {
			<-ctx.Done()
			time.Sleep(time.Minute) // a client that is slow to give up
			ended.Store(true)
		}
		c, p := watching(w)
		stop := run(t, c)
		synctest.Wait()
		require.NoError(t, stop())
		require.True(t, ended.Load())
		require.Empty(t, p.take())
	})
}

func TestAControllerSaysWhatIsWrongWithItsFields(t *testing.T) {
	t.Parallel()
	type controller = kube.Controller[*widget]
	for want, spoil := range map[string]func(*controller){
		"kube: Controller.Client: is required":                                                                    func(c *controller) { c.Client = nil },
		"kube: Controller.Reconcile: is required":                                                                 func(c *controller) { c.Reconcile = nil },
		"kube: Controller.Resync: is -1s, must be 0 (never) or more":                                              func(c *controller) { c.Resync = -time.Second },
		"kube: Controller.Workers: is -1, must be 0 (1) or more":                                                  func(c *controller) { c.Workers = -1 },
		"kube: Controller.Timeout: is -1s, must be 0 (5m) or more":                                                func(c *controller) { c.Timeout = -time.Second },
		"reconcile: Queue.Backoff":                                                                                func(c *controller) { c.Backoff.Min = -time.Second },
		"kube: Controller.Owned[0].Resource: is widgets.example.com, must not be the resource of Controller.Kind": func(c *controller) { c.Owned = []kube.Kind{{Resource: widgets}} },
		"kube: Controller.Owned[1].Resource: is secrets, listed twice": func(c *controller) {
			c.Owned = []kube.Kind{{Resource: secrets}, {Resource: secrets}}
		},
		"kube: Controller.Referenced[0].Resource: is secrets, listed twice": func(c *controller) {
			c.Owned, c.Referenced = []kube.Kind{{Resource: secrets}}, []kube.Kind{{Resource: secrets, Whole: true}}
		},
		"kube: Controller.Kind.Resource: is required":                                                                  func(c *controller) { c.Kind.Resource = schema.GroupVersionResource{} },
		`kube: Controller.Kind.Resource: is "example.com/, Resource=widgets", must have a version and the plural name`: func(c *controller) { c.Kind.Resource.Version = "" },
		`kube: Controller.Referenced[0].LabelSelector: is "a in", must be a label selector: `: func(c *controller) {
			c.Referenced = []kube.Kind{{Resource: secrets, LabelSelector: "a in"}}
		},
		`kube: Controller.Kind.FieldSelector: is "a", must be a field selector: `:                    func(c *controller) { c.Kind.FieldSelector = "a" },
		`kube: Controller.Kind.Drop: is "spec,metadata.labels", must be paths such as spec.template`: func(c *controller) { c.Kind.Drop = "spec,metadata.labels" },
		`kube: Controller.Kind.Drop: is "spec..a", must be paths such as spec.template`:              func(c *controller) { c.Kind.Drop = "spec..a" },
		`kube: Controller.Referenced[0].Drop: is "data", must be empty without Whole`: func(c *controller) {
			c.Referenced = []kube.Kind{{Resource: secrets, Drop: "data"}}
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.fails(widgets, errNetwork) // the error comes before any list
				c, _ := watching(w)
				spoil(c)
				require.ErrorContains(t, c.Start(t.Context()), want)
			})
		})
	}
	c := &kube.Controller[metav1.Object]{}
	require.ErrorContains(t, c.Start(t.Context()), "want a pointer to a struct")
	type untagged struct {
		metav1.TypeMeta
		metav1.ObjectMeta
	}
	require.ErrorContains(t, (&kube.Controller[*untagged]{}).Start(t.Context()),
		`does not decode metadata; want metav1.ObjectMeta with the tag json:"metadata"`)
	both, _ := watching(newWorld())
	both.Owned, both.Referenced = []kube.Kind{{Resource: secrets}}, []kube.Kind{{Resource: secrets}}
	_, err := both.Synced()
	require.ErrorIs(t, err, kube.ErrNotSynced, "the same in both is one watch")
}
