package cloud_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

// bench is a pool with its cloud and cluster, in virtual time.
type bench struct {
	fake     *cloudtest.Fake
	cluster  *cloudtest.Cluster
	pool     cloud.Pool
	executor *cloud.Executor
	memory   cloud.Memory
}

func newBench(pool cloud.Pool) *bench {
	pool.Scope = scope
	b := &bench{pool: pool, fake: &cloudtest.Fake{Zones: map[string]string{"subnet-a": "zone-a", "subnet-b": "zone-b"}}}
	if b.pool.Templates == nil {
		b.pool.Templates = []cloud.Template{
			{Name: "subnet-a", InstanceType: "m5.large", Zone: "zone-a"},
			{Name: "subnet-b", InstanceType: "m5.large", Zone: "zone-b"},
		}
	}
	b.cluster = &cloudtest.Cluster{Fake: b.fake, Scope: scope}
	b.executor = &cloud.Executor{
		Provider: b.fake,
		Nodes:    b.cluster,
		Journal:  b.cluster,
		Config: func(template string) (cloud.LaunchConfig, error) {
			return cloud.LaunchConfig{
				ImageID:      "image",
				InstanceType: "m5.large",
				SubnetID:     template,
				Tags:         map[string]string{"team": "a", "managed-by": "me"},
			}, nil
		},
	}
	return b
}

func (b *bench) pass(ctx context.Context) (cloud.Plan, []cloud.Result, error) {
	b.cluster.Step()
	seen := b.cluster.Observe(ctx, b.fake, b.memory)
	plan, results, err := b.executor.Pass(ctx, b.pool, seen, b.cluster.Want(b.pool, seen))
	b.memory = plan.Memory
	return plan, results, err
}

// run makes a pass every ten seconds for a time.
func (b *bench) run(t *testing.T, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Second) {
		_, _, err := b.pass(t.Context())
		require.NoError(t, err)
	}
}

func TestAZoneWithoutCapacityIsGoneAroundInOnePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(cloud.Pool{Size: 4, MinStandby: 2})
		b.run(t, 5*time.Minute)
		b.fake.Capacity = map[cloud.Placement]int{{InstanceType: "m5.large", Zone: "zone-a"}: 0}
		b.cluster.AddPod(demand.Pod{Name: "pod"}, 0, false)
		_, results, err := b.pass(t.Context())
		require.ErrorIs(t, err, cloud.ErrNoCapacity)
		var started []string
		for _, r := range results {
			if r.Action.Verb == cloud.Start && r.Err == nil {
				started = append(started, r.Action.Placement.Zone)
			}
		}
		require.Equal(t, []string{"zone-b"}, started)

		for _, name := range []string{"p1", "p2", "p3", "p4"} {
			b.cluster.AddPod(demand.Pod{Name: name}, 0, false)
		}
		_, _, err = b.pass(t.Context())
		require.NoError(t, err, "a place without capacity is left alone for a while")
	})
}

// unwritable are Nodes that cannot be marked as running.
type unwritable struct{ cloud.Nodes }

func (u unwritable) Mark(ctx context.Context, mark cloud.Mark) error {
	if mark.To == cloud.StateRunning {
		return errors.New("the server is away")
	}
	return u.Nodes.Mark(ctx, mark)
}

func TestAStartThatCannotBeRecordedIsAcceptedAndOpenedByALaterPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(cloud.Pool{Size: 2, MinStandby: 1})
		b.run(t, 5*time.Minute)
		b.cluster.AddPod(demand.Pod{Name: "pod"}, 0, false)
		b.executor.Nodes = unwritable{b.cluster}
		_, results, err := b.pass(t.Context())
		require.ErrorContains(t, err, "the server is away")
		started := ""
		for _, r := range results {
			if r.Action.Verb == cloud.Start {
				require.Error(t, r.Err)
				require.True(t, r.Accepted)
				started = r.Action.Machine
			}
		}
		require.NotEmpty(t, started)

		b.executor.Nodes = b.cluster
		time.Sleep(time.Second) // the list is newer than the start
		_, results, err = b.pass(t.Context())
		require.NoError(t, err)
		opened := ""
		for _, r := range results {
			if r.Action.Verb == cloud.Open {
				opened = r.Action.Machine
			}
			require.NotEqual(t, cloud.Start, r.Action.Verb)
		}
		require.Equal(t, started, opened)
	})
}

func TestARefusedStartIsNotAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(cloud.Pool{Size: 2, MinStandby: 1})
		b.run(t, 5*time.Minute)
		b.fake.Capacity = map[cloud.Placement]int{{InstanceType: "m5.large", Zone: "zone-a"}: 0, {InstanceType: "m5.large", Zone: "zone-b"}: 0}
		b.cluster.AddPod(demand.Pod{Name: "pod"}, 0, false)
		_, results, _ := b.pass(t.Context())
		starts := 0
		for _, r := range results {
			if r.Action.Verb == cloud.Start {
				starts++
				require.ErrorIs(t, r.Err, cloud.ErrNoCapacity)
				require.False(t, r.Accepted)
			}
		}
		require.Positive(t, starts)
	})
}

func TestColdMachinesAreLaunchedInThePassInWhichStandbyRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(cloud.Pool{Size: 6, MinStandby: 1})
		b.run(t, 5*time.Minute)
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			b.cluster.AddPod(demand.Pod{Name: name}, 0, false)
		}
		plan, _, err := b.pass(t.Context())
		require.NoError(t, err)
		require.Len(t, plan.Actions, 3, plan)
		require.Equal(t, cloud.Start, plan.Actions[0].Verb)
		require.Equal(t, 2, plan.Actions[1].Count+plan.Actions[2].Count, "one for the pods, one for standby")
		b.run(t, 5*time.Minute)
		require.Empty(t, b.cluster.Pending())
	})
}

func TestAMachineOfAnotherPoolIsNeverTerminated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(cloud.Pool{Size: 1, MinStandby: 1})
		b.run(t, 5*time.Minute)
		id := b.fake.Instances()[0].ID
		seen := b.cluster.Observe(t.Context(), b.fake, b.memory)
		b.pool.Deleting = true
		plan := b.pool.Plan(seen, cloud.Want{}, time.Now())
		require.NoError(t, b.fake.UpdateInstanceTags(t.Context(), id, map[string]string{scope.Key("pool-uid"): "another"}))
		results, err := b.executor.Execute(t.Context(), b.pool, plan.Actions)
		require.ErrorIs(t, err, cloud.ErrNotOwned)
		require.ErrorIs(t, results[0].Err, cloud.ErrNotOwned)
		require.Equal(t, cloud.InstanceStopped, b.fake.Instances()[0].State)
	})
}

func TestWhatHasChangedSinceThePlanIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(cloud.Pool{Size: 1, MinStandby: 1})
		b.run(t, 5*time.Minute)
		id := b.fake.Instances()[0].ID
		for verb, act := range map[cloud.Verb]cloud.Action{
			cloud.Terminate: {Verb: cloud.Terminate, Machine: id, Node: "node-" + id, From: cloud.StateStandby, To: cloud.StateTerminating, Seen: cloud.InstanceRunning},
			cloud.Open:      {Verb: cloud.Open, Machine: id, Node: "node-" + id, From: cloud.StateStandby, To: cloud.StateRunning},
			cloud.Forget:    {Verb: cloud.Forget, Machine: id, Node: "node-" + id},
		} {
			_, err := b.executor.Execute(t.Context(), b.pool, []cloud.Action{act})
			require.ErrorIs(t, err, cloud.ErrInvalidState, verb)
		}
		_, err := b.executor.Execute(
			t.Context(),
			b.pool,
			[]cloud.Action{{Verb: cloud.GiveUp, Machine: id, Node: "node-" + id, From: cloud.StateWarmup, To: cloud.StateRunning}},
		)
		require.ErrorIs(t, err, cloud.ErrInvalidTransition)
		plan, _, err := b.pass(t.Context())
		require.NoError(t, err)
		require.Empty(t, plan.Actions, "nothing was changed")
	})
}

