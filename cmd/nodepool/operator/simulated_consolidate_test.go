package operator_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// halfEmpty is a world in which, from 10 minutes on, each of two machines has one pod of r1, and
// both pods fit on one of them.
func halfEmpty(t *testing.T, disruption map[string]any, plan func(*simtest.World)) (stays []stay, told []string, r *simtest.Report) {
	t.Helper()
	until := 0
	r = simtest.Simulate(t, func() simtest.Scenario {
		_, s := calm(func(w *simtest.World) {
			w.After(5*time.Minute, func() { _ = w.Create(replicas("r1", "p0", 2, "1500m")) }) // it does not exist
			w.After(10*time.Minute, func() {
				if on := nodesOfPods(w); len(on) != 2 {
					w.Blame("two machines are to have a pod each, and pods are on %v", on)
				}
				_ = w.Delete("replicasets.apps", "team", "r0") // it exists
			})
			plan(w)
			w.After(19*time.Minute, func() { told, until = eventsAbout(w, "p0"), len(stays) })
		}, poolOf(3, 0, map[string]any{"disruption": disruption, "scaleDown": map[string]any{"emptyNodeTTL": "1m"}}), replicas("r0", "p0", 2, "2100m"))
		s.Check = notes(&stays)
		return s
	}, 1)
	return stays[:until], told, r
}

// nodesOfPods are the Nodes that have a pod of r1, by name.
func nodesOfPods(w *simtest.World) (on []string) {
	for _, p := range w.Objects("pods") {
		if name, _ := p.Field("spec", "nodeName").(string); strings.HasPrefix(p.Name(), "r1") && !slices.Contains(on, name) {
			on = append(on, name)
		}
	}
	slices.Sort(on)
	return on
}

// TestAMachineWhosePodsFitElsewhereIsDrained has two pods come together on one machine, while the
// other goes back to standby: once that was so for two minutes, and not before.
func TestAMachineWhosePodsFitElsewhereIsDrained(t *testing.T) {
	t.Parallel()
	var counts [3]int
	var before, after []string
	stays, told, r := halfEmpty(t, map[string]any{"consolidateAfter": "2m"}, func(w *simtest.World) {
		w.After(11*time.Minute+55*time.Second, func() { before = nodesOfPods(w) })
		w.After(19*time.Minute, func() { counts, after = countsOf(w), nodesOfPods(w) })
	})
	require.Empty(t, r.Wrong)
	require.Len(t, before, 2, "not before its time")
	require.Len(t, after, 1)
	require.Equal(t, [3]int{1, 1, 2}, counts)
	require.Contains(t, told, "Underutilized")
	i := slices.IndexFunc(stays, func(s stay) bool { return s.state == "terminating" })
	require.GreaterOrEqual(t, i, 0)
	require.Contains(t, stays[i].after.Field("metadata", "annotations", v1alpha1.AnnotationIntent), "its pods fit on other Nodes")
	require.Equal(t, 2, len(stays[i:]), "it is stopped, and no machine is started for its pod") //nolint:testifylint // Nodes are long
	require.Equal(t, stays[i].node+" standby", stays[i+1].node+" "+stays[i+1].state)
}

