package cloud_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

func TestAMemoryLearnsForHowLongTheCloudWantsNoCalls(t *testing.T) {
	throttled := func(d time.Duration) cloud.Result {
		return cloud.Result{
			Action: cloud.Action{Verb: cloud.Stop},
			Err:    fmt.Errorf("stop i-1: %w", &cloud.RateLimitError{RetryAfter: d, Err: errors.New("503")}),
		}
	}
	learned := cloud.Memory{}.Learn([]cloud.Result{throttled(time.Minute), throttled(3 * time.Minute), throttled(2 * time.Minute)}, noon)
	require.Equal(t, noon.Add(3*time.Minute), learned.ThrottledUntil, "the longest of them")
	later := learned.Learn([]cloud.Result{throttled(time.Minute)}, noon.Add(time.Minute))
	require.Equal(t, noon.Add(3*time.Minute), later.ThrottledUntil, "a shorter one ends no longer one")
	require.Equal(t, noon.Add(6*time.Minute), later.Learn([]cloud.Result{throttled(4 * time.Minute)}, noon.Add(2*time.Minute)).ThrottledUntil)

	pool := cloud.Pool{Scope: scope, Size: 1, MinStandby: 1, Templates: []cloud.Template{{Name: "subnet-a"}}}
	plan := pool.Plan(cloud.Observed{Listed: noon.Add(time.Minute), Memory: learned}, cloud.Want{}, noon.Add(time.Minute))
	require.Empty(t, plan.Actions)
	require.Equal(t, cloud.HoldThrottled, plan.Holds[0].Kind)
	require.Equal(t, noon.Add(3*time.Minute), plan.Wake)
	require.Len(t, pool.Plan(cloud.Observed{Listed: plan.Wake, Memory: learned}, cloud.Want{}, plan.Wake).Actions, 1, "then it goes on")
}

func TestLearningChangesNoOlderMemory(t *testing.T) {
	place := cloud.Placement{InstanceType: "m5.large", Zone: "zone-a"}
	memory := cloud.Memory{
		Machines: map[string]cloud.MachineHistory{"i-1": {State: cloud.InstanceTerminated}},
		Blocked:  map[cloud.Placement]time.Time{place: noon}, Unseen: map[string]time.Time{"op": noon},
	}
	want := cloud.Memory{
		Machines: map[string]cloud.MachineHistory{"i-1": {State: cloud.InstanceTerminated}},
		Blocked:  map[cloud.Placement]time.Time{place: noon}, Unseen: map[string]time.Time{"op": noon},
	}
	learned := memory.Learn([]cloud.Result{
		{Action: cloud.Action{Verb: cloud.Forget, Machine: "i-1"}},
		{Action: cloud.Action{Verb: cloud.Launch}, Err: &cloud.CapacityError{InstanceType: "m5.large", Zone: "zone-b"}},
	}, noon)
	require.Empty(t, cmp.Diff(want, memory))
	require.Empty(t, learned.Machines)
	require.False(t, learned.IsBlocked(place, noon))
	require.True(t, learned.IsBlocked(cloud.Placement{InstanceType: "m5.large", Zone: "zone-b"}, noon))
}

// TestALaunchThatFailsForAnUnknownReasonBacksOff has an error of the cloud that no provider
// translates. An answer may have been lost, so the first ones are repeated at once.
func TestALaunchThatFailsForAnUnknownReasonBacksOff(t *testing.T) {
	pool := cloud.Pool{Scope: scope, Size: 1, MinStandby: 1, Templates: []cloud.Template{{Name: "subnet-a"}}}
	failed := []cloud.Result{{Action: cloud.Action{Verb: cloud.Launch}, Err: errors.New("NoSuchEntity: profile typo")}}
	var memory cloud.Memory
	now := noon
	plan := func() cloud.Plan {
		return pool.Plan(cloud.Observed{Listed: now, Memory: memory}, cloud.Want{}, now)
	}
	for range 2 {
		memory = memory.Learn(failed, now)
		require.Len(t, plan().Actions, 1)
		require.Empty(t, plan().Holds)
	}
	for _, wait := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute} {
		memory = memory.Learn(failed, now)
		held := plan()
		require.Empty(t, held.Actions)
		require.Equal(t, cloud.HoldLaunchFailed, held.Holds[0].Kind)
		require.Contains(t, held.Holds[0].Message, "NoSuchEntity: profile typo; no launch before ")
		room, limit := held.Room(pool, now)
		require.Zero(t, room)
		require.Contains(t, limit, "LaunchFailed")
		now = now.Add(wait)
		require.Len(t, plan().Actions, 1)
	}
	memory = memory.Learn([]cloud.Result{{Action: cloud.Action{Verb: cloud.Launch}, Err: &cloud.CapacityError{}}}, now)
	require.Equal(t, cloud.HoldLaunchFailed, memory.Refused.Kind, "no capacity is another matter")
	require.Zero(t, memory.Learn([]cloud.Result{{Action: cloud.Action{Verb: cloud.Launch}}}, now).Refused)
}