func TestADrainForLostReadinessIsUndone(t *testing.T) {
	for name, terminated := range map[string]bool{"when the Node is ready again": false, "unless the machine is being terminated": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(cloud.Pool{Size: 1, MinStandby: 1, UnreadyTimeout: 3 * time.Minute})
				b.run(t, 3*time.Minute)
				b.cluster.AddPod(demand.Pod{Name: "pod"}, 0, true)
				b.run(t, 20*time.Minute)
				node := func() cloud.NodeStatus { return b.cluster.Observe(t.Context(), b.fake, b.memory).Nodes[0] }
				require.True(t, node().Ready)
				b.cluster.LoseReadiness(node().ID, 4*time.Minute)
				b.run(t, 2*time.Minute)
				require.Equal(t, cloud.StateRunning, node().State)
				b.run(t, 80*time.Second)
				require.Equal(t, cloud.StateTerminating, node().State)
				time.Sleep(time.Minute)
				b.cluster.Step()
				require.True(t, node().Ready)
				seen := b.cluster.Observe(t.Context(), b.fake, b.memory)
				if terminated { // since the list was made
					b.cluster.Lose(node().ID)
					require.NoError(t, b.fake.Interrupt(node().ID))
				}
				_, results, err := b.executor.Pass(t.Context(), b.pool, seen, b.cluster.Want(b.pool, seen))
				require.Len(t, results, 1)
				require.Equal(t, cloud.GiveUp, results[0].Action.Verb)
				if terminated {
					require.ErrorIs(t, err, cloud.ErrInvalidState)
					require.Equal(t, cloud.StateTerminating, node().State)
					return
				}
				require.NoError(t, err)
				require.Equal(t, cloud.StateRunning, node().State)
				b.run(t, time.Hour)
				require.Equal(t, cloud.StateRunning, node().State)
				require.Empty(t, b.cluster.Wrong())
			})
		})
	}
}

func TestUserTagsAreKeptAndManagedTagsWin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(cloud.Pool{Size: 1, MinStandby: 1})
		b.run(t, 5*time.Minute)
		i := b.fake.Instances()[0]
		delete(i.Tags, scope.Key("operation"))
		require.Equal(t, map[string]string{
			"team": "a", "managed-by": "stratos", "Name": "stratos-p", scope.Key("cluster"): "c", scope.Key("pool"): "p", scope.Key("pool-uid"): "u",
			scope.Key("state"): "standby", scope.Key("node"): "node-" + i.ID,
		}, i.Tags)
	})
}

func TestALaunchThatWasRefusedIsNotRecordedAndBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for condition, kind := range map[error]cloud.HoldKind{cloud.ErrQuotaExceeded: cloud.HoldQuota, cloud.ErrRejected: cloud.HoldRejected} {
			b := newBench(cloud.Pool{Size: 1, MinStandby: 1})
			b.fake.Fault = func(c cloudtest.Call) cloudtest.Fault {
				if c.Operation == "LaunchInstance" {
					return cloudtest.Fault{Err: condition}
				}
				return cloudtest.Fault{}
			}
			var last cloud.Plan
			for range 60 {
				plan, _, _ := b.pass(t.Context())
				last = plan
				time.Sleep(10 * time.Second)
			}
			require.LessOrEqual(t, b.fake.Calls()["LaunchInstance"], 4, "in ten minutes, of 60 passes")
			require.Equal(t, kind, last.Holds[0].Kind)
			require.Empty(t, b.cluster.Observe(t.Context(), b.fake, b.memory).Launches)
			b.fake.Fault = nil
			b.run(t, 30*time.Minute)
			require.Len(t, b.fake.Instances(), 1, "goes on by itself")
		}
	})
}

func TestATokenOfATerminatedMachineIsNotUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(cloud.Pool{Size: 1, MinStandby: 1})
		b.fake.Fault = func(c cloudtest.Call) cloudtest.Fault {
			if c.Operation == "LaunchInstance" {
				return cloudtest.Fault{Err: errors.New("lost"), Lost: true}
			}
			return cloudtest.Fault{}
		}
		_, _, err := b.pass(t.Context())
		require.Error(t, err)
		require.NoError(t, b.fake.Interrupt(b.fake.Instances()[0].ID))
		time.Sleep(2 * time.Hour) // the cloud has forgotten the machine, not the token
		b.fake.Fault = nil
		b.run(t, 10*time.Minute)
		require.Len(t, b.fake.Instances(), 1)
		require.Equal(t, cloud.InstanceStopped, b.fake.Instances()[0].State)
	})
}

func TestAnExecutorSaysWhatItLacks(t *testing.T) {
	_, _, err := (&cloud.Executor{}).Pass(
		t.Context(),
		cloud.Pool{Size: -1},
		cloud.Observed{},
		func(cloud.Memory) cloud.Want { return cloud.Want{} },
	)
	for _, text := range []string{"cloud: Executor.Provider: is required", "cloud: Executor.Nodes: is required", "cloud: Executor.Journal: is required", "cloud: Scope.Domain: is required", "cloud: Pool.Size: is -1"} {
		require.ErrorContains(t, err, text)
	}
	b := newBench(cloud.Pool{Size: 1, MinStandby: 1})
	b.executor.Config = nil
	_, _, err = b.pass(t.Context())
	require.ErrorContains(t, err, "cloud: Executor.Config: is required for launches")
	require.Empty(t, b.cluster.Observe(t.Context(), b.fake, b.memory).Launches, "nothing was recorded")
}

// single is a provider without batch calls.
type single struct{ cloud.Provider }

func TestAProviderWithoutBatchesWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(cloud.Pool{Size: 5, MinStandby: 3, EmptyTTL: time.Minute})
		b.executor.Provider = single{b.fake}
		b.run(t, 5*time.Minute)
		b.cluster.AddPod(demand.Pod{Name: "pod"}, 2*time.Minute, false)
		b.run(t, 10*time.Minute)
		b.pool.Deleting = true
		b.run(t, 5*time.Minute)
		plan, _, err := b.pass(t.Context())
		require.NoError(t, err)
		require.True(t, plan.Done)
		require.Empty(t, b.cluster.Wrong())
	})
}

func TestAHundredStartsAreAHandfulOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(cloud.Pool{Size: 200, MinStandby: 100})
		b.fake.Limits = map[string]cloud.Bucket{ // those of EC2
			"LaunchInstance": {Size: 100, Refill: 2}, "StartInstance": {Size: 100, Refill: 2}, "StopInstance": {Size: 100, Refill: 20},
			"GetInstance": {Size: 100, Refill: 10}, "ListInstances": {Size: 100, Refill: 10}, "UpdateInstanceTags": {Size: 100, Refill: 10},
		}
		b.run(t, 10*time.Minute)
		before := b.fake.Calls()
		for n := range 400 {
			b.cluster.AddPod(demand.Pod{Name: fmt.Sprint(n)}, 0, false)
		}
		_, _, err := b.pass(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, b.fake.Calls()["StartInstance"]-before["StartInstance"])
		require.Equal(t, 1, b.fake.Calls()["UpdateInstanceTags"]-before["UpdateInstanceTags"])
		calls := 0
		for operation, n := range b.fake.Calls() {
			calls += n - before[operation]
		}
		require.LessOrEqual(t, calls, 10)
		fmt.Printf("figure pool_calls_ratio_100_nodes %.2f\n", float64(calls)/100)
		b.run(t, time.Minute)
		require.Empty(t, b.cluster.Pending())
	})
}

