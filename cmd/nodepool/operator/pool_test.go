package operator //nolint:testpackage // what is read of a Node, and of a pass, is not exported

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
)

func TestAKubeletIsHeardOfUnlessTheClusterSaysThatItIsSilent(t *testing.T) {
	t.Parallel()
	was := []corev1.NodeCondition{at(corev1.NodeReady, "True", -time.Minute, -time.Minute)}
	for status, up := range map[corev1.ConditionStatus]bool{"True": true, "False": true, "Unknown": false} {
		n := restarted(t, newWorld(nil), was, []corev1.NodeCondition{at(corev1.NodeReady, status, time.Second, time.Second)})
		require.Equal(t, up, viewNode(n).up, status)
	}
	require.False(t, viewNode(restarted(t, newWorld(nil), was, nil)).up, "it has said so before the stop")
}

func TestAMarkThatChangesNoStateKeepsTheSignalsOfTheStop(t *testing.T) {
	t.Parallel()
	m := &marks{world: newWorld(nil), pool: &v1alpha1.NodePool{}, now: func() time.Time { return started }}
	n := machine(at(corev1.NodeReady, "True", -time.Minute, -time.Minute))
	require.NoError(t, m.apply(n, cloud.Mark{From: cloud.StateRunning, To: cloud.StateStandby}))
	n.Status.Conditions = []corev1.NodeCondition{at(corev1.NodeReady, "True", time.Second, time.Second)} // it was started meanwhile
	require.NoError(t, m.apply(n, cloud.Mark{From: cloud.StateStandby, To: cloud.StateStandby}))
	require.True(t, viewNode(n).status.Ready, "which is news")
}

func TestANodeIsReadySinceThisProcessSawItBecomeSo(t *testing.T) {
	t.Parallel()
	w := newWorld(func([]string, bool) {})
	see := func(version string, status corev1.ConditionStatus) time.Time {
		n := machine(at(corev1.NodeReady, status, time.Second, time.Second))
		n.ResourceVersion = version
		w.sawNode(n)
		v, ok := w.view("node")
		require.True(t, ok)
		return v.ready
	}
	require.Zero(t, see("1", "True"), "it may have been so for long")
	require.Zero(t, see("2", "False"))
	ready := see("3", "True")
	require.WithinDuration(t, time.Now(), ready, time.Minute)
	require.Equal(t, ready, see("4", "True"))
	require.Zero(t, see("5", "Unknown"))
}

func TestMachinesThatComeAreSupplyBesideTheRoom(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := &poolState{
		op: &operator{}, pool: &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, kept: &poolMemory{}, spec: cloud.Pool{Size: 5},
		foreseen: cloud.Plan{Counts: cloud.Counts{Coming: 2, Total: 3}},
	}
	supply := s.supply(nil, now)
	require.Equal(t, 2, supply.Coming)
	require.Equal(t, 2, supply.MaxLaunches)
	s.kept.memory.ThrottledUntil = now.Add(time.Minute) // since the plan was made
	supply = s.supply(nil, now)
	require.Equal(t, 2, supply.Coming)
	require.Zero(t, supply.MaxLaunches)
	require.Contains(t, supply.Limit, "Throttled")
}

func TestAPoolIsFullWhenNeitherAStartNorALaunchIsLeft(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		counts  cloud.Counts
		unknown bool
		want    metav1.ConditionStatus // none: it stays as it was
	}{
		"room":                   {counts: cloud.Counts{Total: 2}, want: "False"},
		"one on standby":         {counts: cloud.Counts{Total: 3, Standby: 1}, want: "False"},
		"all run":                {counts: cloud.Counts{Total: 3}, want: "True"},
		"more than it may have":  {counts: cloud.Counts{Total: 4}, want: "True"},
		"the list of a fault":    {counts: cloud.Counts{Total: 3}, unknown: true},
		"an empty one, no class": {unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &poolPass{
				state: &poolState{op: &operator{}, pool: &v1alpha1.NodePool{}, spec: cloud.Pool{Size: 3}, executor: &cloud.Executor{}},
				plan:  cloud.Plan{Counts: c.counts},
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
	pool := (&operator{}).poolOf(p)
	require.Equal(
		t,
		[...]time.Duration{7 * time.Minute, 3 * time.Minute, 4 * time.Minute, 5 * time.Minute},
		[...]time.Duration{pool.UnreadyTimeout, pool.DrainTimeout, pool.EmptyTTL, pool.WarmupTimeout},
	)
}

func TestAStandbyNodeThatWasOpenedIsClosedAgain(t *testing.T) {
	t.Parallel()
	p := &nodePass{state: &poolState{pool: &v1alpha1.NodePool{}}}
	for state, closed := range map[cloud.State]bool{cloud.StateStandby: true, cloud.StateRunning: false, cloud.StateWarmup: false} {
		n := machine()
		n.Labels[v1alpha1.LabelState], n.Spec.Unschedulable, n.Spec.Taints = string(state), false, nil
		p.keepClosed(n)
		require.Equal(t, closed, n.Spec.Unschedulable, state)
		require.Equal(t, closed, hasTaint(n.Spec.Taints, standbyTaint()), state)
		again := n.DeepCopy()
		p.keepClosed(again)
		require.Equal(t, n, again, "a second time nothing changes")
	}
}

func TestAStartPutsItsOwnTaintBack(t *testing.T) {
	t.Parallel()
	m := &marks{world: newWorld(nil), pool: &v1alpha1.NodePool{}, now: func() time.Time { return started }}
	n := machine()
	n.Labels[v1alpha1.LabelState], n.Spec.Taints = "standby", nil
	require.NoError(t, m.apply(n, cloud.Mark{From: cloud.StateStandby, To: cloud.StateRunning}))
	require.NotEmpty(t, removable(m.pool))
	for _, taint := range removable(m.pool) {
		require.True(t, hasTaint(n.Spec.Taints, taint), taint.Key)
	}
	require.False(t, n.Spec.Unschedulable)
}

func TestTheBudgetOfDrainsForLostReadinessOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 11, 25, 12, 0, 0, 1, time.UTC)
	before := &poolPass{
		state: &poolState{executor: &cloud.Executor{}}, plan: cloud.Plan{Memory: cloud.Memory{Repaired: since, Repairs: 2}},
	}
	recorded := before.repairs(nil)
	require.True(t, sameRepairs(recorded, before.repairs(recorded)), "it is written once")
	require.False(t, sameRepairs(nil, recorded))
	require.False(
		t,
		sameStatus(&v1alpha1.NodePoolStatus{}, &v1alpha1.NodePoolStatus{Repairs: recorded}),
		"it is written also when nothing else is new",
	)
	next := &poolMemory{}
	memory := next.begin(recorded)
	require.Equal(t, 2, memory.Repairs)
	require.Equal(t, since.Truncate(time.Second), memory.Repaired)
	next.end(cloud.Memory{}, nil, since)
	require.Zero(t, next.begin(recorded).Repairs, "the status is read once")

	require.Equal(t, recorded, (&poolPass{state: &poolState{}}).repairs(recorded), "a pass without a machine knows nothing")
	require.Nil(t, (&poolPass{state: &poolState{executor: &cloud.Executor{}}}).repairs(recorded))
}
