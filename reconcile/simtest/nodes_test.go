package simtest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/internal/pause"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// room is a Node with a label and a taint.
func room(name string) simtest.Object {
	n := machine(name, false)
	n.Set(map[string]any{"zone": "a"}, "metadata", "labels")
	n.Set([]any{map[string]any{"key": "dedicated", "value": "x", "effect": "NoSchedule"}}, "spec", "taints")
	return n
}

// fits is a pod that such a Node takes.
func fits() map[string]any {
	return map[string]any{
		"nodeSelector": map[string]any{"zone": "a"},
		"tolerations":  []any{map[string]any{"key": "dedicated", "operator": "Equal", "value": "x"}},
		"containers":   []any{map[string]any{"resources": map[string]any{"requests": map[string]any{"cpu": "1500m", "memory": "1Gi"}}}},
	}
}

// TestAPodGetsANodeThatTakesIt has pods of which each but one lacks something, and one that gets
// its place when the first goes.
func TestAPodGetsANodeThatTakesIt(t *testing.T) {
	t.Parallel()
	requests := func(cpu string) []any {
		return []any{map[string]any{"resources": map[string]any{"requests": map[string]any{"cpu": cpu}}}}
	}
	specs := map[string]map[string]any{
		"good": {}, "next": {}, "taint": {"tolerations": nil}, "big": {"containers": requests("2100m")},
		"zone": {"nodeSelector": map[string]any{"zone": "b"}},
	}
	s := pods(simtest.Kubelet{}, room("n1"))
	s.Edits = 3
	start := s.Start
	s.Start = func(w *simtest.World) {
		start(w)
		if err := w.Update("nodes", "", "n1", func(o simtest.Object) {
			o.Set(map[string]any{"cpu": "2", "memory": "4Gi", "pods": "10"}, "status", "allocatable")
		}); err != nil {
			panic(err)
		}
	}
	created := false
	s.Edit = func(w *simtest.World) {
		if created {
			return
		}
		created = true
		for _, name := range []string{"good", "next", "taint", "big", "zone"} {
			pod := simtest.Object{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"namespace": "shop", "name": name}, "spec": fits()}
			for field, value := range specs[name] {
				pod.Set(value, "spec", field)
			}
			if err := w.Create(pod); err != nil {
				panic(err)
			}
			if name == "good" {
				w.After(2*time.Minute, func() { _ = w.As("owner").Delete("pods", "shop", "good") }) // it exists
			}
		}
	}
	bound := map[string]any{}
	s.Check = func(w *simtest.World, c simtest.Change) error {
		// The second world has a Node without limits.
		allocatable := w.Object("nodes", "", "n1").Field("status", "allocatable")
		if allocatable != nil && c.After["kind"] == "Pod" && c.After.Field("spec", "nodeName") != nil {
			bound[c.After.Name()] = c.After.Field("spec", "nodeName")
		}
		return nil
	}
	s.Converged = func(w *simtest.World) error {
		for _, pod := range w.Objects("pods") {
			refused := fmt.Sprint(pod.Field("status", "conditions"))
			if pod.Field("spec", "nodeName") == nil && !strings.Contains(refused, "reason:Unschedulable status:False type:PodScheduled") {
				return fmt.Errorf("%s waits: %s", pod.Name(), refused)
			}
		}
		return nil
	}
	s.Disturbances = []applytest.Disturbance{simtest.LateEvents}
	require.Empty(t, simtest.Simulate(t, always(s), 1).Wrong)
	require.Len(t, bound, 2, "%v", bound)
	require.Equal(t, "n1", bound["good"])
	require.Equal(t, "n1", bound["next"])
}

// TestCallsAreKilledLikeRequests sweeps a program that does nothing but call a service.
func TestCallsAreKilledLikeRequests(t *testing.T) {
	t.Parallel()
	calls := 0
	scenario := func() simtest.Scenario {
		s := pods(simtest.Kubelet{})
		s.Edits, s.Settle, s.Edit = 1, time.Minute, func(*simtest.World) {}
		s.Program = func(ctx context.Context, net http.RoundTripper) error {
			for n := 0; pause.For(ctx, 20*time.Second); n++ {
				err := simtest.Call(ctx, net, fmt.Sprint("service ", n%2), func(*simtest.World) error { calls++; return nil })
				if err != nil && !errors.Is(err, applytest.ErrCrashed) && ctx.Err() == nil {
					return err
				}
			}
			return nil
		}
		return s
	}
	c := simtest.Sweep(t, scenario, 1)
	require.Empty(t, c.Failed)
	require.Greater(t, c.Boundaries, 4)
	require.Equal(t, c.Boundaries, c.Reached)
	require.Positive(t, calls)
	require.Error(t, simtest.Call(t.Context(), http.DefaultTransport, "service", nil))
}

// TestAKilledCallIsCarriedOutOrNot has a program that calls once more after it was killed.
func TestAKilledCallIsCarriedOutOrNot(t *testing.T) {
	t.Parallel()
	var traces strings.Builder
	for seed := range uint64(12) {
		s := pods(simtest.Kubelet{})
		s.Disturbances, s.Rest = []applytest.Disturbance{applytest.KillBefore, applytest.KillAfter}, time.Hour
		s.Program = func(ctx context.Context, net http.RoundTripper) error {
			for pause.For(ctx, time.Second) {
				if err := simtest.Call(ctx, net, "service", func(*simtest.World) error { return nil }); errors.Is(err, applytest.ErrCrashed) {
					err = simtest.Call(context.WithoutCancel(ctx), net, "late", func(*simtest.World) error { return nil })
					require.ErrorIs(t, err, applytest.ErrCrashed)
				}
			}
			return nil
		}
		trace := simtest.Simulate(t, always(s), seed+1).Trace
		_, calm, _ := strings.Cut(trace, "no more faults")
		require.NotContains(t, calm, ": kill ")
		traces.WriteString(trace)
	}
	require.NotContains(t, traces.String(), "late: done")
	require.Regexp(t, `kill before call service\n`, traces.String())
	require.NotRegexp(t, `kill before call service\n.*: call service: done`, traces.String())
	require.Regexp(t, `kill after call service\n.*: call service: done`, traces.String())
}

// TestAScenarioHasHabitsOfItsOwn in about half of its histories each.
func TestAScenarioHasHabitsOfItsOwn(t *testing.T) {
	t.Parallel()
	const bite, rain applytest.Disturbance = "bite at", "rain"
	bites, has, lasts := 0, 0, 0
	for seed := range uint64(20) {
		s := pods(simtest.Kubelet{})
		s.Rest = time.Minute
		s.Habits = []simtest.Habit{
			{Name: bite, Spell: time.Hour, Act: func(*simtest.World, applytest.Request) { bites++ }}, {Name: rain, Always: true},
		}
		s.Disturbances = []applytest.Disturbance{bite, rain}
		s.Program = func(ctx context.Context, net http.RoundTripper) error {
			for pause.For(ctx, time.Second) {
				_, _ = send(ctx, net, http.MethodGet, "/api/v1/pods", "")
			}
			return nil
		}
		edit := s.Edit
		s.Edit = func(w *simtest.World) {
			edit(w)
			if w.Has(rain) {
				has++
			}
			if w.Lasts(bite) {
				lasts++
			}
		}
		require.Empty(t, simtest.Simulate(t, always(s), seed+1).Wrong)
	}
	require.Positive(t, bites)
	require.Positive(t, lasts)
	require.Greater(t, has, 60)
	require.Less(t, has, 340)
}