// TestARepeatedLaunchThatIsRefusedStaysRecorded: the first call may have made a machine,
// about which a refusal of the second proves nothing.
func TestARepeatedLaunchThatIsRefusedStaysRecorded(t *testing.T) {
	for name, refusal := range map[string]error{"throttled": cloud.ErrThrottled, "rejected": cloud.ErrRejected} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(cloud.Pool{Size: 1, MinStandby: 1})
				lost, calls := errors.New("the answer is lost"), 0
				b.fake.Fault = func(c cloudtest.Call) cloudtest.Fault {
					if c.Operation != "LaunchInstance" {
						return cloudtest.Fault{}
					}
					calls++
					switch calls {
					case 1:
						return cloudtest.Fault{Err: lost, Lost: true}
					case 2:
						return cloudtest.Fault{Err: refusal}
					default:
						return cloudtest.Fault{}
					}
				}
				b.fake.ListLag = time.Hour // the machine is in no list
				_, _, err := b.pass(t.Context())
				require.ErrorIs(t, err, lost)
				_, _, err = b.pass(t.Context())
				require.ErrorIs(t, err, refusal)
				require.Len(t, b.cluster.Observe(t.Context(), b.fake, b.memory).Launches, 1)
				time.Sleep(time.Minute)
				_, _, err = b.pass(t.Context())
				require.NoError(t, err)
				require.Len(t, b.fake.Instances(), 1)
			})
		})
	}
}

// TestALaunchWhoseMachineIsGoneIsMadeAgainWithTheNextToken: a cloud reports a spent
// token with the machine that is terminated, or with an error.
func TestALaunchWhoseMachineIsGoneIsMadeAgainWithTheNextToken(t *testing.T) {
	for name, spent := range map[string]error{"terminated machine": nil, "error": cloud.ErrTokenSpent} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(cloud.Pool{Size: 1, MinStandby: 1})
				lost := errors.New("the answer is lost")
				var tokens []string
				b.fake.Fault = func(c cloudtest.Call) cloudtest.Fault {
					if c.Operation != "LaunchInstance" {
						return cloudtest.Fault{}
					}
					tokens = append(tokens, c.Token)
					switch len(tokens) {
					case 1:
						return cloudtest.Fault{Err: lost, Lost: true}
					case 2:
						return cloudtest.Fault{Err: spent}
					default:
						return cloudtest.Fault{}
					}
				}
				b.fake.ListLag = time.Hour // the machine is in no list
				_, _, err := b.pass(t.Context())
				require.ErrorIs(t, err, lost)
				require.NoError(t, b.fake.Interrupt(b.fake.Instances()[0].ID))
				time.Sleep(time.Minute)
				_, results, err := b.pass(t.Context())
				require.NoError(t, err, "in the pass that finds it")
				first, second := cloud.Token(scope.PoolUID, 1, 0), cloud.Token(scope.PoolUID, 1, 1)
				require.Equal(t, []string{first, first, second}, tokens)
				all := b.fake.Instances()
				require.Len(t, all, 2)
				require.True(t, all[0].State.Ending())
				require.True(t, all[1].State.Powered())
				require.Equal(t, []cloud.LaunchIntent{{
					Operation: second, Ordinal: 1, Attempt: 1, Template: "subnet-a", Count: 1, IDs: []string{all[1].ID}, Since: time.Now(),
				}}, b.cluster.Observe(t.Context(), b.fake, b.memory).Launches)
				require.Len(t, results, 1)
			})
		})
	}
}

