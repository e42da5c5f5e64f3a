package kube_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// typed is a widget of the world with all that it has.
func typed(t *testing.T, w *world) *widget {
	t.Helper()
	o := w.get(widgets, keyOf("shop", "a"))
	require.NotNil(t, o)
	out := &widget{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, out))
	return out
}

func ready(o *widget) {
	o.Status.Phase = "Running"
	kube.SetState(&o.Status.Conditions, kube.Ready, "PodsReady", "3 of 3")
}

func TestAStatusIsWrittenOnlyWhenItChanges(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.put(widgets, newWidget("a", 1<<53+1))
	told := 0
	s := &kube.Status[*widget]{Client: w, Resource: widgets, OnWrite: func(metav1.Object) { told++ }}
	a := typed(t, w)
	for range 3 {
		require.NoError(t, s.Update(t.Context(), a, ready))
	}
	require.NoError(t, s.Update(t.Context(), typed(t, w), ready), "after a restart, too")
	require.Equal(t, []string{"patch widgets"}, w.requests())
	require.Equal(t, 1, told)

	got := typed(t, w)
	require.Equal(t, "Running", got.Status.Phase)
	require.EqualValues(t, 1, got.Status.ObservedGeneration)
	require.EqualValues(t, 1<<53+1, got.Spec.Size)
	require.EqualValues(t, 1<<53+1, a.Spec.Size, "no number is rounded on the way")
	require.Equal(t, got.ResourceVersion, a.ResourceVersion)
	require.Empty(t, cmp.Diff(got, a), "the object is as the server has it")
	var list []string
	for _, c := range got.Status.Conditions {
		require.EqualValues(t, 1, c.ObservedGeneration)
		require.False(t, c.LastTransitionTime.IsZero())
		list = append(list, c.Type+"="+string(c.Status))
	}
	require.Equal(t, []string{"Ready=True", "Reconciling=False", "Stalled=False"}, list)
}

// counted counts how often it is written as JSON.
type counted struct {
	widget
	encoded int
}

func (c *counted) MarshalJSON() ([]byte, error) {
	c.encoded++
	return json.Marshal(&c.widget)
}

func (c *counted) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &c.widget) }

func TestAnUpdateThatChangesNothingEncodesTheObjectOnceBeforeAndOnceAfter(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.put(widgets, newWidget("a", 1))
	s := &kube.Status[*counted]{Client: w, Resource: widgets}
	update := func(o *counted) {
		ready(&o.widget)
		for i := range o.Status.Conditions {
			o.Status.Conditions[i].ObservedGeneration = o.Generation
		}
	}
	require.NoError(t, s.Update(t.Context(), &counted{widget: *typed(t, w)}, update))
	again := &counted{widget: *typed(t, w)}
	require.NoError(t, s.Update(t.Context(), again, update))
	require.Equal(t, 2, again.encoded)
	require.Equal(t, []string{"patch widgets"}, w.requests())
}

// TestAConditionThatIsSetAgainObservesTheGeneration: its status may be the same for a new
// spec. One that the pass does not set keeps what it has.
func TestAConditionThatIsSetAgainObservesTheGeneration(t *testing.T) {
	t.Parallel()
	w := newWorld()
	o := newWidget("a", 1)
	o.Status.Conditions = []metav1.Condition{
		{Type: "Foreign", Status: "True", Reason: "A", ObservedGeneration: 1}, {Type: "Unobserved", Status: "True", Reason: "A"},
	}
	w.put(widgets, o)
	s := &kube.Status[*widget]{Client: w, Resource: widgets}
	pass := func() map[string]int64 {
		require.NoError(t, s.Update(t.Context(), typed(t, w), func(o *widget) {
			kube.SetState(&o.Status.Conditions, kube.Ready, "Ready", "all is well")
		}))
		observed := map[string]int64{}
		for _, c := range typed(t, w).Status.Conditions {
			observed[c.Type] = c.ObservedGeneration
		}
		return observed
	}
	first := typed(t, w).Generation
	want := func(n int64) map[string]int64 {
		return map[string]int64{"Foreign": 1, "Unobserved": 0, "Ready": n, "Reconciling": n, "Stalled": n}
	}
	require.Equal(t, want(first), pass())
	later := typed(t, w)
	later.Spec.Size++
	w.put(widgets, later)
	require.Equal(t, want(first+1), pass(), "the same state, of a newer spec")
	require.Equal(t, want(first+1), pass())
	require.Equal(t, []string{"patch widgets", "patch widgets"}, w.requests(), "the last pass writes nothing")
}

