package operator_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// calm is a world without faults, with two machines of others, the class c0 and some objects. plan
// plans what happens.
func calm(plan func(*simtest.World), objects ...simtest.Object) (*pooled, simtest.Scenario) {
	p, s := newPooled()
	p.alone, s.Disturbances, s.Without = true, []applytest.Disturbance{}, nil
	s.Start = func(w *simtest.World) {
		p.foreign(w)
		for _, o := range append([]simtest.Object{
			{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "team"}}, class("c0"),
		}, objects...) {
			if err := w.Create(o); err != nil {
				panic(err)
			}
		}
		plan(w)
	}
	s.Edits, s.Edit, s.Settle, s.Rest = 1, func(*simtest.World) {}, 20*time.Minute, 4*time.Minute
	s.Converged = p.converged
	return p, s
}

// poolOf is the pool p0 of the class c0.
func poolOf(size, standby int, more map[string]any) simtest.Object {
	spec := map[string]any{
		"poolSize": size, "minStandby": standby, "template": map[string]any{"nodeClassRef": map[string]any{"kind": "AWSNodeClass", "name": "c0"}},
	}
	maps.Copy(spec, more)
	return own("NodePool", "p0", spec)
}

// stay is a Node that enters a state.
type stay struct {
	at          time.Time
	node, state string
	after       simtest.Object
}

// notes notes the states that Nodes enter, in order.
func notes(stays *[]stay) func(*simtest.World, simtest.Change) error {
	return func(_ *simtest.World, c simtest.Change) error {
		if c.After == nil || c.After["kind"] != "Node" {
			return nil
		}
		state := c.After.Label(v1alpha1.LabelState)
		if state != "" && (c.Before == nil || c.Before.Label(v1alpha1.LabelState) != state) {
			*stays = append(*stays, stay{time.Now(), c.After.Name(), state, c.After})
		}
		return nil
	}
}

// within fails unless a time is as long as wanted, or somewhat longer.
func within(t *testing.T, took, want, more time.Duration) {
	t.Helper()
	// States are written with seconds.
	require.GreaterOrEqual(t, took, want-time.Second)
	require.LessOrEqual(t, took, want+more)
}

// eventsAbout are the reasons of the Events about an object.
func eventsAbout(w *simtest.World, name string) (reasons []string) {
	for _, e := range w.Objects("events") {
		if e.Field("involvedObject", "name") == name {
			reason, _ := e["reason"].(string)
			reasons = append(reasons, reason)
		}
	}
	return reasons
}

// countsOf is what the status of the pool reports: on standby, running, total.
func countsOf(w *simtest.World) [3]int {
	status := func(name string) int { return integer(w.Object(poolsKind, "", "p0").Field("status", name)) }
	return [3]int{status("standby"), status("running"), status("total")}
}

// nodesIn are the Nodes in a state.
func nodesIn(w *simtest.World, state string) []simtest.Object {
	return slices.DeleteFunc(w.Objects("nodes"), func(n simtest.Object) bool { return n.Label(v1alpha1.LabelState) != state })
}

// owned are the machines of the cluster that have not ended.
func (p *pooled) owned() []cloud.Instance {
	return slices.DeleteFunc(p.Cloud.Instances(), func(i cloud.Instance) bool { return !ours(i) || i.State.Ending() })
}

// first has only the first machine of the cluster have a habit, at its first boot.
func first(is habit) func(booted) habit {
	id := ""
	return func(m booted) habit {
		if id == "" && m.tags[v1alpha1.Group+"/cluster"] == "c" {
			id = m.id
		}
		if m.id == id && m.boot == 1 {
			return is
		}
		return habit{}
	}
}

// of returns a machine.
func (p *pooled) of(id string) cloud.Instance {
	all := p.Cloud.Instances()
	if i := slices.IndexFunc(all, func(i cloud.Instance) bool { return i.ID == id }); i >= 0 {
		return all[i]
	}
	return cloud.Instance{}
}

// TestAWarmUpOverItsTimeIsStopped is D7 with stop: such a machine is the last choice.
func TestAWarmUpOverItsTimeIsStopped(t *testing.T) {
	t.Parallel()
	var stays []stay
	var reasons []any // of the condition Ready while one machine is on standby
	var told []string
	var machine cloud.Instance
	r := simtest.Simulate(t, func() simtest.Scenario {
		var p *pooled
		p, s := calm(func(w *simtest.World) {
			w.After(10*time.Minute, func() { told = eventsAbout(w, "p0") })
		}, poolOf(2, 1, map[string]any{"preWarm": map[string]any{"timeout": "50s"}}))
		p.Habit = first(habit{neverAttests: true})
		s.Check = func(w *simtest.World, c simtest.Change) error {
			if c.After != nil && c.After["kind"] == "NodePool" && countsOf(w)[0] == 1 {
				reasons = append(reasons, conditionOf(c.After, "Ready")["reason"])
			}
			was := len(stays)
			err := notes(&stays)(w, c)
			if len(stays) > was && stays[was].state == "standby" && machine.ID == "" {
				machine = p.of(stays[was].after.Label(v1alpha1.LabelInstanceID))
			}
			return err
		}
		return s
	}, 1)
	require.Empty(t, r.Wrong)
	i := slices.IndexFunc(stays, func(s stay) bool { return s.state == "standby" })
	require.GreaterOrEqual(t, i, 0, stays)
	require.Nil(t, stays[i].after.Field("metadata", "annotations", v1alpha1.AnnotationAttested))
	require.Equal(t, cloud.InstanceStopped, machine.State)
	within(t, stays[i].at.Sub(machine.LaunchTime), 50*time.Second, 20*time.Second)
	require.NotEmpty(t, reasons)
	require.Equal(t, "InsufficientStandby", reasons[0], "it does not count")
	require.Contains(t, told, "WarmupTimeout")
}