// Where it is off, where none may be drained now, and where a budget lets no pod go, nothing is.
func TestNoMachineIsDrainedWithoutLeave(t *testing.T) {
	t.Parallel()
	nothing := func(*simtest.World) {}
	for name, c := range map[string]struct {
		disruption map[string]any
		plan       func(*simtest.World)
	}{
		"off": {map[string]any{}, nothing},
		"none may be drained": {
			map[string]any{"consolidateAfter": "1m", "budgets": []any{map[string]any{"nodes": "0"}, map[string]any{"nodes": "100%"}}}, nothing,
		},
		"none at this time": {
			map[string]any{"consolidateAfter": "1m", "budgets": []any{map[string]any{"nodes": "0", "schedule": "* * * * *", "duration": "1h"}}}, nothing,
		},
		"a PodDisruptionBudget": {
			map[string]any{"consolidateAfter": "1m"}, func(w *simtest.World) { forbidEvictions(w, "r1") },
		},
		"a pod that asks for it": {map[string]any{"consolidateAfter": "1m"}, func(w *simtest.World) {
			w.After(10*time.Minute-time.Second, func() {
				for _, p := range w.Objects("pods") {
					_ = w.Update("pods", "team", p.Name(), func(o simtest.Object) { // it exists
						o.Set("true", "metadata", "annotations", "stratos.sh/do-not-disrupt")
					})
				}
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var after []string
			stays, told, r := halfEmpty(t, c.disruption, func(w *simtest.World) {
				c.plan(w)
				w.After(19*time.Minute, func() { after = nodesOfPods(w) })
			})
			require.Empty(t, r.Wrong)
			require.Len(t, after, 2)
			require.NotContains(t, told, "Underutilized")
			require.False(t, slices.ContainsFunc(stays, func(s stay) bool { return s.state == "terminating" }))
		})
	}
}

// TestAWrongScheduleDrainsNothing and is named in the status; machines are launched and started as
// ever.
func TestAWrongScheduleDrainsNothing(t *testing.T) {
	t.Parallel()
	var degraded map[string]any
	var after []string
	_, told, r := halfEmpty(t, map[string]any{
		"consolidateAfter": "1m", "budgets": []any{map[string]any{"nodes": "100%", "schedule": "daily", "duration": "1h"}},
	}, func(w *simtest.World) {
		w.After(19*time.Minute, func() { degraded, after = conditionOf(w.Object(poolsKind, "", "p0"), "Degraded"), nodesOfPods(w) })
	})
	require.Empty(t, r.Wrong)
	require.Len(t, after, 2)
	require.NotContains(t, told, "Underutilized")
	require.Equal(t, "True", degraded["status"])
	require.Equal(t, "ValidationFailed", degraded["reason"])
	require.Contains(t, degraded["message"], `spec.disruption.budgets[0].schedule: is "daily", must be in the syntax of cron`)
}

// TestTwoPoolsDoNotDrainOntoEachOther has two pools with a machine each, whose pods fit on either
// one, for several moments at which their passes meet. One machine goes, its pod comes to the
// other, and none is started.
func TestTwoPoolsDoNotDrainOntoEachOther(t *testing.T) {
	t.Parallel()
	anywhere := func(name string, n int, cpu string) simtest.Object {
		o := replicas(name, "", n, cpu)
		o.Set(map[string]any{"kubernetes.io/os": "linux"}, "spec", "template", "spec", "nodeSelector")
		return o
	}
	for seed := range uint64(4) {
		var stays []stay
		var on []string
		from, until := 0, 0
		r := simtest.Simulate(t, func() simtest.Scenario {
			spec := map[string]any{
				"poolSize": 1, "minStandby": 0, "disruption": map[string]any{"consolidateAfter": "30s"}, "reconciliationInterval": "5s",
				"template": map[string]any{"nodeClassRef": map[string]any{"kind": "AWSNodeClass", "name": "c0"}},
			}
			_, s := calm(func(w *simtest.World) {
				w.After(5*time.Minute, func() { _ = w.Create(anywhere("r1", 2, "1500m")) }) // it does not exist
				w.After(10*time.Minute, func() {
					if on := nodesOfPods(w); len(on) != 2 {
						w.Blame("two machines are to have a pod each, and pods are on %v", on)
					}
					from = len(stays)
					_ = w.Delete("replicasets.apps", "team", "r0") // it exists
				})
				w.After(18*time.Minute, func() { on, until = nodesOfPods(w), len(stays) })
			}, own("NodePool", "p0", spec), own("NodePool", "p1", spec), anywhere("r0", 2, "2100m"))
			s.Check = notes(&stays)
			return s
		}, seed+1)
		require.Empty(t, r.Wrong)
		require.Len(t, on, 1)
		var states []string
		for _, s := range stays[from:until] {
			states = append(states, s.state)
		}
		require.Equal(t, []string{"terminating", "standby"}, states)
	}
}

// TestAJobIsNotInterrupted has Jobs own the pods: an eviction might be a failure to them.
func TestAJobIsNotInterrupted(t *testing.T) {
	t.Parallel()
	var after []string
	stays, _, r := halfEmpty(t, map[string]any{"consolidateAfter": "1m"}, func(w *simtest.World) {
		w.After(10*time.Minute-time.Second, func() {
			for _, p := range w.Objects("pods") {
				_ = w.Update("pods", "team", p.Name(), func(o simtest.Object) { // it exists
					o.Set([]any{map[string]any{
						"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true,
					}}, "metadata", "ownerReferences")
				})
			}
		})
		w.After(19*time.Minute, func() { after = nodesOfPods(w) })
	})
	require.Empty(t, r.Wrong)
	require.Len(t, after, 2)
	require.False(t, slices.ContainsFunc(stays, func(s stay) bool { return s.state == "terminating" }))
}
