package kube_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

const ours = "shop.example.com/teardown"

// held is a widget of the world, as a pass gets it.
func held(t *testing.T, w *world) *widget {
	t.Helper()
	o := w.get(widgets, keyOf("shop", "a"))
	require.NotNil(t, o)
	return &widget{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "a", UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
		Finalizers: o.GetFinalizers(), DeletionTimestamp: o.GetDeletionTimestamp(), Generation: o.GetGeneration(),
	}}
}

func never(t *testing.T) func(context.Context) (bool, error) {
	t.Helper()
	return func(context.Context) (bool, error) {
		require.Fail(t, "no teardown was due")
		return false, nil
	}
}

func says(gone bool, err error) func(context.Context) (bool, error) {
	return func(context.Context) (bool, error) { return gone, err }
}

func onServer(w *world) []string {
	return w.get(widgets, keyOf("shop", "a")).GetFinalizers()
}

func TestTheFinalizerIsThereBeforeAnythingElseAndCostsNothingThen(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.put(widgets, newWidget("a", 1))
	var told []string
	f := &kube.Finalizer{
		Client:   w,
		Resource: widgets,
		Name:     ours,
		OnWrite:  func(o metav1.Object) { told = append(told, o.GetResourceVersion()) },
	}
	a := held(t, w)
	for range 3 {
		alive, result, err := f.Finalize(t.Context(), a, never(t))
		require.NoError(t, err)
		require.True(t, alive)
		require.Zero(t, result)
	}
	require.Equal(t, []string{ours}, onServer(w))
	require.Equal(t, []string{"patch widgets"}, w.requests(), "one write in all")
	require.Equal(t, w.get(widgets, keyOf("shop", "a")).GetResourceVersion(), a.ResourceVersion, "later writes of the pass are bound to it")
	require.Equal(t, []string{a.ResourceVersion}, told)
}

func TestTheFinalizerGoesOnlyWhenTheTeardownSaysGone(t *testing.T) {
	t.Parallel()
	w := newWorld()
	a := newWidget("a", 1)
	a.Finalizers = []string{"other.example.com/x", ours}
	w.put(widgets, a)
	w.remove(widgets, keyOf("shop", "a"))
	f := &kube.Finalizer{Client: w, Resource: widgets, Name: ours}

	alive, result, err := f.Finalize(t.Context(), held(t, w), says(false, nil))
	require.NoError(t, err)
	require.False(t, alive)
	require.Equal(t, reconcile.Result{RequeueAfter: 5 * time.Second}, result)
	alive, _, err = f.Finalize(t.Context(), held(t, w), says(true, errNetwork))
	require.ErrorIs(t, err, errNetwork)
	require.False(t, alive)
	require.Empty(t, w.requests(), "the finalizer stays")

	f.Poll = time.Minute
	_, result, err = f.Finalize(t.Context(), held(t, w), says(false, nil))
	require.NoError(t, err)
	require.Equal(t, time.Minute, result.RequeueAfter)

	alive, result, err = f.Finalize(t.Context(), held(t, w), says(true, nil))
	require.NoError(t, err)
	require.False(t, alive)
	require.Zero(t, result)
	require.Equal(t, []string{"other.example.com/x"}, onServer(w), "that of another stays")
	w.requests()
	alive, _, err = f.Finalize(t.Context(), held(t, w), never(t))
	require.NoError(t, err)
	require.False(t, alive)
	require.Empty(t, w.requests())
}