func TestTheTransitionTimeChangesOnlyWithTheStatus(t *testing.T) {
	t.Parallel()
	w := newWorld()
	old := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Local())
	o := newWidget("a", 1)
	o.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True", Reason: "A", LastTransitionTime: old}}
	w.put(widgets, o)
	s := &kube.Status[*widget]{Client: w, Resource: widgets}
	set := func(status metav1.ConditionStatus, reason string, at metav1.Time) {
		// Built from nothing, as by a program that computes its status.
		require.NoError(t, s.Update(t.Context(), typed(t, w), func(o *widget) {
			o.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: status, Reason: reason, LastTransitionTime: at}}
		}))
	}
	at := func() metav1.Time { return typed(t, w).Status.Conditions[0].LastTransitionTime }
	set("True", "B", metav1.Now())
	require.True(t, old.Equal(new(at())), "%v", at())
	require.Equal(t, "B", typed(t, w).Status.Conditions[0].Reason)
	set("False", "B", old)
	require.WithinDuration(t, time.Now(), at().Time, time.Minute, "the old time cannot be that of a change")
	given := metav1.NewTime(time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC))
	set("True", "B", given)
	require.True(t, given.Equal(new(at())), "a time that is given for a change is kept")
	set("False", "B", metav1.Time{})
	require.WithinDuration(t, time.Now(), at().Time, time.Minute)
}

func TestConditionsOfOthersAreNeverLost(t *testing.T) {
	t.Parallel()
	w := newWorld()
	o := newWidget("a", 1)
	o.Status.Conditions = []metav1.Condition{
		{Type: "Zebra", Status: "True", Reason: "Theirs"}, {Type: "Audited", Status: "False", Reason: "Theirs"},
	}
	w.put(widgets, o)
	mine := func(o *widget) {
		o.Status.Conditions = []metav1.Condition{
			{Type: "Mine", Status: "True", Reason: "Set"},
			{Type: "Audited", Status: "True", Reason: "Mistake"},
		}
	}
	conditions := func() map[string]string {
		all := map[string]string{}
		for _, c := range typed(t, w).Status.Conditions {
			all[c.Type] = c.Reason
		}
		return all
	}
	bound := &kube.Status[*widget]{Client: w, Resource: widgets, Conditions: []string{"Mine", "Past"}}
	require.NoError(t, bound.Update(t.Context(), typed(t, w), mine))
	require.Equal(t, map[string]string{"Zebra": "Theirs", "Audited": "Theirs", "Mine": "Set"}, conditions())
	require.NoError(t, bound.Update(t.Context(), typed(t, w), func(o *widget) { o.Status.Conditions = nil }))
	require.Equal(t, map[string]string{"Zebra": "Theirs", "Audited": "Theirs"}, conditions(), "what is ours can go")

	free := &kube.Status[*widget]{Client: w, Resource: widgets}
	require.NoError(t, free.Update(t.Context(), typed(t, w), mine))
	require.Equal(t, map[string]string{"Zebra": "Theirs", "Audited": "Mistake", "Mine": "Set"}, conditions())
	require.Equal(t, "Audited", typed(t, w).Status.Conditions[0].Type, "in the order of types")
}

func TestAConflictIsMergedWithWhatTheOtherWrote(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.put(widgets, newWidget("a", 1))
	stale := typed(t, w)
	w.change(widgets, keyOf("shop", "a"), func(o *unstructured.Unstructured) {
		o.Object["spec"] = map[string]any{"size": int64(2)}
		o.Object["status"] = map[string]any{
			"theirs":     "kept",
			"conditions": []any{map[string]any{"type": "Audited", "status": "True", "reason": "Theirs"}},
		}
	})
	s := &kube.Status[*widget]{Client: w, Resource: widgets}
	require.NoError(t, s.Update(t.Context(), stale, ready))
	require.Equal(t, []string{"patch widgets", "get widgets", "patch widgets"}, w.requests())
	o := w.get(widgets, keyOf("shop", "a"))
	theirs, _, _ := unstructured.NestedString(o.Object, "status", "theirs")
	require.Equal(t, "kept", theirs, "also what the type does not know")
	got := typed(t, w)
	require.NotNil(t, meta.FindStatusCondition(got.Status.Conditions, "Audited"))
	require.EqualValues(t, 2, got.Generation)
	require.EqualValues(t, 1, got.Status.ObservedGeneration, "what the pass has seen, not what is there now")
}

