package cloud_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
)

// slow takes a second for each machine, and notes how many calls run at once.
type slow struct {
	cloud.Provider

	fail      string // the machine that cannot be read
	now, most atomic.Int32
}

var errUnread = errors.New("it cannot be read")

func (s *slow) GetInstance(ctx context.Context, id string) (cloud.Instance, error) {
	s.most.Store(max(s.most.Load(), s.now.Add(1)))
	defer s.now.Add(-1)
	time.Sleep(time.Second)
	if id == s.fail {
		return cloud.Instance{}, errUnread
	}
	return s.Provider.GetInstance(ctx, id)
}

// starts starts many machines with one call, and does nothing else with one.
type starts struct {
	cloud.Provider

	many int
}

func (s *starts) StartInstances(_ context.Context, ids []string) map[string]error {
	s.many += len(ids)
	return nil
}

func (s *starts) StopInstances(context.Context, []string, bool) map[string]error { return nil }

func TestSingleCallsAreMadeSomeAtATime(t *testing.T) {
	for limit, want := range map[int]int32{1: 1, 3: 3, 0: 16} {
		synctest.Test(t, func(t *testing.T) {
			fake := &cloudtest.Fake{}
			s := &slow{Provider: single{fake}}
			ids := []string{"unknown"}
			for n := range 20 {
				i, err := fake.LaunchInstance(t.Context(), cloud.LaunchConfig{
					Token: fmt.Sprint(n), ImageID: "image", InstanceType: "m5", SubnetID: "a",
				})
				require.NoError(t, err)
				ids = append(ids, i.ID)
			}
			found, err := cloud.Batched(s, limit).GetInstances(t.Context(), ids)
			require.NoError(t, err)
			require.Len(t, found, 20, "one that the cloud does not know is missing")
			require.Equal(t, want, s.most.Load())

			s.fail = ids[3]
			found, err = cloud.Batched(s, limit).GetInstances(t.Context(), ids)
			require.ErrorIs(t, err, errUnread)
			require.Len(t, found, 19, "the others were read")
		})
	}
}

func TestABatchOfTheProviderIsUsed(t *testing.T) {
	t.Parallel()
	s := &starts{Provider: single{&cloudtest.Fake{}}}
	require.Empty(t, cloud.Batched(s, 0).StartInstances(t.Context(), []string{"i-1", "i-2"}))
	require.Equal(t, 2, s.many)
	fake := &cloudtest.Fake{}
	require.Same(t, fake, cloud.Batched(fake, 0), "it has them all")
}

// TestAMachineThatCannotBeReadHoldsBackNoOther terminates two machines, one of which cannot be read.
func TestAMachineThatCannotBeReadHoldsBackNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(cloud.Pool{Size: 2, MinStandby: 2})
		s := &slow{Provider: single{b.fake}}
		b.executor.Provider, b.executor.Parallel = s, 1
		b.run(t, 5*time.Minute)
		s.most.Store(0)
		var actions []cloud.Action
		for _, i := range b.fake.Instances() {
			actions = append(actions, cloud.Action{
				Verb: cloud.Terminate, Machine: i.ID, Node: "node-" + i.ID, Seen: i.State, From: cloud.StateStandby, To: cloud.StateTerminating,
				Intent: cloud.Intent{Verb: cloud.Terminate, Since: time.Now()},
			})
		}
		s.fail = actions[0].Machine
		results, err := b.executor.Execute(t.Context(), b.pool, actions)
		require.ErrorIs(t, err, errUnread)
		require.ErrorIs(t, results[0].Err, errUnread)
		require.NoError(t, results[1].Err)
		require.EqualValues(t, 1, s.most.Load(), "Parallel")
	})
}

// TestEachLaunchWithoutABatchHasATokenOfItsOwn launches three machines twice, as after a lost answer.
func TestEachLaunchWithoutABatchHasATokenOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &cloudtest.Fake{}
		p := cloud.Batched(single{fake}, 0)
		config := cloud.LaunchConfig{Token: "token", ImageID: "image", InstanceType: "m5", SubnetID: "a"}
		first, err := p.LaunchInstances(t.Context(), config, 3)
		require.NoError(t, err)
		again, err := p.LaunchInstances(t.Context(), config, 3)
		require.NoError(t, err)
		require.Len(t, fake.Instances(), 3)
		for i := range first {
			require.Equal(t, first[i].ID, again[i].ID)
		}
	})
}

// untagged is a provider that tags nothing.
type untagged struct{ cloud.Provider }

func (untagged) UpdateInstanceTags(context.Context, string, map[string]string) error {
	return errUnread
}

// marked notes the marks of Nodes.
type marked struct {
	cloud.Nodes

	marks int
}

func (m *marked) Mark(ctx context.Context, mark cloud.Mark) error {
	m.marks++
	return m.Nodes.Mark(ctx, mark)
}

// TestAMachineHasItsNameBeforeItIsUsed adopts a machine that cannot be tagged: without the name of its Node
// on it, it would be lost together with that.
func TestAMachineHasItsNameBeforeItIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(cloud.Pool{Size: 1, MinStandby: 1})
		_, _, err := b.pass(t.Context())
		require.NoError(t, err)
		nodes := &marked{Nodes: b.cluster}
		b.executor.Provider, b.executor.Nodes = untagged{single{b.fake}}, nodes
		id := b.fake.Instances()[0].ID
		adopt := []cloud.Action{{Verb: cloud.Adopt, Machine: id, Node: "node-" + id, To: cloud.StateWarmup}}
		_, err = b.executor.Execute(t.Context(), b.pool, adopt)
		require.ErrorIs(t, err, errUnread)
		require.Zero(t, nodes.marks)
	})
}
