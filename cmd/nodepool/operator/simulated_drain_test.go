package operator_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// TestAPoolThatGoesEvictsThePodsOfALostNode deletes a pool and the Node of its machine, which runs
// a pod: the machine is terminated once its pod has ended.
func TestAPoolThatGoesEvictsThePodsOfALostNode(t *testing.T) {
	t.Parallel()
	evicted := 0
	r := simtest.Simulate(t, func() simtest.Scenario {
		_, s := calm(func(w *simtest.World) {
			w.After(10*time.Minute, func() {
				_ = w.Delete(poolsKind, "", "p0") // it exists
				for _, n := range w.Objects("nodes") {
					_ = w.As("cloud-controller-manager").Delete("nodes", "", n.Name()) // it exists
				}
			})
		}, poolOf(1, 0, nil), replicas("r0", "p0", 1, "1"))
		s.Check = func(_ *simtest.World, c simtest.Change) error {
			if c.By == "program" && c.Request.Subresource == "eviction" {
				evicted++
			}
			return nil
		}
		return s
	}, 1)
	require.Empty(t, r.Wrong)
	require.Positive(t, evicted)
}

// TestAPodThatWaitsForAFinalizerHoldsNoMachine has a pod whose kubelet has ended it, and whose finalizer
// is not removed: its machine is stopped like one without pods, and is not started for it.
func TestAPodThatWaitsForAFinalizerHoldsNoMachine(t *testing.T) {
	t.Parallel()
	var pods, running, standby []int
	r := simtest.Simulate(t, func() simtest.Scenario {
		_, s := calm(func(w *simtest.World) {
			finalizers := func(list ...any) {
				for _, p := range w.Objects("pods") {
					_ = w.As("person").Update("pods", "team", p.Name(), func(o simtest.Object) { o.Set(list, "metadata", "finalizers") }) // it exists
				}
			}
			w.After(5*time.Minute, func() { _ = w.Create(replicas("r0", "p0", 1, "1")) }) // it does not exist
			w.After(8*time.Minute, func() {
				finalizers("example.com/a")
				_ = w.Delete("replicasets.apps", "team", "r0") // it exists
				for _, p := range w.Objects("pods") {
					_ = w.Delete("pods", "team", p.Name()) // it exists
				}
			})
			for _, at := range []time.Duration{8*time.Minute + time.Second, 15 * time.Minute, 18 * time.Minute} {
				w.After(at, func() {
					pods = append(pods, len(w.Objects("pods")))
					running, standby = append(running, len(nodesIn(w, "running"))), append(standby, len(nodesIn(w, "standby")))
				})
			}
			w.After(19*time.Minute, func() { finalizers() })
		}, poolOf(1, 1, nil))
		return s
	}, 1)
	require.Empty(t, r.Wrong)
	require.Equal(t, []int{1, 1, 1}, pods)
	require.Equal(t, []int{1, 0, 0}, running)
	require.Equal(t, []int{0, 1, 1}, standby)
}

// TestAPoolThatGoesKeepsItsNodesClosed has a person open the Node of a machine whose pod is not
// evicted, because of its budget. The machine goes after the time of the drain.
func TestAPoolThatGoesKeepsItsNodesClosed(t *testing.T) {
	t.Parallel()
	var closed []any
	r := simtest.Simulate(t, func() simtest.Scenario {
		_, s := calm(func(w *simtest.World) {
			forbidEvictions(w, "r0")
			w.After(10*time.Minute, func() { _ = w.Delete(poolsKind, "", "p0") }) // it exists
			w.After(10*time.Minute+20*time.Second, func() {
				for _, n := range w.Objects("nodes") {
					_ = w.As("administrator").Update("nodes", "", n.Name(), func(o simtest.Object) { o.Set(false, "spec", "unschedulable") }) // it exists
				}
			})
			w.After(10*time.Minute+21*time.Second, func() {
				for _, n := range w.Objects("nodes") {
					closed = append(closed, n.Field("spec", "unschedulable"))
				}
			})
		}, poolOf(1, 0, nil), replicas("r0", "p0", 1, "1"))
		return s
	}, 1)
	require.Empty(t, r.Wrong)
	require.Equal(t, []any{true}, closed)
}

// TestAClassDoesNotCountAPoolThatIsGone looks at the class a minute after the end of its pool.
func TestAClassDoesNotCountAPoolThatIsGone(t *testing.T) {
	t.Parallel()
	var counted []int
	gone := false
	r := simtest.Simulate(t, func() simtest.Scenario {
		_, s := calm(func(w *simtest.World) {
			count := func() {
				counted = append(counted, integer(w.Object(classesKind, "", "c0").Field("status", "nodePoolCount")))
			}
			w.After(3*time.Minute, func() {
				count()
				_ = w.Delete(poolsKind, "", "p0") // it exists
			})
			w.After(4*time.Minute, func() {
				count()
				gone = w.Object(poolsKind, "", "p0") == nil
			})
		}, poolOf(1, 1, nil))
		return s
	}, 1)
	require.Empty(t, r.Wrong)
	require.True(t, gone)
	require.Equal(t, []int{1, 0}, counted)
}