// TestAStatusThatMeetsAConflictKeepsTheFinalizersOfOthers: a Finalizer writes the whole list, with the
// resourceVersion that it has.
func TestAStatusThatMeetsAConflictKeepsTheFinalizersOfOthers(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(*kube.Finalizer, *widget) error{
		"remove": func(f *kube.Finalizer, o *widget) error { return f.Remove(t.Context(), o) },
		"add": func(f *kube.Finalizer, o *widget) error {
			_, _, err := f.Finalize(t.Context(), o, never(t))
			return err
		},
	} {
		w := newWorld()
		o := newWidget("a", 1)
		if name == "remove" {
			o.Finalizers = []string{ours}
		}
		w.put(widgets, o)
		stale := typed(t, w)
		w.change(widgets, keyOf("shop", "a"), func(o *unstructured.Unstructured) {
			o.SetFinalizers(append(o.GetFinalizers(), "other.example.com/keep"))
		})
		s := &kube.Status[*widget]{Client: w, Resource: widgets}
		require.NoError(t, s.Update(t.Context(), stale, ready), name)
		require.NoError(t, write(&kube.Finalizer{Client: w, Resource: widgets, Name: ours}, stale), name)
		require.Contains(t, onServer(w), "other.example.com/keep", name)
	}
}

// TestAStatusIsAboutTheSpecThatThePassHasSeen has an edit come between: a phase that is
// taken from the spec would say of the new one what only the next pass does.
func TestAStatusIsAboutTheSpecThatThePassHasSeen(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.put(widgets, newWidget("a", 1))
	stale, plain := typed(t, w), w.get(widgets, keyOf("shop", "a"))
	w.change(widgets, keyOf("shop", "a"), func(o *unstructured.Unstructured) { o.Object["spec"] = map[string]any{"size": int64(2)} })
	s := &kube.Status[*widget]{Client: w, Resource: widgets}
	phase := func(o *widget) { o.Status.Phase = fmt.Sprint("size ", o.Spec.Size) }
	require.NoError(t, s.Update(t.Context(), stale, phase))
	require.Equal(t, []string{"patch widgets", "get widgets", "patch widgets"}, w.requests())
	got := typed(t, w)
	require.Equal(t, "size 1", got.Status.Phase)
	require.EqualValues(t, 1, got.Status.ObservedGeneration)
	require.EqualValues(t, 1, stale.Spec.Size, "the pass goes on with what it has seen")
	require.EqualValues(t, 1, stale.Generation)
	require.Equal(t, got.ResourceVersion, stale.ResourceVersion)
	require.Equal(t, got.Status, stale.Status)

	w.change(widgets, keyOf("shop", "a"), func(o *unstructured.Unstructured) {
		unstructured.RemoveNestedField(o.Object, "status", "observedGeneration")
	})
	u := &kube.Status[*unstructured.Unstructured]{Client: w, Resource: widgets}
	require.NoError(t, u.Update(t.Context(), plain, func(o *unstructured.Unstructured) {
		size, _, _ := unstructured.NestedInt64(o.Object, "spec", "size")
		_ = unstructured.SetNestedField(o.Object, fmt.Sprint("plain ", size), "status", "phase")
	}))
	require.Equal(t, "plain 1", typed(t, w).Status.Phase)
	require.EqualValues(t, 1, plain.GetGeneration())
	require.NoError(t, s.Update(t.Context(), got, phase), "the next pass, of what was stored")
	require.Equal(t, "size 2", typed(t, w).Status.Phase)
}

