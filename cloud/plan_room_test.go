package cloud_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// TestRoomIsWhatThePoolMayLaunch checks the room that Demand gets of a pool: that it
// has no room is the reason for them to go to another.
func TestRoomIsWhatThePoolMayLaunch(t *testing.T) {
	t.Parallel()
	running := "i-1 running running ready pods=1\n"
	for name, c := range map[string]struct {
		machines     string
		change       func(*cloud.Observed)
		room, coming int
		limit        string
	}{
		"an empty pool": {room: 3, limit: "it has 0 of 3 machines"},
		"one that runs": {machines: running, room: 2, limit: "it has 1 of 3 machines"},
		"one that warms up is on its way": {
			machines: running + "i-2 warmup running launched=1m", room: 1, coming: 1, limit: "it has 2 of 3 machines",
		},
		"so is one that no list has": {
			machines: running, change: func(o *cloud.Observed) {
				o.Launches = []cloud.LaunchIntent{{Operation: "other", Ordinal: 1, Template: "t", Hash: "1", Count: 2, Since: noon}}
			},
			coming: 2, limit: "PoolFull: it has 3 of 3 machines",
		},
		"not one whose warm-up has failed": {
			machines: "i-1 warmup running launched=1m", room: 2, limit: "it has 1 of 3 machines",
			change: func(o *cloud.Observed) {
				o.Memory.Machines = map[string]cloud.MachineHistory{"i-1": {State: cloud.InstanceRunning, Failed: true}}
			},
		},
		"full": {machines: running + "i-2 standby stopped\ni-3 standby stopped", limit: "PoolFull: it has 3 of 3 machines"},
		"full, of machines that cannot be started": {
			machines: running + "i-2 standby stopped\ni-3 standby stopped none",
			limit:    "PoolFull: it has 3 of 3 machines, 1 of them stopped and without a Node",
		},
		"too large": {machines: running + "i-2 standby stopped\ni-3 standby stopped\ni-4 standby stopped", limit: "PoolFull: it has 4 of 3 machines"},
		"a quota": {
			change: func(o *cloud.Observed) {
				o.Memory.LaunchAfter, o.Memory.Refused = noon.Add(time.Second), cloud.Refusal{Kind: cloud.HoldQuota, Message: "no more", Count: 1}
			},
			limit: "QuotaExceeded: no more",
		},
		"a quota that is tried again": {
			change: func(o *cloud.Observed) {
				o.Memory.LaunchAfter, o.Memory.Refused = noon, cloud.Refusal{Kind: cloud.HoldQuota, Message: "no more", Count: 1}
			},
			room: 3, limit: "it has 0 of 3 machines",
		},
		"back-off": {
			change: func(o *cloud.Observed) {
				o.Memory.LaunchAfter, o.Memory.Failures, o.Memory.FailureReason = noon.Add(time.Second), 3, "it never joined"
			},
			limit: "WarmupFailing: 3 warm-ups failed in a row, the last one because it never joined",
		},
		"throttled": {
			change: func(o *cloud.Observed) { o.Memory.ThrottledUntil = noon.Add(time.Second) },
			limit:  "Throttled: the cloud asks for no calls",
		},
		"no list": {
			machines: running, change: func(o *cloud.Observed) { o.ListError = errors.New("503") },
			limit: "ListFailed: the list of machines failed: 503",
		},
		"a short list": {
			machines: "i-1 standby -\ni-2 standby -",
			limit:    "ShortList: 2 of 2 machines are missing from the list, at most 1 may be deleted at once: nothing is launched or terminated",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := machines(t, c.machines)
			if c.change != nil {
				c.change(&seen)
			}
			pool := cloud.Pool{Scope: scope, Size: 3, Templates: []cloud.Template{{Name: "t", InstanceType: "m5.large", Zone: "zone-a", Hash: "1"}}}
			plan := pool.Plan(seen, cloud.Want{}, noon)
			room, limit := plan.Room(pool, noon)
			require.Equal(t, c.room, room)
			require.Equal(t, c.limit, limit)
			require.Equal(t, c.coming, plan.Counts.Coming)
		})
	}
}

// TestAPoolIsFullOnceNoMachineCanBeStarted has standby machines with and without Nodes.
func TestAPoolIsFullOnceNoMachineCanBeStarted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		machines, text, missing string
		size                    int
	}{
		"one can be started": {
			machines: "i-1 standby stopped\ni-2 standby stopped none", size: 2,
			missing: "1 of 2 standby machines have no Node, so that no pod starts them, " +
				"and the pool has no room for others: each is terminated 10m0s after its Node went",
		},
		"none can": {
			machines: "i-1 running running ready pods=1\ni-2 standby stopped none", size: 2,
			text: "2 of 2 machines, 1 of them stopped and without a Node, none on standby that can be started",
			missing: "1 of 1 standby machines have no Node, so that no pod starts them, " +
				"and the pool has no room for others: each is terminated 10m0s after its Node went",
		},
		"one can be launched": {
			machines: "i-2 standby stopped none", size: 2,
		},
		"all run": {machines: "i-1 running running ready pods=1", size: 1, text: "1 of 1 machines, none on standby that can be started"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := cloud.Pool{Scope: scope, Size: c.size}
			plan := pool.Plan(machines(t, c.machines), cloud.Want{}, noon)
			require.Equal(t, c.text, plan.Full(pool))
			missing := ""
			for _, hold := range plan.Holds {
				if hold.Kind == cloud.HoldNodeMissing {
					missing = hold.Message
				}
			}
			require.Equal(t, c.missing, missing)
		})
	}
}

// TestAPoolThatMayNotLaunchSaysSoWhileNothingIsWantedOfIt: pods have gone to another pool,
// and come back once the time is over.
func TestAPoolThatMayNotLaunchSaysSoWhileNothingIsWantedOfIt(t *testing.T) {
	t.Parallel()
	pool := cloud.Pool{Scope: scope, Size: 3}
	refused := cloud.Memory{LaunchAfter: noon.Add(time.Minute), Refused: cloud.Refusal{Kind: cloud.HoldQuota, Message: "no more", Count: 1}}
	plan := pool.Plan(cloud.Observed{Listed: noon, Memory: refused}, cloud.Want{}, noon)
	require.Len(t, plan.Holds, 1)
	require.Equal(t, cloud.HoldQuota, plan.Holds[0].Kind)
	require.Equal(t, noon.Add(time.Minute), plan.Wake)
	plan = pool.Plan(cloud.Observed{Listed: noon, Memory: refused}, cloud.Want{}, noon.Add(time.Minute))
	require.Empty(t, plan.Holds)
}
