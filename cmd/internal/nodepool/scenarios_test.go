package nodepool_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
)

// TestScenarios runs the operator, with its own rights, on a Kubernetes whose Nodes are
// machines of an EC2.
func TestScenarios(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	c.start(t, nil)
	t.Run("all", func(t *testing.T) {
		for name, scenario := range map[string]func(*bench){
			"fill": fills,
			"up":   scalesUp,
			"down": scalesDown,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				scenario(c.bench(t, "s-"+name))
			})
		}
	})
}

// fills is D1.
func fills(b *bench) {
	b.class("")
	b.pool("poolSize: 5, minStandby: 3")
	b.standby(3)
	require.Len(b, b.instances(), 3)
	for _, i := range b.instances() {
		require.Equal(b, types.InstanceStateNameStopped, i.State.Name)
	}
	for _, n := range b.in("standby") {
		require.True(b, n.Spec.Unschedulable)
		require.NotEmpty(b, n.Annotations[v1alpha1.AnnotationAttested])
		require.NotEmpty(b, n.Annotations[v1alpha1.AnnotationWarmupCompleted])
		var keys []string
		for _, t := range n.Spec.Taints {
			keys = append(keys, t.Key)
		}
		require.Subset(b, keys, []string{v1alpha1.TaintStandby, v1alpha1.TaintNotReady})
	}
	require.Subset(b, b.events("NodePool", b.name), []string{"Created", "Replenishing", "WarmupStarted", "NodeAdopted", "WarmupCompleted"})
	require.Equal(b, "False", string(b.condition("Degraded").Status))
}

// scalesUp is D2.
func scalesUp(b *bench) {
	b.class("")
	b.pool("poolSize: 6, minStandby: 3")
	b.standby(3)
	b.pods(names("pod", 10), "cpu: 500m, memory: 2Gi", "")
	b.eventually("all run", func() bool { return b.bound() == 10 })
	b.eventually("two run, three are on standby", func() bool { return b.counts() == [3]int32{3, 2, 5} })
	for _, n := range b.in("running") {
		require.False(b, n.Spec.Unschedulable)
		for _, t := range n.Spec.Taints {
			require.NotContains(b, t.Key, "stratos.sh")
		}
	}
	b.eventually("no pod is assigned", func() bool { return len(b.read().Status.PodAssignments) == 0 })
	require.Subset(b, b.events("NodePool", b.name), []string{"ScaleUp", "NodeStarted"})
}

// scalesDown is D4: the machine is stopped before its Node says so.
func scalesDown(b *bench) {
	b.class("")
	b.pool("poolSize: 2, minStandby: 1, scaleDown: {emptyNodeTTL: 2s}")
	b.standby(1)
	b.pods(names("pod", 1), "cpu: 1", "")
	b.eventually("it runs", func() bool { return b.bound() == 1 })
	running := b.in("running")
	require.Len(b, running, 1)
	name, id := running[0].Name, running[0].Labels[v1alpha1.LabelInstanceID]
	b.removePods("pod-00")
	b.eventually("it is on standby", func() bool {
		node := func() corev1.Node {
			for _, n := range b.nodes() {
				if n.Name == name {
					return n
				}
			}
			return corev1.Node{}
		}
		if node().Labels[v1alpha1.LabelState] != "standby" {
			return false
		}
		require.Equal(b, types.InstanceStateNameStopped, b.state(id))
		return true
	})
	for _, n := range b.nodes() {
		require.Empty(b, n.Annotations[v1alpha1.AnnotationScaleDownCandidate])
	}
	b.eventually("it is told", func() bool { return len(b.events("NodePool", b.name)) > 0 })
}