func TestAStatusOfWhatIsGoneOrAheadIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(*world){
		"gone": func(w *world) { w.remove(widgets, keyOf("shop", "a")) },
		"a successor": func(w *world) {
			w.remove(widgets, keyOf("shop", "a"))
			w.put(widgets, newWidget("a", 2))
		},
		"a later generation was observed": func(w *world) {
			w.change(widgets, keyOf("shop", "a"), func(o *unstructured.Unstructured) {
				o.Object["status"] = map[string]any{"observedGeneration": int64(7)}
			})
		},
	} {
		for _, had := range []string{"", "Pending"} {
			w := newWorld()
			first := newWidget("a", 1)
			first.Status.Phase = had
			w.put(widgets, first)
			stale, plain := typed(t, w), w.get(widgets, keyOf("shop", "a"))
			meanwhile(w)
			before := w.get(widgets, keyOf("shop", "a"))
			s := &kube.Status[*widget]{Client: w, Resource: widgets}
			passed := *stale
			require.NoError(t, s.Update(t.Context(), stale, ready), name)
			require.Empty(t, cmp.Diff(before, w.get(widgets, keyOf("shop", "a"))), name)
			require.Empty(t, cmp.Diff(&passed, stale), "%s: it has nothing that was not written", name)

			u := &kube.Status[*unstructured.Unstructured]{Client: w, Resource: widgets}
			passedPlain := plain.DeepCopy()
			require.NoError(t, u.Update(t.Context(), plain, func(o *unstructured.Unstructured) {
				_ = unstructured.SetNestedField(o.Object, "Running", "status", "phase")
			}), name)
			require.Empty(t, cmp.Diff(passedPlain, plain), name)
		}
	}
}

// TestAStatusThatIsLeftAloneAfterAConflictIsNotInTheObject has an edit and then a status of
// its generation come between.
func TestAStatusThatIsLeftAloneAfterAConflictIsNotInTheObject(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.put(widgets, newWidget("a", 1))
	o, writes, told := typed(t, w), 0, 0
	w.before = func(verb string) {
		if verb != "patch" {
			return
		}
		writes++
		w.change(widgets, keyOf("shop", "a"), func(o *unstructured.Unstructured) {
			if writes == 1 {
				o.Object["spec"] = map[string]any{"size": int64(2)}
			} else {
				o.Object["status"] = map[string]any{"observedGeneration": int64(2)}
			}
		})
	}
	s := &kube.Status[*widget]{Client: w, Resource: widgets, OnWrite: func(metav1.Object) { told++ }}
	require.NoError(t, s.Update(t.Context(), o, ready))
	require.Equal(t, []string{"patch widgets", "get widgets", "patch widgets", "get widgets"}, w.requests())
	require.Zero(t, told)
	require.EqualValues(t, 1, o.Generation, "what the pass has seen, not what is there now")
	require.Empty(t, o.Status)
	require.Empty(t, typed(t, w).Status.Conditions)
}

func TestAFieldLeftOutIsRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld()
	o := newWidget("a", 1)
	o.Status.Phase = "Running"
	w.put(widgets, o)
	s := &kube.Status[*widget]{Client: w, Resource: widgets}
	require.NoError(t, s.Update(t.Context(), typed(t, w), func(o *widget) { o.Status.Phase = "" }))
	_, found, _ := unstructured.NestedString(w.get(widgets, keyOf("shop", "a")).Object, "status", "phase")
	require.False(t, found)

	plain := &kube.Status[*unstructured.Unstructured]{Client: w, Resource: widgets}
	u := w.get(widgets, keyOf("shop", "a"))
	nested := func(o *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(o.Object, map[string]any{"x": map[string]any{"y": int64(1), "z": int64(2)}}, "status", "tree")
	}
	require.NoError(t, plain.Update(t.Context(), u, nested))
	w.requests()
	require.NoError(t, plain.Update(t.Context(), u, nested))
	require.Empty(t, w.requests())
	require.NoError(t, plain.Update(t.Context(), u, func(o *unstructured.Unstructured) {
		unstructured.RemoveNestedField(o.Object, "status", "tree", "x", "y")
	}))
	tree, _, _ := unstructured.NestedMap(w.get(widgets, keyOf("shop", "a")).Object, "status", "tree", "x")
	require.Equal(t, map[string]any{"z": int64(2)}, tree)
}