func TestNoFinalizerOfAnotherIsEverLost(t *testing.T) {
	t.Parallel()
	for _, deleting := range []bool{false, true} {
		w := newWorld()
		a := newWidget("a", 1)
		a.Finalizers = []string{"old.example.com/x"}
		if deleting {
			a.Finalizers = append(a.Finalizers, ours)
		}
		w.put(widgets, a)
		if deleting {
			w.remove(widgets, keyOf("shop", "a"))
		}
		stale := held(t, w)
		w.change(widgets, keyOf("shop", "a"), func(o *unstructured.Unstructured) {
			o.SetFinalizers(append([]string{"new.example.com/x"}, o.GetFinalizers()[1:]...))
		})
		f := &kube.Finalizer{Client: w, Resource: widgets, Name: ours}
		alive, _, err := f.Finalize(t.Context(), stale, says(true, nil))
		require.NoError(t, err)
		require.Equal(t, !deleting, alive)
		if deleting {
			require.Equal(t, []string{"new.example.com/x"}, onServer(w))
		} else {
			require.Equal(t, []string{"new.example.com/x", ours}, onServer(w))
		}
		require.Equal(t, []string{"patch widgets", "get widgets", "patch widgets"}, w.requests())
	}
}

func TestRemoveTakesTheFinalizerFromALiveObject(t *testing.T) {
	t.Parallel()
	w := newWorld()
	a := newWidget("a", 1)
	a.Finalizers = []string{"other.example.com/x", ours}
	w.put(widgets, a)
	f := &kube.Finalizer{Client: w, Resource: widgets, Name: ours}
	outdated := held(t, w)
	a.Finalizers = append(a.Finalizers, "other.example.com/y")
	w.put(widgets, a)

	require.NoError(t, f.Remove(t.Context(), outdated))
	require.Equal(t, []string{"other.example.com/x", "other.example.com/y"}, onServer(w))
	require.Equal(t, []string{"patch widgets", "get widgets", "patch widgets"}, w.requests())
	require.NoError(t, f.Remove(t.Context(), outdated), "it has none any more")
	require.Empty(t, w.requests())
	gone := &widget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "b", UID: "u", ResourceVersion: "1", Finalizers: []string{ours}}}
	require.NoError(t, f.Remove(t.Context(), gone), "an object that is gone has none")
	require.ErrorContains(t, (&kube.Finalizer{Client: w, Resource: widgets}).Remove(t.Context(), outdated), "Finalizer.Name: is required")
}

// TestAConflictBringsTheStatusWithTheVersion has a pass with an old state of its object.
func TestAConflictBringsTheStatusWithTheVersion(t *testing.T) {
	t.Parallel()
	for _, stale := range []func(*widget) metav1.Object{
		func(a *widget) metav1.Object { return a },
		func(a *widget) metav1.Object {
			return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{
				"namespace": a.Namespace, "name": a.Name, "uid": string(a.UID), "resourceVersion": a.ResourceVersion,
			}}}
		},
	} {
		w := newWorld()
		w.put(widgets, newWidget("a", 1))
		old := stale(held(t, w))
		w.change(widgets, keyOf("shop", "a"), func(o *unstructured.Unstructured) {
			require.NoError(t, unstructured.SetNestedField(o.Object, "Running", "status", "phase"))
		})
		f := &kube.Finalizer{Client: w, Resource: widgets, Name: ours}
		alive, _, err := f.Finalize(t.Context(), old, never(t))
		require.NoError(t, err)
		require.True(t, alive)
		require.Equal(t, w.get(widgets, keyOf("shop", "a")).GetResourceVersion(), old.GetResourceVersion())
		switch o := old.(type) {
		case *widget:
			require.Equal(t, "Running", o.Status.Phase, "a write of the status with this version would undo it")
		case *unstructured.Unstructured:
			require.Equal(t, map[string]any{"phase": "Running"}, o.Object["status"])
		}
	}
}

func TestAnObjectThatWentOrIsGoingMeanwhileIsNotAlive(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(*world){
		"deleted": func(w *world) { w.remove(widgets, keyOf("shop", "a")) },
		"replaced by a successor": func(w *world) {
			w.remove(widgets, keyOf("shop", "a"))
			w.put(widgets, newWidget("a", 2))
		},
		"being deleted, held by another": func(w *world) {
			w.change(widgets, keyOf("shop", "a"), func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"other.example.com/x"}) })
			w.remove(widgets, keyOf("shop", "a"))
		},
	} {
		w := newWorld()
		w.put(widgets, newWidget("a", 1))
		stale := held(t, w)
		meanwhile(w)
		f := &kube.Finalizer{Client: w, Resource: widgets, Name: ours}
		alive, _, err := f.Finalize(t.Context(), stale, never(t))
		require.NoError(t, err, name)
		require.False(t, alive, name)
		if o := w.get(widgets, keyOf("shop", "a")); o != nil {
			require.NotContains(t, o.GetFinalizers(), ours, name)
		}
	}
}