// TestAFailureOfALaunchIsNotReportedForeverInAPoolWithoutRoom wants one more standby machine, and has no room to try.
func TestAFailureOfALaunchIsNotReportedForeverInAPoolWithoutRoom(t *testing.T) {
	pool := cloud.Pool{Scope: scope, Size: 2, Templates: []cloud.Template{{Name: "subnet-a"}}}
	seen := machines(t, "i-1 running running ready pods=1\ni-2 standby stopped")
	seen.Memory.LaunchAfter = noon.Add(time.Minute)
	seen.Memory.Refused = cloud.Refusal{Kind: cloud.HoldLaunchFailed, Message: "the journal was changed", Count: 3}
	kinds := func(now time.Time) (all []cloud.HoldKind) {
		for _, hold := range pool.Plan(seen, cloud.Want{Standby: map[string]int{"": 2}}, now).Holds {
			all = append(all, hold.Kind)
		}
		return all
	}
	require.Equal(t, []cloud.HoldKind{cloud.HoldPoolFull, cloud.HoldLaunchFailed}, kinds(noon))
	require.Equal(t, noon.Add(time.Minute), pool.Plan(seen, cloud.Want{Standby: map[string]int{"": 2}}, noon).Wake)
	require.Equal(t, []cloud.HoldKind{cloud.HoldPoolFull}, kinds(noon.Add(time.Minute)))
}

// TestAWarmUpThatSucceedsEndsNoDelayOfLaunchesThatTheCloudRefuses has a machine of an earlier launch.
func TestAWarmUpThatSucceedsEndsNoDelayOfLaunchesThatTheCloudRefuses(t *testing.T) {
	pool := cloud.Pool{Scope: scope, Size: 3, MinStandby: 2, Templates: []cloud.Template{{Name: "subnet-a"}}}
	seen := machines(t, "i-1 warmup stopped launched=1m")
	for _, refused := range []bool{true, false} {
		seen.Memory = cloud.Memory{LaunchAfter: noon.Add(time.Minute)}
		if refused {
			seen.Memory.Refused = cloud.Refusal{Kind: cloud.HoldLaunchFailed, Message: "cut", Count: 3}
		}
		plan := pool.Plan(seen, cloud.Want{}, noon)
		require.Equal(t, cloud.Shelve, plan.Actions[0].Verb)
		require.Equal(t, refused, !plan.Memory.LaunchAfter.IsZero())
	}
	seen.Memory = cloud.Memory{Refused: cloud.Refusal{Kind: cloud.HoldLaunchFailed, Message: "cut", Count: 3}}
	require.Equal(t, "cut", pool.Plan(seen, cloud.Want{}, noon).Holds[0].Message, "no time is not a time")
}

