package operator_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// TestTimesInASimulatedWorld is D3 and D31 without chance of a busy computer. Six pods that need a
// machine each come while six are on standby. Each machine is asked to start within 2 s, and each
// pod is bound within 10 s beside the boot of 15 s. Then all kubelets are silent for five minutes,
// and nothing is stopped, terminated, launched or started.
func TestTimesInASimulatedWorld(t *testing.T) {
	t.Parallel()
	const boot, machines = 15 * time.Second, 6
	refused, bound := map[string]time.Time{}, map[string]time.Time{}
	var started []time.Time
	var silent, silenced bool
	scenario := func() simtest.Scenario {
		p, s := newPooled()
		p.Boot, s.Disturbances, s.Without = boot, []applytest.Disturbance{}, nil
		s.Start = func(w *simtest.World) {
			p.foreign(w)
			for _, o := range []simtest.Object{
				{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "team"}},
				class("c0"),
				own("NodePool", "p0", map[string]any{
					"poolSize": machines, "minStandby": machines, "scaleDown": map[string]any{"enabled": false},
					"template": map[string]any{"nodeClassRef": map[string]any{"kind": "AWSNodeClass", "name": "c0"}},
				}),
			} {
				if err := w.Create(o); err != nil {
					panic(err)
				}
			}
			w.After(5*time.Minute, func() { _ = w.Create(replicas("r0", "p0", machines, "3")) }) // it does not exist
			w.After(10*time.Minute, func() {
				silent = true
				p.Silence(w, 5*time.Minute)
			})
			w.After(20*time.Minute, func() { silent, silenced = false, true })
		}
		s.Edits, s.Edit, s.Settle, s.Rest = 1, func(*simtest.World) {}, 40*time.Minute, 10*time.Minute
		s.Converged = p.converged
		p.OnCall = func(w *simtest.World, c cloudtest.Call) {
			p.judge(w, c)
			if silenced || len(p.Cloud.Instances()) < 2 || p.Cloud.Instances()[0].Tags["stratos.sh/cluster"] != "other" {
				return // a second world
			}
			switch c.Operation {
			case "StartInstance", "StopInstance", "TerminateInstance", "LaunchInstance":
				if silent {
					w.Blame("%s of %v while all kubelets are silent", c.Operation, c.IDs)
				}
				if c.Operation == "StartInstance" {
					for range c.IDs {
						started = append(started, time.Now())
					}
				}
			default:
			}
		}
		s.Check = func(_ *simtest.World, c simtest.Change) error {
			if c.By != "scheduler" || silenced {
				return nil
			}
			if c.After.Field("spec", "nodeName") != nil {
				bound[c.After.Name()] = time.Now()
			} else {
				refused[c.After.Name()] = time.Now()
			}
			return nil
		}
		return s
	}
	require.Empty(t, simtest.Simulate(t, scenario, 1).Wrong)
	require.True(t, silenced)
	require.Len(t, refused, machines)
	require.Len(t, started, machines, "each is started once")
	var last time.Time
	for name, at := range refused {
		require.LessOrEqual(t, bound[name].Sub(at), boot+10*time.Second, name)
		if at.After(last) {
			last = at
		}
	}
	for _, at := range started {
		require.LessOrEqual(t, at.Sub(last), 2*time.Second)
	}
}

// TestAPoolWaitsForItsClass has a pool whose class comes after ten minutes. While the class is
// missing the program rests: without that, time would not pass.
func TestAPoolWaitsForItsClass(t *testing.T) {
	t.Parallel()
	var degraded any
	r := simtest.Simulate(t, func() simtest.Scenario {
		p, s := newPooled()
		p.alone = true
		s.Disturbances, s.Without = []applytest.Disturbance{}, nil
		s.Start = func(w *simtest.World) {
			p.foreign(w)
			for _, o := range []simtest.Object{
				{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "team"}}, poolOf(2, 1, nil),
			} {
				if err := w.Create(o); err != nil {
					panic(err)
				}
			}
			w.After(10*time.Minute, func() {
				degraded = conditionOf(w.Object(poolsKind, "", "p0"), "Degraded")["reason"]
				_ = w.Create(class("c0")) // it does not exist
				w.Within(12*time.Second, "the pool launches", func(*simtest.World) bool { return slices.ContainsFunc(p.Cloud.Instances(), ours) })
			})
		}
		s.Edits, s.Edit, s.Settle, s.Rest = 1, func(*simtest.World) {}, 30*time.Minute, 10*time.Minute
		s.Converged = p.converged
		return s
	}, 1)
	require.Empty(t, r.Wrong)
	require.Equal(t, "NodeClassNotFound", degraded)
	require.Less(t, r.Requests, 300)
}

// TestMachinesComeAndGoInTime has the bounds of C14, D4, D17 and D30: a machine that others terminate is
// replaced within two passes, an empty one stops once its time is over, and what is over minStandby
// goes once its own is.
func TestMachinesComeAndGoInTime(t *testing.T) {
	t.Parallel()
	const pass, stop = 36*time.Second + time.Second, 15 * time.Second
	r := simtest.Simulate(t, func() simtest.Scenario {
		var p *pooled // of the scenario, below
		are := func(want int, state cloud.State) func(*simtest.World) bool {
			return func(w *simtest.World) bool {
				return want == len(slices.DeleteFunc(w.Objects("nodes"), func(n simtest.Object) bool {
					return n.Label(v1alpha1.LabelState) != string(state)
				}))
			}
		}
		scale := func(w *simtest.World, n int) {
			_ = w.Update("replicasets.apps", "team", "r0", func(o simtest.Object) { o.Set(n, "spec", "replicas") }) // it exists
		}
		var s simtest.Scenario
		p, s = calm(func(w *simtest.World) {
			w.After(5*time.Minute, func() {
				id := w.Objects("nodes")[0].Label(v1alpha1.LabelInstanceID)
				if err := p.Cloud.TerminateInstance(context.Background(), id); err != nil {
					panic(err)
				}
				w.Within(2*pass, "it is replaced", func(w *simtest.World) bool {
					live := slices.DeleteFunc(p.Cloud.Instances(), func(i cloud.Instance) bool { return !ours(i) || i.State.Ending() })
					return len(live) == 3 && !slices.ContainsFunc(w.Objects("nodes"), func(n simtest.Object) bool {
						return n.Label(v1alpha1.LabelInstanceID) == id
					})
				})
			})
			w.After(10*time.Minute, func() { scale(w, 1) })
			w.After(14*time.Minute, func() {
				if !are(1, cloud.StateRunning)(w) || !are(3, cloud.StateStandby)(w) {
					w.Blame("one machine is to run, and three to be on standby")
				}
				scale(w, 0)
				w.Within(time.Minute+2*pass+stop, "an empty machine stops", are(0, cloud.StateRunning))
			})
			w.After(19*time.Minute, func() {
				_ = w.Update(poolsKind, "", "p0", func(o simtest.Object) { o.Set(1, "spec", "minStandby") }) // it exists
				w.Within(time.Minute+2*pass, "what is over goes", are(1, cloud.StateStandby))
			})
		}, poolOf(5, 3, map[string]any{
			"scaleDown": map[string]any{"emptyNodeTTL": "1m", "surplusStandbyTTL": "1m"},
		}), replicas("r0", "p0", 0, "3"))
		p.Boot, s.Prompt, s.Settle = 15*time.Second, true, 25*time.Minute
		return s
	}, 1)
	require.Empty(t, r.Wrong)
}
