package cloud_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// spare makes a memory in which the pods of machines have fitted on other Nodes for a time.
func spare(d time.Duration, ids ...string) func(*cloud.Observed) {
	return func(o *cloud.Observed) {
		o.Memory.Machines = map[string]cloud.MachineHistory{}
		for _, id := range ids {
			o.Memory.Machines[id] = cloud.MachineHistory{
				State: cloud.InstanceRunning, Since: noon.Add(-time.Hour), Listed: true, Spare: noon.Add(-d),
			}
		}
	}
}

func TestGoodMachinesAreDisruptedWithinBounds(t *testing.T) {
	const three = "i-1 running running ready pods=1 started=2h\ni-2 running running ready pods=1 started=3h\ni-3 running running ready pods=1 started=4h"
	pool := func(change func(*cloud.Pool)) cloud.Pool {
		p := cloud.Pool{Scope: scope, Size: 9, ConsolidateAfter: 10 * time.Minute}
		if change != nil {
			change(&p)
		}
		return p
	}
	all := cloud.Want{Vacate: []string{"i-2", "i-1", "i-3"}}
	both := func(a, b func(*cloud.Observed)) func(*cloud.Observed) {
		return func(o *cloud.Observed) { a(o); b(o) }
	}
	drain := func(id, why string) string { return "drain " + id + " (running -> terminating): " + why }
	const fits, old = "its pods fit on other Nodes", "it is over its runtime"
	for name, c := range map[string]struct {
		pool     cloud.Pool
		machines string
		change   func(*cloud.Observed)
		want     cloud.Want
		plan     []string
		wake     time.Duration // zero: not looked at
	}{
		"the first choice goes, one at a time": {
			pool: pool(nil), machines: three, change: spare(10*time.Minute, "i-1", "i-2", "i-3"), want: all, plan: []string{drain("i-2", fits)},
		},
		"not before its time": {
			pool: pool(nil), machines: three, change: spare(10*time.Minute-time.Second, "i-1", "i-2", "i-3"), want: all, wake: time.Second,
		},
		"nor when it is seen for the first time": {pool: pool(nil), machines: three, want: all, wake: 10 * time.Minute},
		"nor what demand does not name any more": {
			pool: pool(nil), machines: three, change: spare(time.Hour, "i-1", "i-2", "i-3"), want: cloud.Want{Vacate: []string{"i-3"}},
			plan: []string{drain("i-3", fits)},
		},
		"nor where it is off": {
			pool: pool(func(p *cloud.Pool) { p.ConsolidateAfter = 0 }), machines: three, change: spare(time.Hour, "i-1", "i-2", "i-3"), want: all,
		},
		"as many as are allowed": {
			pool: pool(func(p *cloud.Pool) { p.Disruptions = 2 }), machines: three, change: spare(time.Hour, "i-1", "i-2", "i-3"), want: all,
			plan: []string{drain("i-1", fits), drain("i-2", fits)},
		},
		"none may go": {
			pool: pool(func(p *cloud.Pool) { p.Disruptions, p.MaxRuntime = -1, time.Hour }), machines: three, want: all,
			change: spare(time.Hour, "i-1", "i-2", "i-3"),
		},
		"what is on its way counts": {
			pool: pool(func(p *cloud.Pool) { p.Disruptions, p.MaxRuntime = 2, 3*time.Hour }), want: all,
			machines: "i-1 running running ready pods=1 started=2h\ni-2 running running ready pods=1 started=3h\ni-3 terminating running pods=1 since=1m intent=stop",
			change:   both(spare(time.Hour, "i-1", "i-2", "i-3"), func(o *cloud.Observed) { o.Nodes[2].Intent.Reason = cloud.ReasonUnderutilized }),
			plan:     []string{drain("i-2", old), "drain i-3: pods are left on it"},
		},
		"what is over its runtime goes first, the oldest before all": {
			pool: pool(func(p *cloud.Pool) { p.Disruptions, p.MaxRuntime = 2, 3*time.Hour }), machines: three, want: all,
			change: spare(time.Hour, "i-1", "i-2", "i-3"),
			plan:   []string{drain("i-2", old), drain("i-3", old)},
		},
		"and leaves what is allowed beyond to the others": {
			pool: pool(func(p *cloud.Pool) { p.Disruptions, p.MaxRuntime = 2, 4*time.Hour }), machines: three, want: all,
			change: spare(time.Hour, "i-1", "i-2", "i-3"),
			plan:   []string{drain("i-2", fits), drain("i-3", old)},
		},
		"a pod that asks not to be disrupted keeps its machine": {
			pool: pool(nil), machines: three, want: all,
			change: both(spare(time.Hour, "i-1", "i-2", "i-3"), func(o *cloud.Observed) { o.Nodes[1].DoNotDisrupt = true }),
			plan:   []string{drain("i-1", fits)},
		},
		"after a drain that was given up none is tried for a while": {
			pool: pool(nil), machines: three, want: all, change: both(spare(time.Hour, "i-1", "i-2", "i-3"), func(o *cloud.Observed) {
				h := o.Memory.Machines["i-2"]
				h.GaveUp = noon.Add(-9 * time.Minute)
				o.Memory.Machines["i-2"] = h
			}),
		},
		"nothing is moved while another Node of the pool is not ready": {
			pool: pool(nil), machines: three + "\ni-4 running running pods=1 started=2h", want: all,
			change: both(spare(time.Hour, "i-1", "i-2", "i-3"), func(o *cloud.Observed) {
				o.Memory.Machines["i-4"] = cloud.MachineHistory{State: cloud.InstanceRunning, Since: noon, Listed: true, Unready: noon.Add(-time.Second)}
			}),
		},
		"nor on a list that is not trusted": {
			pool: pool(nil), machines: three + "\ni-5 running - ready\ni-6 running - ready", want: all,
			change: both(spare(time.Hour, "i-1", "i-2", "i-3"), func(o *cloud.Observed) {
				for _, id := range []string{"i-5", "i-6"} {
					o.Memory.Machines[id] = cloud.MachineHistory{Since: noon, Listed: true}
				}
			}),
			plan: []string{"held back: ShortList: 2 of 5 machines are missing from the list, at most 1 may be deleted at once: nothing is launched or terminated"},
		},
		"pods must have been there for the time, too": {
			pool: pool(nil), machines: three, want: all, wake: 4 * time.Minute,
			change: both(spare(time.Hour, "i-1", "i-2", "i-3"), func(o *cloud.Observed) {
				for i := range o.Nodes {
					o.Nodes[i].PodsSince = noon.Add(-6 * time.Minute)
				}
			}),
		},
		"nor while pods are on their way": {
			pool: pool(nil), machines: three, want: cloud.Want{Vacate: all.Vacate, VacateLater: true}, change: spare(time.Hour, "i-1", "i-2", "i-3"),
		},
		"more are on their way than may be": {
			pool: pool(func(p *cloud.Pool) { p.MaxRuntime = 3 * time.Hour }), want: all,
			machines: "i-1 running running ready pods=1 started=4h\ni-2 terminating stopping since=1m intent=stop\ni-3 terminating stopping since=1m intent=stop",
			change: both(spare(time.Hour, "i-1", "i-2", "i-3"), func(o *cloud.Observed) {
				o.Nodes[1].Intent.Reason, o.Nodes[2].Intent.Reason = cloud.ReasonUnderutilized, cloud.ReasonRuntime
			}),
		},
		"the first Node that is not ready counts as the last": {
			pool: pool(nil), machines: "i-0 running running pods=1 started=2h\n" + three, want: all,
			change: both(spare(time.Hour, "i-1", "i-2", "i-3"), func(o *cloud.Observed) {
				o.Memory.Machines["i-0"] = cloud.MachineHistory{State: cloud.InstanceRunning, Since: noon, Listed: true, Unready: noon.Add(-time.Second)}
			}),
		},
		"the end of a runtime does not wait for it": {
			pool: pool(func(p *cloud.Pool) { p.MaxRuntime = 4 * time.Hour }), machines: "i-0 running running pods=1 started=2h\n" + three, want: all,
			change: both(spare(time.Hour, "i-1", "i-2", "i-3"), func(o *cloud.Observed) {
				o.Memory.Machines["i-0"] = cloud.MachineHistory{State: cloud.InstanceRunning, Since: noon, Listed: true, Unready: noon.Add(-time.Second)}
			}),
			plan: []string{drain("i-3", old)},
		},
		"a while after a drain that was given up one is tried again": {
			pool: pool(nil), machines: three, want: all, change: both(spare(time.Hour, "i-1", "i-2", "i-3"), func(o *cloud.Observed) {
				h := o.Memory.Machines["i-2"]
				h.GaveUp = noon.Add(-10 * time.Minute)
				o.Memory.Machines["i-2"] = h
			}),
			plan: []string{drain("i-2", fits)},
		},
		"an empty machine is not drained for its runtime": {
			pool:     pool(func(p *cloud.Pool) { p.MaxRuntime, p.EmptyTTL = time.Hour, time.Hour }),
			machines: "i-1 running running ready empty=1m started=2h",
		},
		"a machine that was never started has no runtime": {
			pool: pool(func(p *cloud.Pool) { p.MaxRuntime = time.Hour }), machines: "i-1 running running ready pods=1",
		},
		"one on standby does not either": {
			pool: pool(func(p *cloud.Pool) { p.MaxRuntime = time.Hour }), machines: "i-1 standby stopped started=9h\ni-2 running running ready pods=1 started=2h",
			plan: []string{drain("i-2", old)},
		},
		"the next end of a runtime is waited for": {
			pool: pool(func(p *cloud.Pool) { p.MaxRuntime = 3 * time.Hour }), machines: "i-1 running running ready pods=1 started=2h", wake: time.Hour,
		},
		"a machine that starts keeps its pods": {
			pool: pool(nil), machines: "i-1 running running starting=1m pods=1", want: cloud.Want{Vacate: []string{"i-1"}}, change: spare(time.Hour, "i-1"),
		},
		"an empty one ends by its own time": {
			pool: pool(func(p *cloud.Pool) { p.EmptyTTL = time.Hour }), machines: "i-1 running running ready empty=59m started=2h",
			want: cloud.Want{Vacate: []string{"i-1"}}, change: spare(time.Hour, "i-1"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			seen := machines(t, c.machines)
			if c.change != nil {
				c.change(&seen)
			}
			require.NoError(t, c.pool.Validate())
			plan := c.pool.Plan(seen, c.want, noon)
			lines := strings.Split(strings.TrimSpace(plan.String()), "\n")[1:]
			if diff := cmp.Diff(c.plan, append([]string(nil), lines...)); diff != "" {
				t.Error(diff)
			}
			if c.wake > 0 {
				require.Equal(t, noon.Add(c.wake), plan.Wake)
			}
		})
	}
}

