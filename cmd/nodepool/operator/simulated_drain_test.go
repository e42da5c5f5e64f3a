package operator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// usedPool is a pool of one machine, which runs a pod. The pool is deleted after ten minutes, and
// then is called.
func usedPool(p *pooled, s simtest.Scenario, then func(w *simtest.World)) simtest.Scenario {
	p.alone = true
	s.Disturbances, s.Without = []applytest.Disturbance{}, nil
	s.Start = func(w *simtest.World) {
		p.foreign(w)
		for _, o := range []simtest.Object{
			{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "team"}}, class("c0"), replicas("r0", "p0", 1, "1"),
			own("NodePool", "p0", map[string]any{
				"poolSize": 1, "minStandby": 0, "template": map[string]any{"nodeClassRef": map[string]any{"kind": "AWSNodeClass", "name": "c0"}},
			}),
		} {
			if err := w.Create(o); err != nil {
				panic(err)
			}
		}
		w.After(10*time.Minute, func() {
			if w.Delete(poolsKind, "", "p0") == nil {
				then(w)
			}
		})
	}
	s.Edits, s.Edit, s.Settle, s.Rest = 1, func(*simtest.World) {}, 30*time.Minute, 10*time.Minute
	s.Converged = p.converged
	return s
}

// TestAPoolThatGoesEvictsThePodsOfALostNode deletes the Node of a machine that runs a pod: the
// machine is terminated once its pod has ended.
func TestAPoolThatGoesEvictsThePodsOfALostNode(t *testing.T) {
	t.Parallel()
	evicted := 0
	r := simtest.Simulate(t, func() simtest.Scenario {
		p, s := newPooled()
		s = usedPool(p, s, func(w *simtest.World) {
			for _, n := range w.Objects("nodes") {
				_ = w.As("cloud-controller-manager").Delete("nodes", "", n.Name()) // it exists
			}
		})
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

// TestAPoolThatGoesKeepsItsNodesClosed has a person open the Node of a machine whose pod is not
// evicted, because of its budget. The machine goes after the time of the drain.
func TestAPoolThatGoesKeepsItsNodesClosed(t *testing.T) {
	t.Parallel()
	var closed []any
	r := simtest.Simulate(t, func() simtest.Scenario {
		p, s := newPooled()
		return usedPool(p, s, func(w *simtest.World) {
			_ = w.Create(simtest.Object{ // it does not exist
				"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": map[string]any{"namespace": "team", "name": "all"},
				"spec":   map[string]any{"minAvailable": 1, "selector": map[string]any{"matchLabels": map[string]any{"app": "r0"}}},
				"status": map[string]any{"disruptionsAllowed": 0},
			})
			for _, n := range w.Objects("nodes") {
				w.After(20*time.Second, func() {
					_ = w.As("administrator").Update("nodes", "", n.Name(), func(o simtest.Object) { o.Set(false, "spec", "unschedulable") }) // it exists
				})
				w.After(21*time.Second, func() { closed = append(closed, w.Object("nodes", "", n.Name()).Field("spec", "unschedulable")) })
			}
		})
	}, 1)
	require.Empty(t, r.Wrong)
	require.Equal(t, []any{true}, closed)
}