// forbidEvictions forbids every eviction of the pods of a ReplicaSet.
func forbidEvictions(w *simtest.World, app string) {
	_ = w.Create(simtest.Object{ // it does not exist
		"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": map[string]any{"namespace": "team", "name": app},
		"spec": map[string]any{"maxUnavailable": 0, "selector": map[string]any{"matchLabels": map[string]any{"app": app}}},
	})
	_ = w.Update("poddisruptionbudgets.policy", "team", app, func(o simtest.Object) { o.Set(1, "status", "observedGeneration") }) // it exists
}

// TestADrainThatABudgetForbidsIsGivenUp is D6: the machine is drained when its minute is over,
// opened again 8 s later, and its pod runs on.
func TestADrainThatABudgetForbidsIsGivenUp(t *testing.T) {
	t.Parallel()
	var stays []stay
	var pods []string
	var told, toldNode []string
	r := simtest.Simulate(t, func() simtest.Scenario {
		_, s := calm(func(w *simtest.World) {
			forbidEvictions(w, "r0")
			w.After(5*time.Minute, func() { _ = w.Create(replicas("r0", "p0", 1, "1")) }) // it does not exist
			for _, at := range []time.Duration{6 * time.Minute, 8 * time.Minute} {
				w.After(at, func() {
					for _, p := range w.Objects("pods") {
						pods = append(pods, p.UID())
					}
				})
			}
			w.After(8*time.Minute, func() { told, toldNode = eventsAbout(w, "p0"), eventsAbout(w, stays[0].node) })
			w.After(9*time.Minute, func() { // else it is drained again and again
				_ = w.Update(poolsKind, "", "p0", func(o simtest.Object) { o.Set("24h", "spec", "maxNodeRuntime") }) // it exists
			})
		}, poolOf(1, 1, map[string]any{"maxNodeRuntime": "1m", "scaleDown": map[string]any{"drainTimeout": "8s"}}))
		s.Check = notes(&stays)
		return s
	}, 1)
	require.Empty(t, r.Wrong)
	i := slices.IndexFunc(stays, func(s stay) bool { return s.state == "running" })
	require.GreaterOrEqual(t, i, 0, stays)
	require.GreaterOrEqual(t, len(stays), i+3, stays)
	runs, drained, open := stays[i], stays[i+1], stays[i+2]
	require.Equal(t, []string{"terminating", "running"}, []string{drained.state, open.state})
	require.Contains(t, drained.after.Field("metadata", "annotations", v1alpha1.AnnotationIntent), `"step":"drain"`)
	require.NotEqual(t, true, open.after.Field("spec", "unschedulable"))
	within(t, drained.at.Sub(runs.at), time.Minute, 2*time.Second)
	within(t, open.at.Sub(drained.at), 8*time.Second, 6*time.Second)
	require.Len(t, pods, 2)
	require.Equal(t, pods[0], pods[1], "the budget forbids the eviction")
	require.Contains(t, told, "DrainGivenUp")
	require.Contains(t, toldNode, "MaxRuntimeApproaching")
}

// TestAPodThatAsksNotToBeDisruptedOutlivesTheRuntimeOfItsMachine has a pod with the annotation of
// Karpenter, which loses it after ten minutes.
func TestAPodThatAsksNotToBeDisruptedOutlivesTheRuntimeOfItsMachine(t *testing.T) {
	t.Parallel()
	var stays []stay
	var told []string
	var allowed time.Time
	r := simtest.Simulate(t, func() simtest.Scenario {
		_, s := calm(func(w *simtest.World) {
			set := replicas("r0", "p0", 1, "1")
			set.Set(map[string]any{"karpenter.sh/do-not-disrupt": "true"}, "spec", "template", "metadata", "annotations")
			w.After(5*time.Minute, func() { _ = w.Create(set) }) // it does not exist
			w.After(15*time.Minute, func() {
				allowed, told = time.Now(), eventsAbout(w, stays[len(stays)-1].node)
				_ = w.Update("replicasets.apps", "team", "r0", func(o simtest.Object) { // it exists
					o.Set(map[string]any{}, "spec", "template", "metadata", "annotations")
				})
				for _, p := range w.Objects("pods") {
					_ = w.Update("pods", "team", p.Name(), func(o simtest.Object) { o.Set(map[string]any{}, "metadata", "annotations") })
				}
			})
			w.After(17*time.Minute, func() { // else it is drained again and again
				_ = w.Update(poolsKind, "", "p0", func(o simtest.Object) { o.Set("24h", "spec", "maxNodeRuntime") }) // it exists
			})
		}, poolOf(1, 1, map[string]any{"maxNodeRuntime": "7m"}))
		s.Check = notes(&stays)
		return s
	}, 1)
	require.Empty(t, r.Wrong)
	i := slices.IndexFunc(stays, func(s stay) bool { return s.state == "running" })
	require.GreaterOrEqual(t, i, 0, stays)
	require.Greater(t, len(stays), i+1, stays)
	require.Equal(t, "terminating", stays[i+1].state)
	require.False(t, stays[i+1].at.Before(allowed), "the pod asks not to be disrupted")
	require.Less(t, stays[i+1].at.Sub(allowed), 40*time.Second)
	require.NotContains(t, told, "MaxRuntimeApproaching")
}
