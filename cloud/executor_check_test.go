package cloud_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// TestTheLastLookKeepsAMachine has two machines that run; pods came to one of them.
func TestTheLastLookKeepsAMachine(t *testing.T) {
	errUsed := errors.New("a pod is on it")
	for name, c := range map[string]struct {
		verb  cloud.Verb
		state cloud.InstanceState // of the other machine in the end
		asked bool
	}{
		"stop":      {cloud.Stop, cloud.InstanceStopped, true},
		"terminate": {cloud.Terminate, cloud.InstanceTerminated, true},
		"by force":  {cloud.ForceStop, cloud.InstanceStopped, false},
	} {
		for _, batches := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(cloud.Pool{Size: 2, MinStandby: 2})
					if !batches {
						b.executor.Provider = single{b.fake}
					}
					b.run(t, 5*time.Minute)
					starts := []cloud.Action{}
					for _, i := range b.fake.Instances() {
						starts = append(starts, cloud.Action{
							Verb: cloud.Start, Machine: i.ID, Node: "node-" + i.ID, From: cloud.StateStandby, To: cloud.StateRunning,
						})
					}
					_, err := b.executor.Execute(t.Context(), b.pool, starts)
					require.NoError(t, err)
					time.Sleep(time.Minute)
					var actions []cloud.Action
					for _, i := range b.fake.Instances() {
						require.Equal(t, cloud.InstanceRunning, i.State)
						actions = append(actions, cloud.Action{
							Verb: c.verb, Machine: i.ID, Node: "node-" + i.ID, Seen: i.State,
							From: cloud.StateRunning, To: cloud.StateTerminating,
						})
					}
					used := actions[0].Machine
					var asked []string
					b.executor.Parallel = 1
					b.executor.Check = func(_ context.Context, a cloud.Action) error {
						require.Equal(t, c.verb, a.Verb)
						asked = append(asked, a.Machine)
						if a.Machine == used {
							return errUsed
						}
						return nil
					}
					results, err := b.executor.Execute(t.Context(), b.pool, actions)
					time.Sleep(5 * time.Minute)
					state := map[string]cloud.InstanceState{}
					for _, i := range b.fake.Instances() {
						state[i.ID] = i.State
					}
					require.NoError(t, results[1].Err)
					require.Equal(t, c.state, state[actions[1].Machine])
					if c.asked {
						require.ErrorIs(t, err, errUsed)
						require.ErrorIs(t, results[0].Err, errUsed)
						require.Equal(t, cloud.InstanceRunning, state[used])
						require.ElementsMatch(t, []string{used, actions[1].Machine}, asked)
						if c.verb == cloud.Terminate {
							actions[0].From = cloud.StateTerminating // it was marked
						}
						_, err = b.executor.Execute(t.Context(), b.pool, actions[:1])
						require.ErrorIs(t, err, errUsed, "alone, too")
					} else {
						require.NoError(t, err)
						require.Empty(t, asked)
						require.Equal(t, c.state, state[used])
					}
				})
			})
		}
	}
}
