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