// bare is a kind that has no observedGeneration, and conditions of its own form.
type bare struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Status struct {
		Conditions []string `json:"conditions,omitempty"`
	} `json:"status,omitzero"`
}

func TestAStatusOfAnotherFormIsWrittenAsItIs(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.put(widgets, newWidget("a", 1))
	s := &kube.Status[*bare]{Client: w, Resource: widgets, Conditions: []string{"Ready"}}
	o := &bare{}
	data, err := json.Marshal(w.get(widgets, keyOf("shop", "a")))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, o))
	require.NoError(t, s.Update(t.Context(), o, func(*bare) {}))
	require.Empty(t, w.requests(), "a field that the type does not have is not written for ever")
	for range 2 {
		require.NoError(t, s.Update(t.Context(), o, func(o *bare) { o.Status.Conditions = []string{"x"} }))
	}
	require.Equal(t, []string{"patch widgets"}, w.requests())
	got, _, _ := unstructured.NestedFieldNoCopy(w.get(widgets, keyOf("shop", "a")).Object, "status")
	require.Equal(t, map[string]any{"conditions": []any{"x"}}, got)
}

// TestAStatusBecomesWhatAnUpdateMakesIt goes from one random status to another:
// the status on the server must then be the desired one, in one patch if it
// differs and none if not.
func TestAStatusBecomesWhatAnUpdateMakesIt(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	var tree func(depth int) map[string]any
	tree = func(depth int) map[string]any {
		m := map[string]any{}
		for range random.IntN(4) {
			name := string(rune('a' + random.IntN(4)))
			switch kind := random.IntN(5); {
			case kind < 2 && depth > 0:
				m[name] = tree(depth - 1)
			case kind == 2:
				m[name] = []any{int64(random.IntN(3)), map[string]any{"x": "y"}}
			case kind == 3:
				m[name] = random.Int64()
			default:
				m[name] = "text"
			}
		}
		return m
	}
	w := newWorld()
	w.put(widgets, newWidget("a", 1))
	s := &kube.Status[*unstructured.Unstructured]{Client: w, Resource: widgets}
	before := map[string]any{"status": map[string]any{}}
	for i := range 500 {
		want := tree(3)
		require.NoError(t, s.Update(t.Context(), w.get(widgets, keyOf("shop", "a")), func(o *unstructured.Unstructured) {
			o.Object["status"] = runtime.DeepCopyJSON(want)
		}))
		want["observedGeneration"] = int64(1)
		got := w.get(widgets, keyOf("shop", "a")).Object
		require.Empty(t, cmp.Diff(want, got["status"]), "seed %d, step %d", seed, i)
		require.Len(t, w.requests(), map[bool]int{true: 0, false: 1}[cmp.Equal(before["status"], got["status"])], "seed %d, step %d", seed, i)
		before = got
	}
}

func TestAConflictOfStatusWithoutEndIsAnErrorAndSoAreMissingFields(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.put(widgets, newWidget("a", 1))
	a := typed(t, w)
	w.before = func(verb string) {
		if verb == "patch" {
			w.change(widgets, keyOf("shop", "a"), label)
		}
	}
	s := &kube.Status[*widget]{Client: w, Resource: widgets}
	require.ErrorContains(t, s.Update(t.Context(), a, ready), "kube: widgets.example.com shop/a: status: ")
	require.EqualError(t, (&kube.Status[*widget]{Resource: widgets}).Update(t.Context(), a, ready), "kube: Status.Client: is required")
	require.EqualError(t, (&kube.Status[*widget]{Client: w}).Update(t.Context(), a, ready), "kube: Status.Resource: is required")
}

func TestStatesAreThreeConditionsOfWhichOneIsTrue(t *testing.T) {
	t.Parallel()
	var conditions []metav1.Condition
	for _, state := range []kube.State{kube.Reconciling, kube.Ready, kube.Stalled} {
		kube.SetState(&conditions, state, "Because", "of this")
		require.Len(t, conditions, 3)
		for _, c := range conditions {
			require.Equal(t, c.Type == string(state), c.Status == metav1.ConditionTrue)
		}
	}
}
