package cloud_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

func twoZones() []cloud.Template {
	return []cloud.Template{
		{Name: "subnet-a", InstanceType: "m5.large", Zone: "zone-a", Hash: "1"},
		{Name: "subnet-b", InstanceType: "m5.large", Zone: "zone-b", Hash: "1"},
	}
}

func TestStandbyIsKeptForPodsThatMayCome(t *testing.T) {
	t.Parallel()
	token := func(ordinal int64) string { return cloud.Token("u", ordinal, 0) }
	ready := "i-1 standby stopped\ni-2 standby stopped\ni-3 standby stopped zone=zone-b\n"
	for name, c := range map[string]struct {
		pool     cloud.Pool
		machines string
		change   func(*cloud.Observed)
		want     cloud.Want
		plan     []string
	}{
		"more than minStandby, over the zones": {
			pool: cloud.Pool{Size: 5, MinStandby: 1}, want: cloud.Want{Standby: map[string]int{"": 3}},
			plan: []string{"launch 2 x subnet-a as " + token(1) + ": standby 0 of 3 for pods that may come", "launch 1 x subnet-b as " + token(2) + ": standby 0 of 3 for pods that may come"},
		},
		"minStandby is the floor, and not added": {
			pool: cloud.Pool{Size: 5, MinStandby: 3}, machines: ready, want: cloud.Want{Standby: map[string]int{"": 2, "subnet-b": 1}},
		},
		"the size is the ceiling": {
			pool: cloud.Pool{Size: 4, MinStandby: 1}, machines: ready, want: cloud.Want{Standby: map[string]int{"": 9}},
			plan: []string{"launch 1 x subnet-b as " + token(1) + ": standby 3 of 9 for pods that may come", "held back: PoolFull: 6 more machines are wanted, there is room for 1 of a size of 4"},
		},
		"a machine elsewhere is of no use to a pod of a zone": {
			pool: cloud.Pool{Size: 5, MinStandby: 3}, machines: ready, want: cloud.Want{Standby: map[string]int{"subnet-b": 2}},
			plan: []string{"launch 1 x subnet-b as " + token(1) + ": standby 3 of 3"},
		},
		"machines on their way count where they are": {
			pool: cloud.Pool{Size: 9, MinStandby: 1}, machines: "i-1 warmup running launched=1m zone=zone-b", want: cloud.Want{Standby: map[string]int{"subnet-b": 3}},
			change: func(o *cloud.Observed) {
				o.Launches = []cloud.LaunchIntent{{Operation: "other", Ordinal: 1, Template: "subnet-b", Hash: "1", Count: 2, Since: noon.Add(-time.Second)}}
			},
			plan: []string{"launch 2 x subnet-b as other: its answer was never recorded"},
		},
		"and machines that no list has yet": {
			pool: cloud.Pool{Size: 9}, want: cloud.Want{Standby: map[string]int{"subnet-b": 2}},
			change: func(o *cloud.Observed) {
				o.Launches = []cloud.LaunchIntent{{Operation: "other", Ordinal: 1, Template: "subnet-b", Hash: "1", Count: 2, IDs: []string{"i-8", "i-9"}, Since: noon.Add(-time.Second)}}
			},
		},
		"what pods wait for comes first, and does not count as kept": {
			pool: cloud.Pool{Size: 3}, want: cloud.Want{Launch: map[string]int{"subnet-a": 1}, Standby: map[string]int{"subnet-a": 1, "subnet-b": 2}},
			plan: []string{
				"launch 2 x subnet-a as " + token(1) + ": standby 0 of 3 for pods that may come, pods need 1 more",
				"launch 1 x subnet-b as " + token(2) + ": standby 0 of 3 for pods that may come, pods need 1 more",
				"held back: PoolFull: 4 more machines are wanted, there is room for 3 of a size of 3",
			},
		},
		"a zone without capacity is not made up for elsewhere": {
			pool: cloud.Pool{Size: 9, MinStandby: 1}, want: cloud.Want{Standby: map[string]int{"": 1, "subnet-b": 3}}, machines: "i-1 standby stopped zone=zone-b",
			change: func(o *cloud.Observed) {
				o.Memory.Blocked = map[cloud.Placement]time.Time{{InstanceType: "m5.large", Zone: "zone-b"}: noon.Add(time.Minute)}
			},
			plan: []string{
				"launch 1 x subnet-a as " + token(1) + ": standby 1 of 2 for pods that may come",
				"held back: InsufficientCapacity: the cloud has no capacity for m5.large in zone-b, where 2 more standby machines are wanted",
			},
		},
		"a template that the pool does not have is ignored": {
			pool: cloud.Pool{Size: 9}, want: cloud.Want{Standby: map[string]int{"subnet-z": 3}},
		},
		"without a list nothing is launched": {
			pool: cloud.Pool{Size: 9}, want: cloud.Want{Standby: map[string]int{"": 3}}, change: func(o *cloud.Observed) { o.ListError = fmt.Errorf("503") },
			plan: []string{"held back: ListFailed: the list of machines failed: 503"},
		},
		"kept machines are no surplus": {
			pool: cloud.Pool{Size: 5, SurplusTTL: time.Minute}, machines: ready, want: cloud.Want{Standby: map[string]int{"": 2, "subnet-b": 1}},
			change: func(o *cloud.Observed) { o.Memory.SurplusSince = noon.Add(-time.Hour) },
		},
		"a machine above the goal is terminated, where none must be": {
			pool: cloud.Pool{Size: 5, SurplusTTL: time.Minute}, machines: "i-0 standby stopped zone=zone-b since=2h\n" + ready, want: cloud.Want{Standby: map[string]int{"subnet-b": 2}},
			change: func(o *cloud.Observed) { o.Memory.SurplusSince = noon.Add(-time.Hour) },
			plan:   []string{"terminate i-1 (standby -> terminating): surplus standby for 1m0s", "terminate i-2 (standby -> terminating): surplus standby for 1m0s"},
		},
		"a pool above its size shrinks all the same": {
			pool: cloud.Pool{Size: 2}, machines: ready, want: cloud.Want{Standby: map[string]int{"": 3}},
			plan: []string{"terminate i-1 (standby -> terminating): the pool has 3 machines, its size is 2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.pool.Scope, c.pool.Templates = scope, twoZones()
			seen := machines(t, c.machines)
			if c.change != nil {
				c.change(&seen)
			}
			plan := c.pool.Plan(seen, c.want, noon)
			var got []string
			for _, a := range plan.Actions {
				got = append(got, a.String())
			}
			for _, b := range plan.Holds {
				got = append(got, "held back: "+b.String())
			}
			require.Empty(t, cmp.Diff(c.plan, got))
		})
	}
}