func TestADeletionSeenOnlyByTheWriteIsFinishedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld()
	a := newWidget("a", 1)
	a.Finalizers = []string{ours}
	w.put(widgets, a)
	stale := held(t, w)
	stale.Finalizers = nil // an older state: another process has added it since
	stale.ResourceVersion = "1"
	w.remove(widgets, keyOf("shop", "a"))
	f := &kube.Finalizer{Client: w, Resource: widgets, Name: ours}
	torn := false
	alive, _, err := f.Finalize(t.Context(), stale, func(context.Context) (bool, error) { torn = true; return true, nil })
	require.NoError(t, err)
	require.False(t, alive)
	require.True(t, torn)
	require.Nil(t, w.get(widgets, keyOf("shop", "a")))
}

func TestAConflictWithoutEndIsAnError(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.put(widgets, newWidget("a", 1))
	a := held(t, w)
	w.before = func(verb string) {
		if verb == "patch" {
			w.change(widgets, keyOf("shop", "a"), label)
		}
	}
	f := &kube.Finalizer{Client: w, Resource: widgets, Name: ours}
	_, _, err := f.Finalize(t.Context(), a, never(t))
	require.ErrorContains(t, err, "kube: widgets.example.com shop/a: finalizer: ")
	require.Len(t, w.requests(), 9)
}

func TestAFinalizerSaysWhatIsWrongWithItsFields(t *testing.T) {
	t.Parallel()
	w := newWorld()
	for want, f := range map[string]kube.Finalizer{
		"kube: Finalizer.Client: is required":   {Resource: widgets, Name: ours},
		"kube: Finalizer.Resource: is required": {Client: w, Name: ours},
		"kube: Finalizer.Name: is required":     {Client: w, Resource: widgets},
		`kube: Finalizer.Name: is "teardown", must begin with a domain, as in shop.example.com/teardown`: {Client: w, Resource: widgets, Name: "teardown"},
		`kube: Finalizer.Name: is "example.com/no spaces", must be a qualified name: `:                   {Client: w, Resource: widgets, Name: "example.com/no spaces"},
	} {
		_, _, err := f.Finalize(t.Context(), newWidget("a", 1), never(t))
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, err, reconcile.ErrTerminal)
	}
	require.Empty(t, w.requests())
}

func TestATeardownOfStepsIsRepeatedUntilNothingIsLeft(t *testing.T) {
	t.Parallel()
	w := newWorld()
	a := newWidget("a", 1)
	a.Finalizers = []string{ours}
	w.put(widgets, a)
	w.remove(widgets, keyOf("shop", "a"))
	outside := map[string]bool{"schema": true, "bucket": true}
	failing := errors.New("bucket not empty")
	steps := reconcile.Steps{
		{Name: "schema", Undo: func(context.Context) error { delete(outside, "schema"); return nil }},
		{Name: "bucket", Undo: func(context.Context) error {
			if failing == nil {
				delete(outside, "bucket")
			}
			return failing
		}},
	}
	teardown := func(ctx context.Context) (bool, error) {
		if err := steps.Undo(ctx); err != nil {
			return false, err
		}
		return len(outside) == 0, nil
	}
	f := &kube.Finalizer{Client: w, Resource: widgets, Name: ours}
	_, _, err := f.Finalize(t.Context(), held(t, w), teardown)
	require.EqualError(t, err, "teardown: undo bucket: bucket not empty")
	require.Equal(t, map[string]bool{"bucket": true}, outside)
	require.NotNil(t, w.get(widgets, keyOf("shop", "a")))
	failing = nil
	_, _, err = f.Finalize(t.Context(), held(t, w), teardown)
	require.NoError(t, err)
	require.Nil(t, w.get(widgets, keyOf("shop", "a")))
}