func TestARunningMachineWithoutANodeIsNamedUntilItIsStopped(t *testing.T) {
	pool := cloud.Pool{Scope: scope, Size: 2}
	instance := cloud.Instance{
		ID:         "i-1",
		State:      cloud.InstanceRunning,
		LaunchTime: noon.Add(-time.Hour),
		Tags:       tags(scope, cloud.StateRunning),
	}
	memory := cloud.Memory{Machines: map[string]cloud.MachineHistory{
		"i-1": {State: cloud.InstanceRunning, Since: noon.Add(-time.Hour), Listed: true, NoNode: noon},
	}}
	plan := func(after time.Duration) cloud.Plan {
		return pool.Plan(
			cloud.Observed{Listed: noon.Add(after), Instances: []cloud.Instance{instance}, Memory: memory},
			cloud.Want{},
			noon.Add(after),
		)
	}
	require.Empty(t, plan(59*time.Second).Holds)
	require.Equal(t, noon.Add(time.Minute), plan(59*time.Second).Wake)
	held := plan(time.Minute)
	require.Len(t, held.Holds, 1)
	require.Equal(t, "NodeMissing: 1 of 1 running machines have no Node: each is stopped 10m0s after its Node went", held.Holds[0].String())
	require.Equal(t, cloud.Stop, plan(10 * time.Minute).Actions[0].Verb)
}

// TestAMissingNodeIsNamedAtOnceAfterARestart has one that the process before has named.
func TestAMissingNodeIsNamedAtOnceAfterARestart(t *testing.T) {
	pool := cloud.Pool{Scope: scope, Size: 2}
	seen := cloud.Observed{
		Listed: noon,
		Instances: []cloud.Instance{{
			ID: "i-1", State: cloud.InstanceRunning, LaunchTime: noon.Add(-time.Hour), Tags: tags(scope, cloud.StateRunning),
		}},
		Memory: cloud.Recorded{Machines: []string{"i-1"}}.Memory(),
	}
	plan := pool.Plan(seen, cloud.Want{}, noon)
	require.Len(t, plan.Holds, 1)
	require.Equal(t, cloud.HoldNodeMissing, plan.Holds[0].Kind)
	seen.Memory, seen.Nodes = plan.Memory, []cloud.NodeStatus{{Name: "n", ID: "i-1", State: cloud.StateRunning, Ready: true}}
	plan = pool.Plan(seen, cloud.Want{}, noon)
	require.Empty(t, plan.Holds)
	seen.Memory, seen.Nodes = plan.Memory, nil
	require.Empty(t, pool.Plan(seen, cloud.Want{}, noon).Holds, "it may register again")
}

func TestOnlyAnUnknownReasonCountsAsAFailureOfALaunch(t *testing.T) {
	learn := func(m cloud.Memory, times int, err error) cloud.Memory {
		for range times {
			m = m.Learn([]cloud.Result{{Action: cloud.Action{Verb: cloud.Launch}, Err: err}}, noon)
		}
		return m
	}
	for _, known := range []error{&cloud.CapacityError{}, &cloud.RateLimitError{RetryAfter: time.Minute}, cloud.ErrThrottled} {
		require.Zero(t, learn(cloud.Memory{}, 5, known).Refused, known)
		require.Zero(t, learn(cloud.Memory{}, 5, known).LaunchAfter, known)
	}
	refused := learn(cloud.Memory{}, 5, cloud.ErrQuotaExceeded)
	failed := learn(refused, 1, errors.New("unknown"))
	require.Equal(
		t,
		cloud.Refusal{Kind: cloud.HoldLaunchFailed, Message: "unknown", Count: 1},
		failed.Refused,
		"refusals for another reason are none of them",
	)
	require.Equal(t, refused.LaunchAfter, failed.LaunchAfter)
}

// TestOnlyARunningMachineMissesItsNode has machines without a Node that need none.
func TestOnlyARunningMachineMissesItsNode(t *testing.T) {
	pool := cloud.Pool{Scope: scope, Size: 3}
	for name, test := range map[string]struct {
		use   cloud.State
		state cloud.InstanceState
		holds int
	}{
		"running":    {cloud.StateRunning, cloud.InstanceRunning, 1},
		"stopping":   {cloud.StateRunning, cloud.InstanceStopping, 0},
		"stopped":    {cloud.StateRunning, cloud.InstanceStopped, 0},
		"on standby": {cloud.StateStandby, cloud.InstanceStopped, 0},
		"warming up": {cloud.StateWarmup, cloud.InstanceRunning, 0},
	} {
		seen := cloud.Observed{
			Listed:    noon,
			Instances: []cloud.Instance{{ID: "i-1", State: test.state, LaunchTime: noon.Add(-5 * time.Minute), Tags: tags(scope, test.use)}},
			Memory: cloud.Memory{Machines: map[string]cloud.MachineHistory{
				"i-1": {State: test.state, Since: noon.Add(-5 * time.Minute), Listed: true, NoNode: noon.Add(-5 * time.Minute)},
			}},
		}
		missing := 0
		for _, hold := range pool.Plan(seen, cloud.Want{}, noon).Holds {
			if hold.Kind == cloud.HoldNodeMissing {
				missing++
			}
		}
		require.Equal(t, test.holds, missing, name)
	}
}

