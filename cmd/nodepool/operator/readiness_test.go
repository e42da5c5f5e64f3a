package operator_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
)

// passes waits for so many more passes of the pool.
func (s *stage) passes(n int) {
	s.Helper()
	count := func() int {
		return s.metric(s.T, s.operator, fmt.Sprintf("stratos_nodepool_reconciliation_duration_seconds_count{pool=%q}", s.name))
	}
	before := count()
	s.eventually(fmt.Sprintf("%d passes", n), func() bool { return count() >= before+n })
}

// threeRun makes a pool of which three machines run, each with a pod, since three hours.
func (s *stage) threeRun(more string) (ids []string) {
	s.Helper()
	s.class()
	s.pool("poolSize: 3, minStandby: 3, scaleDown: {enabled: false}" + more)
	s.standby(3)
	s.pods(names("pod", 3), "cpu: 3", "")
	s.eventually("three run", func() bool { return s.bound() == 3 })
	s.eventually("their starts are over", func() bool {
		return !slices.ContainsFunc(s.nodes(), func(n corev1.Node) bool { return n.Annotations[v1alpha1.AnnotationScaleUpStarted] != "" })
	})
	patch := fmt.Sprintf(
		`{"metadata":{"annotations":{%q:%q}}}`,
		v1alpha1.AnnotationLastStarted,
		time.Now().Add(-3*time.Hour).UTC().Format(time.RFC3339),
	)
	for _, n := range s.nodes() {
		_, err := s.kube.CoreV1().Nodes().Patch(s.Context(), n.Name, apitypes.MergePatchType, []byte(patch), metav1.PatchOptions{})
		require.NoError(s, err)
	}
	return s.ids()
}

// readiness writes the Ready condition of all Nodes of the pool at once.
func (s *stage) readiness(status corev1.ConditionStatus) {
	s.Helper()
	for _, n := range s.nodes() {
		now := metav1.NewTime(time.Now().Add(clockOf(n.Labels[v1alpha1.LabelInstanceID])))
		s.patchConditions(n.Name, corev1.NodeCondition{Type: corev1.NodeReady, Status: status, LastHeartbeatTime: now, LastTransitionTime: now})
	}
}

// losesReadiness: all Nodes of a pool are not ready at once, hours after their start. That
// costs no machine and no pod.
func losesReadiness(s *stage) {
	ids := s.threeRun("")
	s.readiness(corev1.ConditionFalse)
	s.passes(3)
	require.Len(s, s.in("running"), 3)
	s.readiness(corev1.ConditionTrue)
	s.passes(2)
	require.Len(s, s.in("running"), 3)
	require.Equal(s, ids, s.ids())
	require.Equal(s, 3, s.bound())
	require.NotContains(s, s.events("NodePool", s.name), "ScaleDown")
}

// flapsOneByOne: Nodes that lose their readiness again and again, each for itself, cost
// nothing either.
func flapsOneByOne(s *stage) {
	s.habit(func(m booted) habit {
		if m.boot == 1 {
			return habit{}
		}
		return habit{flapEvery: 3 * time.Second, flapFor: 2 * time.Second}
	})
	ids := s.threeRun("")
	s.passes(6)
	require.Len(s, s.in("running"), 3)
	require.Equal(s, ids, s.ids())
	require.Equal(s, 3, s.bound())
	require.NotContains(s, s.events("NodePool", s.name), "ScaleDown")
}

// staysUnready: of the Nodes that stay so longer than unreadyTimeout one is drained, the
// condition says why no other is, and the drain is undone when the Nodes are ready again.
func staysUnready(s *stage) {
	s.budget()
	ids := s.threeRun(", unreadyTimeout: 30s")
	s.readiness(corev1.ConditionFalse)
	s.eventually("one is drained", func() bool { return len(s.in("terminating")) == 1 })
	s.eventually("it says why", func() bool { return s.condition("Degraded").Reason == "NodesNotReady" })
	s.passes(3)
	require.Len(s, s.in("terminating"), 1)
	require.Len(s, s.in("running"), 2)
	s.readiness(corev1.ConditionTrue)
	s.eventually("it is kept", func() bool { return len(s.in("running")) == 3 })
	s.eventually("the pool is not degraded", func() bool { return s.condition("Degraded").Status == metav1.ConditionFalse })
	require.Equal(s, ids, s.ids())
	require.Equal(s, 3, s.bound())
	require.False(s, slices.ContainsFunc(s.nodes(), func(n corev1.Node) bool { return n.Spec.Unschedulable }))
}

// startsATaintedMachine: a cloud-controller-manager taints the Node of a stopped machine.
// The machine is started for a pod all the same, and none is launched for it.
func startsATaintedMachine(s *stage) {
	s.class()
	s.pool("poolSize: 1, minStandby: 1")
	s.standby(1)
	tainted := func() bool {
		return slices.ContainsFunc(
			s.nodes()[0].Spec.Taints,
			func(t corev1.Taint) bool { return strings.HasPrefix(t.Key, "node.cloudprovider.kubernetes.io/") },
		)
	}
	s.eventually("its Node is tainted", tainted)
	id := s.ids()
	s.pods(names("pod", 1), "cpu: 1", "")
	s.eventually("it runs", func() bool { return s.bound() == 1 })
	require.Equal(s, id, s.operator.started(s.bench))
	require.Equal(s, id, s.ids())
	require.False(s, tainted())
	require.NotContains(s, s.events("Pod", "pod-00"), "NoMachineFits")
}

// passesOverAFullPool: of two pools that fit a pod the first is full. The second launches
// for it, and the first says that it is full. A pod that neither has room for says so.
func passesOverAFullPool(s *stage) {
	other := s.cell.bench(s.T, s.name+"-b")
	s.class()
	s.pool("poolSize: 1, minStandby: 1, scaleDown: {enabled: false}, " + s.template(", labels: {team: full}"))
	s.standby(1)
	pod := func(name string) {
		s.apply(
			fmt.Sprintf(
				"{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s}, spec: {nodeSelector: {team: full}, containers: [{name: c, image: x, resources: {requests: {cpu: 3}}}]}}",
				name,
				s.name,
			),
		)
	}
	pod("first")
	s.eventually("the first runs", func() bool { return s.bound() == 1 })
	s.eventually("the pool says so", func() bool { return s.condition("Full").Reason == "PoolFull" })
	pod("second")
	s.eventReported("Pod", "second", "NoMachineFits")
	require.Contains(s, s.noMachineFits("second")[0], "PoolFull: it has 1 of 1 machines")
	other.class()
	other.pool("poolSize: 1, minStandby: 0, scaleDown: {enabled: false}, " + other.template(", labels: {team: full}"))
	s.eventually("the second runs", func() bool { return s.bound() == 2 })
	require.Len(s, s.ids(), 1)
	require.Len(s, other.ids(), 1)
	require.Equal(s, "False", string(s.condition("Degraded").Status))
}