// TestWhatIsKeptIsReachedOnceAndThenLeftAlone makes random pools and wants. A pool never
// has more machines than its size, reaches the goal where there is room, launches no
// more then, and terminates nothing that is kept.
func TestWhatIsKeptIsReachedOnceAndThenLeftAlone(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	alive := func(text string) int { return strings.Count(text, "\n") - strings.Count(text, "terminated") }
	for round := range 2000 {
		pool := cloud.Pool{Scope: scope, Templates: twoZones(), Size: r.IntN(12)}
		pool.MinStandby = r.IntN(pool.Size + 1)
		if r.IntN(2) == 0 {
			pool.SurplusTTL = time.Second
		}
		want := cloud.Want{Standby: map[string]int{"": r.IntN(5), "subnet-a": r.IntN(4), "subnet-b": r.IntN(4)}}
		var lines strings.Builder
		for n := range r.IntN(pool.Size + 1) {
			state := []string{"standby stopped", "standby stopped", "running running ready pods=1", "warmup running launched=1m"}[r.IntN(4)]
			fmt.Fprintf(&lines, "i-%02d %s zone=%s\n", n, state, []string{"zone-a", "zone-b"}[r.IntN(2)])
		}
		text, id, now := lines.String(), 50, noon
		memory := cloud.Memory{}
		for pass, quiet := 0, 0; quiet < 4; pass++ {
			require.Less(t, pass, 40, "round %d does not end\n%s", round, text)
			seen := machines(t, text)
			seen.Listed, seen.Memory, seen.LastOrdinal = now, memory, int64(pass*10)
			plan := pool.Plan(seen, want, now)
			memory, now = plan.Memory, now.Add(time.Minute)
			acted := false
			for _, a := range plan.Actions {
				switch a.Verb {
				case cloud.Launch:
					acted = true
					for range a.Count {
						text += fmt.Sprintf("i-%02d standby stopped zone=%s\n", id, a.Placement.Zone)
						id++
					}
				case cloud.Terminate:
					acted = true
					lines := slices.Collect(strings.Lines(text))
					i := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, a.Machine+" ") })
					require.Contains(t, lines[i], "standby stopped", "round %d", round)
					lines[i] = a.Machine + " standby terminated none\n"
					text = strings.Join(lines, "")
				case cloud.MarkEmpty, cloud.Retag, cloud.Shelve, cloud.Adopt, cloud.Forget:
				default:
					require.Fail(t, "unexpected", "round %d: %s\n%s", round, a, text)
				}
			}
			text = strings.ReplaceAll(text, "warmup running launched=1m", "standby stopped")
			require.LessOrEqual(t, alive(text), pool.Size, "round %d", round)
			if quiet++; acted {
				quiet = 0
			}
		}
		in := func(zone string) int { return strings.Count(text, "standby stopped zone="+zone) }
		total := want.Standby[""] + want.Standby["subnet-a"] + want.Standby["subnet-b"]
		if room := pool.Size - alive(text); room > 0 {
			require.GreaterOrEqual(t, in("zone-a"), want.Standby["subnet-a"], "round %d: %+v %v\n%s", round, pool, want, text)
			require.GreaterOrEqual(t, in("zone-b"), want.Standby["subnet-b"], "round %d: %+v %v\n%s", round, pool, want, text)
			require.GreaterOrEqual(t, in("zone-"), max(total, pool.MinStandby), "round %d: %+v %v\n%s", round, pool, want, text)
			if pool.SurplusTTL > 0 {
				bound := max(in("zone-a")-want.Standby["subnet-a"], 0) + max(in("zone-b")-want.Standby["subnet-b"], 0)
				require.True(
					t,
					in("zone-") == max(total, pool.MinStandby) || bound == 0,
					"round %d: surplus is left: %+v %v\n%s",
					round,
					pool,
					want,
					text,
				)
			}
		}
	}
}