func TestTheBudgetOfAnHourEndsWithItAlsoWhenAllIsWell(t *testing.T) {
	pool := cloud.Pool{Scope: scope, Size: 2}
	plan := func(since time.Duration) cloud.Memory {
		return pool.Plan(cloud.Observed{Listed: noon, Memory: cloud.Memory{Repaired: noon.Add(-since), Repairs: 1}}, cloud.Want{}, noon).Memory
	}
	require.Equal(t, 1, plan(59*time.Minute).Repairs)
	require.Zero(t, plan(time.Hour).Repairs, "or a status would show it for ever")
	require.Zero(t, plan(time.Hour).Repaired)
}

// A cloud may forget a machine as soon as it is terminated.
func TestMachinesThatThePoolHasDeletedDoNotMakeAListShort(t *testing.T) {
	pool := cloud.Pool{Scope: scope, Size: 4, Templates: []cloud.Template{{Name: "subnet-a"}}}
	var all []cloud.Instance
	var deleted []cloud.Result
	for n := range 4 {
		i := cloud.Instance{
			ID: fmt.Sprint("i-", n), State: cloud.InstanceRunning, LaunchTime: noon,
			Tags: scope.LaunchTags("op", nil),
		}
		all = append(all, i)
		deleted = append(deleted, cloud.Result{Action: cloud.Action{Verb: cloud.Terminate, Machine: i.ID}})
	}
	memory := pool.Plan(cloud.Observed{Instances: all, Listed: noon}, cloud.Want{}, noon).Memory
	after := func(m cloud.Memory) cloud.Plan {
		later := noon.Add(30 * time.Second)
		return pool.Plan(cloud.Observed{Instances: all[3:], Listed: later, Memory: m}, cloud.Want{}, later)
	}
	holds := after(memory).Holds
	require.Len(t, holds, 1, "others have deleted three")
	require.Equal(t, cloud.HoldShortList, holds[0].Kind)
	require.Len(t, after(memory.Learn(deleted[:1], noon)).Holds, 1, "others have deleted two")
	require.Empty(t, after(memory.Learn(deleted[:3], noon)).Holds)
	was, is := memory.Machines["i-0"], memory.Learn(deleted[:1], noon).Machines["i-0"]
	was.Ending = true
	require.Equal(t, was, is, "the rest of its history stays")
	deleted[0].Err = errors.New("503")
	deleted[1].Err = errors.New("503")
	require.Len(t, after(memory.Learn(deleted[:3], noon)).Holds, 1, "two were not deleted")
}

// A process that starts again has no memory: the Nodes have what it was about to do.
func TestAfterARestartTheNodesSayWhichMachinesThePoolDeletes(t *testing.T) {
	pool := cloud.Pool{Scope: scope, Size: 4, Templates: []cloud.Template{{Name: "subnet-a"}}}
	for verb, held := range map[cloud.Verb]int{cloud.Terminate: 0, cloud.Stop: 1} {
		var nodes []cloud.NodeStatus
		var known cloud.Memory
		known.Machines = map[string]cloud.MachineHistory{}
		for n := range 3 {
			id := fmt.Sprint("i-", n)
			nodes = append(nodes, cloud.NodeStatus{
				Name: id, ID: id, State: cloud.StateTerminating, Since: noon, Intent: cloud.Intent{Verb: verb, Since: noon},
			})
			known.Machines[id] = cloud.MachineHistory{Since: noon, Listed: true}
		}
		plan := pool.Plan(cloud.Observed{Nodes: nodes, Listed: noon, Memory: known}, cloud.Want{}, noon)
		require.Len(t, plan.Holds, held, verb)
	}
}
