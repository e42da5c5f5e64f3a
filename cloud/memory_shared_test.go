package cloud_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

func TestAListFromBeforeACallDoesNotUndoIt(t *testing.T) {
	t.Parallel()
	for verb, want := range map[cloud.Verb]cloud.InstanceState{
		cloud.Start: cloud.InstancePending, cloud.Stop: cloud.InstanceStopping, cloud.ForceStop: cloud.InstanceStopping,
		cloud.Terminate: cloud.InstanceShuttingDown, cloud.Drain: cloud.InstanceUnknown,
	} {
		var k cloud.SharedMemory
		list := func(state cloud.InstanceState) []cloud.Instance { return []cloud.Instance{{ID: "i-1", State: state}} }
		k.Learn([]cloud.Result{{Action: cloud.Action{Verb: verb, Machine: "i-1"}}}, noon)
		require.Equal(t, want, k.Take(list(cloud.InstanceUnknown), noon.Add(-time.Second))[0].State, "a list that was begun before")
		kept, listed := k.List()
		require.Equal(t, want, kept[0].State)
		require.Equal(t, noon.Add(-time.Second), listed)
		require.Equal(t, cloud.InstanceTerminated, k.Take(list(cloud.InstanceTerminated), noon)[0].State, "an end is never undone")
		require.Equal(t, cloud.InstanceUnknown, k.Take(list(cloud.InstanceUnknown), noon.Add(time.Second))[0].State, "a newer list")
		require.Equal(t, cloud.InstanceUnknown, k.Take(list(cloud.InstanceUnknown), noon.Add(-time.Second))[0].State, "it was dropped")
	}
}

func TestAnErrorIsNoStateUnlessTheCloudHasAccepted(t *testing.T) {
	t.Parallel()
	for accepted, want := range map[bool]cloud.InstanceState{true: cloud.InstancePending, false: cloud.InstanceStopped} {
		var k cloud.SharedMemory
		k.End(cloud.Memory{}, []cloud.Result{{
			Action: cloud.Action{Verb: cloud.Start, Machine: "i-1"}, Err: cloud.ErrThrottled, Accepted: accepted,
		}}, noon)
		k.Take([]cloud.Instance{{ID: "i-1", State: cloud.InstanceStopped}}, noon.Add(-time.Second))
		i, ok := k.Instance("i-1")
		require.True(t, ok)
		require.Equal(t, want, i.State)
	}
	var k cloud.SharedMemory
	_, ok := k.Instance("i-1")
	require.False(t, ok)
}

// TestAStartBesideAPassIsNotForgottenAtItsEnd has the cloud without capacity for a start during a pass,
// which ends with a memory from before.
func TestAStartBesideAPassIsNotForgottenAtItsEnd(t *testing.T) {
	t.Parallel()
	place := cloud.Placement{InstanceType: "m5", Zone: "zone-a"}
	full := []cloud.Result{{
		Action: cloud.Action{Verb: cloud.Start, Machine: "i-1", Placement: place}, Err: &cloud.CapacityError{InstanceType: "m5", Zone: "zone-a"},
	}}
	var k cloud.SharedMemory
	memory := k.Begin()
	k.Learn(full, noon)
	require.True(t, k.IsBlocked(place, noon), "other starts know it at once")
	k.End(memory, nil, noon)
	require.True(t, k.IsBlocked(place, noon))
	k.End(k.Begin(), nil, noon.Add(time.Hour))
	require.False(t, k.IsBlocked(place, noon.Add(time.Hour)), "its time is over")

	var before cloud.SharedMemory
	before.Learn(full, noon)
	before.End(before.Begin(), nil, noon)
	require.True(t, before.IsBlocked(place, noon), "one before the pass is in its memory")

	throttled := []cloud.Result{{Err: &cloud.RateLimitError{RetryAfter: time.Minute}}}
	pool := cloud.Pool{Scope: scope, Size: 3}
	room, _ := k.Room(cloud.Plan{}, pool, noon)
	require.Equal(t, 3, room)
	k.Learn(throttled, noon)
	room, limit := k.Room(cloud.Plan{}, pool, noon)
	require.Zero(t, room, "since the plan was made")
	require.Contains(t, limit, "Throttled")

	k.Recall(cloud.Recorded{Repaired: noon, Repairs: 2})
	require.Equal(t, 2, k.Begin().Repairs)
}