// TestAWarmUpOverItsTimeIsTerminated is D7 with terminate.
func TestAWarmUpOverItsTimeIsTerminated(t *testing.T) {
	t.Parallel()
	var joined, left simtest.Object
	var ended cloud.Instance
	var told []string
	r := simtest.Simulate(t, func() simtest.Scenario {
		var p *pooled
		p, s := calm(func(w *simtest.World) {
			w.After(45*time.Second, func() {
				if all := nodesIn(w, "warmup"); len(all) > 0 {
					joined = all[0]
				}
			})
			w.After(80*time.Second, func() {
				ended, told = p.of(joined.Label(v1alpha1.LabelInstanceID)), eventsAbout(w, "p0")
				left = w.Object("nodes", "", joined.Name())
			})
		}, poolOf(1, 1, map[string]any{"preWarm": map[string]any{"timeout": "50s", "timeoutAction": "terminate"}}))
		p.Habit = first(habit{neverStops: true})
		return s
	}, 1)
	require.Empty(t, r.Wrong)
	require.NotNil(t, joined, "it has joined")
	require.Equal(t, cloud.InstanceTerminated, ended.State)
	require.Nil(t, left, "its Node")
	require.Contains(t, told, "WarmupFailed")
}

// TestSurplusStandbyGoesAfterItsTime is D30 with surplusStandbyTTL.
func TestSurplusStandbyGoesAfterItsTime(t *testing.T) {
	t.Parallel()
	var seen bool
	var before, after int
	var counts [3]int
	var nodes int
	r := simtest.Simulate(t, func() simtest.Scenario {
		var p *pooled
		p, s := calm(func(w *simtest.World) {
			w.After(5*time.Minute, func() {
				_ = w.Update(poolsKind, "", "p0", func(o simtest.Object) { // it exists
					o.Set(1, "spec", "minStandby")
					o.Set("1m", "spec", "scaleDown", "surplusStandbyTTL")
				})
			})
			w.After(6*time.Minute-time.Second, func() {
				pool := w.Object(poolsKind, "", "p0")
				before, seen = len(p.owned()), integer(pool.Field("status", "observedGeneration")) == integer(pool.Field("metadata", "generation"))
			})
			w.After(6*time.Minute+30*time.Second, func() { after, counts, nodes = len(p.owned()), countsOf(w), len(w.Objects("nodes")) })
		}, poolOf(5, 3, nil))
		return s
	}, 1)
	require.Empty(t, r.Wrong)
	require.True(t, seen, "the new spec")
	require.Equal(t, 3, before, "they stay for a minute")
	require.Equal(t, 1, after)
	require.Equal(t, [3]int{1, 0, 1}, counts)
	require.Equal(t, 1, nodes)
}

// TestANetworkThatIsNotHeardOfOpensTheNodeAfterTwoMinutes is the end of D26: what a Node said of
// its network before its stop is no news, and it stays closed for two minutes.
func TestANetworkThatIsNotHeardOfOpensTheNodeAfterTwoMinutes(t *testing.T) {
	t.Parallel()
	var started, opened time.Time
	var closed simtest.Object
	var told []string
	bound := false
	r := simtest.Simulate(t, func() simtest.Scenario {
		p, s := calm(func(w *simtest.World) {
			w.After(5*time.Minute, func() { _ = w.Create(replicas("r0", "p0", 1, "3")) }) // it does not exist
			w.After(6*time.Minute, func() {
				for _, n := range nodesIn(w, "running") {
					closed = n
				}
			})
			w.After(8*time.Minute, func() {
				told = eventsAbout(w, closed.Name())
				for _, pod := range w.Objects("pods") {
					bound = bound || pod.Field("spec", "nodeName") == closed.Name()
				}
			})
		}, poolOf(1, 1, map[string]any{"scaleDown": map[string]any{"enabled": false}}))
		p.Habit = func(m booted) habit { return habit{neverNetwork: m.boot > 1} }
		s.Check = func(_ *simtest.World, c simtest.Change) error {
			if c.After == nil || c.After["kind"] != "Node" || c.After.Label(v1alpha1.LabelState) != "running" || !opened.IsZero() {
				return nil
			}
			switch {
			case started.IsZero():
				started = time.Now()
			case !tainted(c.After, v1alpha1.TaintNotReady):
				opened = time.Now()
			}
			return nil
		}
		return s
	}, 1)
	require.Empty(t, r.Wrong)
	require.Equal(t, "True", conditionOf(closed, "Ready")["status"])
	require.True(t, tainted(closed, v1alpha1.TaintNotReady))
	require.Equal(t, "False", conditionOf(closed, "NetworkUnavailable")["status"], "the condition of the first boot")
	within(t, opened.Sub(started), 2*time.Minute, 2*time.Second)
	require.Contains(t, told, "StartupTaintTimeout")
	require.NotContains(t, told, "StartupTaintsRemoved")
	require.True(t, bound)
}

func tainted(n simtest.Object, key string) bool {
	all, _ := n.Field("spec", "taints").([]any)
	return slices.ContainsFunc(all, func(each any) bool { taint, _ := each.(map[string]any); return taint["key"] == key })
}