// A machine of which the cloud announces the end takes none of the disruptions, and keeps its
// intent.
func TestAnAnnouncedEndGoesBeforeOtherDrains(t *testing.T) {
	seen := machines(t, "i-1 running running ready pods=1 started=2h\ni-2 running running ready pods=1 started=3h")
	spare(time.Hour, "i-1", "i-2")(&seen)
	seen.Notices = map[string]cloud.Notice{"i-2": {Machine: "i-2", Reason: "it goes", Ends: true}}
	pool := cloud.Pool{Scope: scope, Size: 9, ConsolidateAfter: time.Minute, MaxRuntime: time.Hour}
	plan := pool.Plan(seen, cloud.Want{Vacate: []string{"i-1", "i-2"}}, noon)
	require.Len(t, plan.Actions, 2)
	require.Equal(t, cloud.Intent{Verb: cloud.Stop, Reason: cloud.ReasonRuntime, Since: noon}, plan.Actions[0].Intent)
	require.Equal(t, cloud.Intent{Verb: cloud.Terminate, Reason: "the cloud announces that it goes", Since: noon}, plan.Actions[1].Intent)
}

// What a process has recorded of machines without Nodes counts for the next one until the cloud says
// that they are gone, and does not make a list suspicious.
func TestARecordedMachineCounts(t *testing.T) {
	template := cloud.Template{Name: "a", InstanceType: "m5.large", Zone: "zone-a", Hash: "1"}
	pool := cloud.Pool{Scope: scope, Size: 2, MinStandby: 2, Templates: []cloud.Template{template}}
	recorded := cloud.Recorded{Repaired: noon, Repairs: 3, Machines: []string{"i-8", "i-9"}}
	seen := machines(t, "")
	seen.Memory = recorded.Memory()
	require.Equal(t, noon, seen.Memory.Repaired)
	require.Equal(t, 3, seen.Memory.Repairs)
	now := noon
	var verbs []cloud.Verb
	for range 3 {
		plan := pool.Plan(seen, cloud.Want{}, now)
		require.Empty(t, plan.Holds)
		require.Equal(t, 2, plan.Counts.Total)
		require.Zero(t, plan.Counts.Missing)
		for _, a := range plan.Actions {
			verbs = append(verbs, a.Verb)
		}
		now = now.Add(30 * time.Second)
		seen.Memory, seen.Listed = plan.Memory, now
	}
	require.Equal(t, []cloud.Verb{cloud.Forget, cloud.Forget}, verbs, "not before two lists lack them, a minute apart")
}

