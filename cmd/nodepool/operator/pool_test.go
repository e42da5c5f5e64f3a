package operator //nolint:testpackage // what is read of a Node, and of a pass, is not exported

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/pools"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
)

func TestAPoolIsFullWhenNeitherAStartNorALaunchIsLeft(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		counts  cloud.Counts
		unknown bool
		want    metav1.ConditionStatus // none: it stays as it was
	}{
		"room":                   {counts: cloud.Counts{Total: 2}, want: "False"},
		"one on standby":         {counts: cloud.Counts{Total: 3, Standby: 1, Startable: 1}, want: "False"},
		"one that lost its Node": {counts: cloud.Counts{Total: 3, Standby: 1}, want: "True"},
		"all run":                {counts: cloud.Counts{Total: 3}, want: "True"},
		"more than it may have":  {counts: cloud.Counts{Total: 4}, want: "True"},
		"the list of a fault":    {counts: cloud.Counts{Total: 3}, unknown: true},
		"an empty one, no class": {unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &poolPass{
				state: &poolState{
					op: &operator{demand: &pools.ScaleUp{}}, pool: &v1alpha1.NodePool{},
					machines: pools.Pool{Spec: cloud.Pool{Size: 3}, Executor: &cloud.Executor{}, Plan: cloud.Plan{Counts: c.counts}},
				},
			}
			if c.unknown {
				p.listErr = errors.New("no list")
			}
			var got metav1.ConditionStatus
			for _, condition := range p.conditions() {
				if condition.Type == v1alpha1.ConditionFull {
					got = condition.Status
				}
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestTheTimesOfAPoolAreThoseOfItsSpec(t *testing.T) {
	t.Parallel()
	of := func(d time.Duration) v1alpha1.Duration {
		return v1alpha1.Duration{Duration: metav1.Duration{Duration: d}}
	}
	p := &v1alpha1.NodePool{Spec: v1alpha1.NodePoolSpec{UnreadyTimeout: of(7 * time.Minute)}}
	p.Spec.ScaleDown.DrainTimeout, p.Spec.ScaleDown.EmptyNodeTTL = of(3*time.Minute), of(4*time.Minute)
	p.Spec.PreWarm.Timeout = of(5 * time.Minute)
	after := of(6 * time.Minute)
	p.Spec.Disruption.ConsolidateAfter = &after
	p.Spec.Disruption.Budgets = []v1alpha1.DisruptionBudget{{Nodes: "4"}}
	pool := (&operator{now: time.Now}).poolOf(p)
	require.Equal(
		t,
		[...]time.Duration{7 * time.Minute, 3 * time.Minute, 4 * time.Minute, 5 * time.Minute, 6 * time.Minute},
		[...]time.Duration{pool.UnreadyTimeout, pool.DrainTimeout, pool.EmptyTTL, pool.WarmupTimeout, pool.ConsolidateAfter},
	)
	require.Equal(t, 4, pool.Disruptions)
}

func TestTheBudgetOfDrainsForLostReadinessOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 11, 25, 12, 0, 0, 1, time.UTC)
	before := &poolPass{
		state: &poolState{machines: pools.Pool{
			Executor: &cloud.Executor{}, Plan: cloud.Plan{Memory: cloud.Memory{Repaired: since, Repairs: 2}},
		}},
	}
	recorded := before.repairs(nil)
	require.True(t, sameRepairs(recorded, before.repairs(recorded)), "it is written once")
	require.False(t, sameRepairs(nil, recorded))
	require.False(
		t,
		sameStatus(&v1alpha1.NodePoolStatus{}, &v1alpha1.NodePoolStatus{Repairs: recorded}),
		"it is written also when nothing else is new",
	)
	without := func(id string) *v1alpha1.NodePoolStatus {
		return &v1alpha1.NodePoolStatus{Machines: []v1alpha1.Machine{{ID: id}}}
	}
	require.False(t, sameStatus(without("i-1"), without("i-2")), "so are the machines without a Node")
	next := &poolMemory{}
	status := &v1alpha1.NodePoolStatus{Repairs: recorded, Machines: []v1alpha1.Machine{
		{ID: "i-1", State: "running", CloudState: "running"},
		{ID: "i-2", State: "terminating", CloudState: "running"},
		{ID: "i-3", State: "warmup", CloudState: "shutting-down"},
		{ID: "i-4", State: "warmup"},
	}}
	next.recall(status)
	memory := next.Begin()
	require.ElementsMatch(t, []string{"i-1", "i-4"}, slices.Collect(maps.Keys(memory.Machines)), "and those that may exist without a Node")
	require.Equal(t, 2, memory.Repairs)
	require.Equal(t, since.Truncate(time.Second), memory.Repaired)
	next.End(cloud.Memory{}, nil, since)
	next.recall(status)
	require.Zero(t, next.Begin().Repairs, "the status is read once")

	require.Equal(t, recorded, (&poolPass{state: &poolState{}}).repairs(recorded), "a pass without a machine knows nothing")
	require.Nil(t, (&poolPass{state: &poolState{machines: pools.Pool{Executor: &cloud.Executor{}}}}).repairs(recorded))
}
