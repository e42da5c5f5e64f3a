package pools_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/pools"
)

// pass returns a pass of the pool of a world.
func (w *world) pass() *pools.Pass {
	return &pools.Pass{
		Pool: w.pool, ScaleUp: &w.loop, Launches: func() ([]cloud.LaunchIntent, int64) { return nil, 7 }, Publish: func() {},
		Marks: w.pool.Executor.Nodes.(*nodes.Marks), //nolint:forcetypeassert // see in
	}
}

// observe has the pass look at the cloud.
func (w *world) observe(p *pools.Pass) cloud.Observed {
	w.Helper()
	begun := time.Now()
	instances, err := w.cloud.ListInstances(w.Context(), w.pool.Spec.Scope.Tags())
	return p.Observe(w.Context(), instances, begun, err)
}

func TestAMachineThatHasBecomeReadyIsKeptForItsPodsForAWhile(t *testing.T) {
	t.Parallel()
	in(t, 2, func(w *world) {
		w.pod("a", "")
		time.Sleep(time.Second)
		id := w.starts()[0].Action.Machine
		w.ready("node-0")
		w.pod("a", "elsewhere")
		synctest.Wait()
		require.Empty(w, w.loop.Reserved())
		p := w.pass()
		p.Pool.Drifted = func(i cloud.Instance) bool { return i.ID != id }
		seen := w.observe(p)
		require.True(w, seen.Reserved[id])
		require.Len(w, seen.Nodes, 2)
		require.False(w, seen.Nodes[0].Drifted)
		require.True(w, seen.Nodes[1].Drifted)
		require.EqualValues(w, 7, seen.LastOrdinal)
		require.EqualValues(w, 20, w.pool.Allocatable.Pods, "what it reports, others of the pool will have")
		after, exact := p.Next(time.Hour, nil)
		require.Equal(w, 10*time.Second, after)
		require.False(w, exact)
		time.Sleep(10 * time.Second)
		p = w.pass()
		require.False(w, w.observe(p).Reserved[id])
		after, _ = p.Next(time.Hour, nil)
		require.Equal(w, time.Hour, after)
	})
}

// TestAPassTakesBackANodeThatNamesAnotherPool: a person has changed its label.
func TestAPassTakesBackANodeThatNamesAnotherPool(t *testing.T) {
	t.Parallel()
	in(t, 1, func(w *world) {
		_, err := w.nodes.Patch(w.Context(), "node-0", types.MergePatchType, []byte(
			`{"metadata":{"labels":{"`+domain.PoolLabel()+`":"other"},"annotations":{"`+string(domain)+`/pool-uid":"o"}}}`,
		), metav1.PatchOptions{})
		require.NoError(w, err)
		w.loop.Cluster.SawNode(w.node("node-0"))
		p := w.pass()
		var names []string
		p.OnReclaim = func(_ context.Context, all []string, err error) {
			require.NoError(w, err)
			names = all
		}
		require.Len(w, w.observe(p).Nodes, 1)
		require.Equal(w, []string{"node-0"}, names)
		require.Equal(w, "web", w.node("node-0").Labels[domain.PoolLabel()])
		p.Marks = nil
		names = nil
		w.observe(p)
		require.Nil(w, names)
	})
}

func TestWithoutAListAPassIgnoresWhatTheListHad(t *testing.T) {
	t.Parallel()
	in(t, 1, func(w *world) {
		p := w.pass()
		w.observe(p)
		seen := p.Observe(w.Context(), []cloud.Instance{{ID: "half"}}, time.Now(), errors.New("no more pages"))
		require.ErrorContains(w, seen.ListError, "no more pages")
		require.Empty(w, seen.Instances)
		require.Len(w, seen.Nodes, 1)
		instances, _ := w.pool.Memory.List()
		require.Len(w, instances, 1, "the last list is kept")
	})
}

func TestTheNextPassIsSoonWhileMachinesChangeAndLateAfterAnError(t *testing.T) {
	t.Parallel()
	in(t, 1, func(w *world) {
		p := w.pass()
		w.observe(p)
		require.False(w, p.InTransition())
		for _, c := range []struct {
			verb   cloud.Verb
			wake   time.Duration
			failed error
			want   time.Duration
			exact  bool
		}{
			{want: 30 * time.Second},
			{verb: cloud.Start, want: 5 * time.Second},
			{verb: cloud.Drain, want: 5 * time.Second},
			{verb: cloud.Stop, want: 3 * time.Second},
			{wake: 20 * time.Second, want: 20 * time.Second, exact: true},
			{wake: -time.Second, want: 100 * time.Millisecond, exact: true},
			{verb: cloud.Stop, failed: errors.New("down"), want: time.Minute},
			{verb: cloud.Stop, failed: &cloud.RateLimitError{RetryAfter: 2 * time.Second}, want: 2 * time.Second},
			{failed: errors.New("down"), wake: 40 * time.Second, want: 40 * time.Second, exact: true},
		} {
			p.Transition, p.Results, p.Pool.Plan.Wake = 3*time.Second, nil, time.Time{}
			if c.verb != "" {
				p.Results = []cloud.Result{{Action: cloud.Action{Verb: c.verb}}}
			}
			if c.wake != 0 {
				p.Pool.Plan.Wake = time.Now().Add(c.wake)
			}
			after, exact := p.Next(30*time.Second, c.failed)
			require.Equal(w, c.want, after, c)
			require.Equal(w, c.exact, exact, c)
		}
		p.Pool.Plan.Wake = time.Time{}
		require.NoError(w, w.cloud.StartInstance(w.Context(), w.cloud.Instances()[0].ID))
		w.observe(p)
		require.True(w, p.InTransition())
		after, _ := p.Next(30*time.Second, nil)
		require.Equal(w, 3*time.Second, after)
	})
}

// TestAPassIsPublishedBeforeAndAfterItActs: pods that come meanwhile see what is to come.
func TestAPassIsPublishedBeforeAndAfterItActs(t *testing.T) {
	t.Parallel()
	in(t, 1, func(w *world) {
		w.stop()
		p := w.pass()
		var started []int
		p.Publish = func() { started = append(started, len(w.starts())+len(w.running())) }
		id := w.cloud.Instances()[0].ID
		seen := w.observe(p)
		w.pool.Memory.Learn([]cloud.Result{{Err: &cloud.RateLimitError{RetryAfter: time.Minute}}}, time.Now())
		require.NoError(w, p.Run(w.Context(), seen, func() cloud.Want { return cloud.Want{Start: []string{id}} }))
		require.Empty(w, p.Results, "the cloud asks for no calls")
		time.Sleep(time.Minute)
		seen, started = w.observe(p), nil
		require.NoError(w, p.Run(w.Context(), seen, func() cloud.Want { return cloud.Want{Start: []string{id}} }))
		require.Equal(w, []int{0, 1}, started)
		require.Len(w, p.Results, 1)
		require.Equal(w, p.Results[0].Action, p.Pool.Plan.Actions[0])
		instances, _ := w.pool.Memory.List()
		require.Equal(w, id, instances[0].ID)
		require.Equal(w, cloud.InstancePending, w.pool.Memory.Take(instances, seen.Listed)[0].State, "what the cloud has accepted is kept")
	})
}