func TestAPlanSaysWhatEachMachineWaitsFor(t *testing.T) {
	pool := cloud.Pool{Scope: scope, Size: 9}
	seen := machines(t, "i-1 warmup running none launched=1m\ni-2 running running ready empty=5m\ni-3 standby stopped none\ni-4 running -")
	seen.Instances[2].Tags[scope.Key("node")] = "node-i-3"
	seen.Memory.ThrottledUntil = noon.Add(time.Minute)
	var lines []string
	for _, m := range pool.Plan(seen, cloud.Want{}, noon).Machines {
		lines = append(lines, m.String())
		require.Equal(t, m.ID == "i-2" || m.ID == "i-4", m.Joined, m.ID)
	}
	require.Equal(t, []string{
		"i-1 is warmup, running in the cloud: warming up",
		"i-2 (node-i-2) is running, running in the cloud: it was empty for its time",
		"i-3 (node-i-3) is standby, stopped in the cloud: its Node was deleted: it ends 10m0s later",
		"i-4 (node-i-4) is running, in no list in the cloud: missing from the list, not proven to be gone",
	}, lines)
}

// The time counts from when the pods fit without a break.
func TestTheTimeOfAVacantMachineStartsAgain(t *testing.T) {
	pool := cloud.Pool{Scope: scope, Size: 9, ConsolidateAfter: 10 * time.Minute}
	seen := machines(t, "i-1 running running ready pods=1 started=2h")
	now := noon
	pass := func(after time.Duration, vacate ...string) []cloud.Action {
		now = now.Add(after)
		seen.Listed = now
		plan := pool.Plan(seen, cloud.Want{Vacate: vacate}, now)
		seen.Memory = plan.Memory
		return plan.Actions
	}
	require.Empty(t, pass(0, "i-1"))
	require.Empty(t, pass(9*time.Minute))
	require.Empty(t, pass(time.Minute, "i-1"))
	require.Empty(t, pass(9*time.Minute, "i-1"))
	actions := pass(time.Minute, "i-1")
	require.Len(t, actions, 1)
	require.Equal(t, cloud.Intent{Verb: cloud.Stop, Reason: cloud.ReasonUnderutilized, Since: now}, actions[0].Intent)
}