func TestALaunchWhoseTokensAreAllSpentEndsAfterAFewTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, calls := newBench(cloud.Pool{Size: 1, MinStandby: 1}), 0
		b.fake.Fault = func(c cloudtest.Call) cloudtest.Fault {
			if c.Operation == "LaunchInstance" {
				calls++
				return cloudtest.Fault{Err: cloud.ErrTokenSpent}
			}
			return cloudtest.Fault{}
		}
		_, _, err := b.pass(t.Context())
		require.ErrorIs(t, err, cloud.ErrTokenSpent)
		require.Equal(t, 4, calls, "the first attempt and three more")
	})
}

// TestAPodThatComesToAnEmptyMachineAsItIsClosedIsNotEvicted: the plan has seen the machine
// empty, and the pod was bound before the Node was closed.
func TestAPodThatComesToAnEmptyMachineAsItIsClosedIsNotEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(cloud.Pool{Size: 1, MinStandby: 1, EmptyTTL: time.Minute})
		b.run(t, 5*time.Minute)
		b.cluster.AddPod(demand.Pod{Name: "first"}, 2*time.Minute, false)
		b.run(t, 2*time.Minute+30*time.Second)
		var plan cloud.Plan
		for range 60 {
			b.cluster.Step()
			seen := b.cluster.Observe(t.Context(), b.fake, b.memory)
			plan = b.pool.Plan(seen, cloud.Want{}, time.Now())
			if len(plan.Actions) > 0 && plan.Actions[0].Verb == cloud.Drain {
				break
			}
			_, _, err := b.pass(t.Context())
			require.NoError(t, err)
			time.Sleep(10 * time.Second)
		}
		require.Len(t, plan.Actions, 1)
		require.Equal(t, cloud.Drain, plan.Actions[0].Verb)

		b.cluster.AddPod(demand.Pod{Name: "late"}, 0, false)
		b.cluster.Step() // binds it
		require.Empty(t, b.cluster.Pending())
		_, err := b.executor.Execute(t.Context(), b.pool, plan.Actions)
		require.NoError(t, err)
		require.Empty(t, b.cluster.Pending(), "it stays where it is")
		next, _, err := b.pass(t.Context())
		require.NoError(t, err)
		require.Equal(t, cloud.GiveUp, next.Actions[0].Verb, next)
		b.run(t, 5*time.Minute)
		require.Empty(t, b.cluster.Pending())
		require.Empty(t, b.cluster.Wrong())
	})
}

// TestALaunchIsNotDroppedWhileOneOfItsMachinesLives has a cloud whose lists lack a machine for longer than usual.
func TestALaunchIsNotDroppedWhileOneOfItsMachinesLives(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(cloud.Pool{Size: 1})
		i, err := b.fake.LaunchInstance(t.Context(), cloud.LaunchConfig{
			Token: "op", ImageID: "image", InstanceType: "m5.large", SubnetID: "subnet-a", Tags: scope.LaunchTags("op", nil),
		})
		require.NoError(t, err)
		require.NoError(t, b.cluster.Record(t.Context(), cloud.LaunchIntent{
			Operation: "op", Ordinal: 1, Template: "subnet-a", Count: 1, IDs: []string{i.ID},
		}))
		drop := []cloud.Action{{Verb: cloud.Abandon, Operation: "op", IDs: []string{i.ID}}}
		results, err := b.executor.Execute(t.Context(), b.pool, drop)
		require.ErrorIs(t, err, cloud.ErrInvalidState)
		require.ErrorContains(t, results[0].Err, "the cloud still has machine "+i.ID)
		require.Len(t, b.cluster.Observe(t.Context(), b.fake, cloud.Memory{}).Launches, 1, "it is recorded still")

		require.NoError(t, b.fake.TerminateInstance(t.Context(), i.ID))
		_, err = b.executor.Execute(t.Context(), b.pool, drop)
		require.NoError(t, err)
		require.Empty(t, b.cluster.Observe(t.Context(), b.fake, cloud.Memory{}).Launches)
	})
}
