package operator_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// TestScenarios runs the operator, with its own rights, on a Kubernetes whose Nodes are
// machines of an EC2.
func TestScenarios(t *testing.T) {
	c := newCell(t)
	_, err := c.cluster.Kubectl(t.Context(), "apply", "--dry-run=server", "-f", "../config/samples")
	require.NoError(t, err)
	c.start(t, nil)
	t.Run("all", func(t *testing.T) {
		for name, scenario := range map[string]func(*bench){
			"fill":     fills,
			"up":       scalesUp,
			"down":     scalesDown,
			"return":   podsReturn,
			"stranger": neverJoins,
			"images":   images,
			"best":     bestEffort,
			"missing":  missingClass,
			"burst":    bursts,
			"region":   movesToAnotherRegion,
			"drift":    replacesDrifted,
			"volumes":  attachesVolumes,
			"slow":     provisionsSlowly,
		} {
			t.Run(name, func(t *testing.T) {
				if testing.Short() && name != "up" && name != "volumes" {
					t.Skip("long: two scenarios of many")
				}
				t.Parallel()
				scenario(c.bench(t, "s-"+name))
			})
		}
	})
}

// fills is D1.
func fills(b *bench) {
	b.class()
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
	b.class()
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
	b.class()
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
	b.eventReported("NodePool", b.name, "ScaleDown")
	b.eventReported("NodePool", b.name, "NodeStopped")
}

// podsReturn is D5: a machine that gets pods again before its time is over stays.
func podsReturn(b *bench) {
	b.class()
	b.pool("poolSize: 1, minStandby: 1, scaleDown: {emptyNodeTTL: 30s}")
	b.standby(1)
	b.pods(names("first", 1), "cpu: 1", "")
	b.eventually("it runs", func() bool { return b.bound() == 1 })
	b.removePods("first-00")
	candidate := func() string {
		for _, n := range b.in("running") {
			return n.Annotations[v1alpha1.AnnotationScaleDownCandidate]
		}
		return ""
	}
	b.eventually("it is a candidate", func() bool { return candidate() != "" })
	b.pods(names("second", 1), "cpu: 1", "")
	b.eventually("it runs", func() bool { return b.bound() == 1 })
	b.eventually("it is none", func() bool { return candidate() == "" })
	require.Len(b, b.in("running"), 1)
	require.Len(b, b.instances(), 1)
}

// neverJoins is D8: launches back off, and say why.
func neverJoins(b *bench) {
	b.habit(func(booted) habit { return habit{neverJoins: true} })
	b.class()
	b.pool("poolSize: 3, minStandby: 3, preWarm: {timeout: 30s, timeoutAction: terminate}")
	b.eventually("the pool is degraded", func() bool { return b.condition("Degraded").Reason == "WarmupFailing" })
	require.Contains(b, b.condition("Degraded").Message, "3 warm-ups failed in a row")
	require.Empty(b, b.nodes())
	require.Zero(b, b.counts()[0])
	// Machines that were launched before the third failure boot later: they must not join either.
	b.within(time.Minute, "its machines have ended", func() bool { return len(b.instances()) == 0 })
	b.habit(nil)
	// A warm-up of a machine that works may take longer than 30 seconds of a busy one.
	b.pool("poolSize: 3, minStandby: 3, preWarm: {timeout: 10m, timeoutAction: terminate}")
	await.Until(b, await.Hang, "3 on standby", func() bool { return b.counts()[0] == 3 }) // launches wait for minutes
	b.standby(3)
	require.Equal(b, metav1.ConditionFalse, b.condition("Degraded").Status)
}

// daemons makes a DaemonSet for the machines of the scenario.
func (b *bench) daemons(name, image string) {
	b.Helper()
	b.apply(
		fmt.Sprintf(
			"{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: %s, namespace: %s}, spec: {selector: {matchLabels: {d: %s}}, template: {metadata: {labels: {d: %s}}, spec: {nodeSelector: {stratos.sh/pool: %s}, tolerations: [{operator: Exists}], containers: [{name: c, image: %s}]}}}}",
			name,
			b.name,
			name,
			name,
			b.name,
			image,
		),
	)
}

// images is D9 with Required: the user data lists every image, and a machine that lacks
// one is no good standby.
func images(b *bench) {
	b.daemons("logs", "example.com/logs:1")
	b.daemons("mesh", "example.com/mesh:2")
	b.habit(func(booted) habit {
		return habit{badImages: []string{"example.com/typo:3"}}
	})
	b.class()
	b.pool("poolSize: 2, minStandby: 1, preWarm: {imagesToPull: ['example.com/typo:3']}")
	b.eventually("it does not count, and another is tried", func() bool { return len(b.in("standby")) == 2 })
	var attested nodes.Attestation
	require.NoError(b, json.Unmarshal([]byte(b.in("standby")[0].Annotations[v1alpha1.AnnotationAttested]), &attested))
	require.Equal(b, []string{"example.com/logs:1", "example.com/mesh:2"}, attested.Images)
	require.Equal(b, []string{"example.com/typo:3"}, attested.Failed)
	require.Equal(b, "InsufficientStandby", b.condition("Ready").Reason)
}

// bestEffort is D9 with BestEffort.
func bestEffort(b *bench) {
	b.habit(func(booted) habit {
		return habit{badImages: []string{"example.com/typo:3"}}
	})
	b.class()
	b.pool("poolSize: 2, minStandby: 1, preWarm: {imagePullPolicy: BestEffort, imagesToPull: ['example.com/typo:3']}")
	b.standby(1)
}

// missingClass is D11.
func missingClass(b *bench) {
	b.pool("poolSize: 1, minStandby: 1")
	b.eventually("it is named", func() bool {
		c := b.condition("Degraded")
		return c.Reason == "NodeClassNotFound" && strings.Contains(c.Message, b.name)
	})
	require.Empty(b, b.instances())
	b.class()
	b.standby(1)
	require.Equal(b, metav1.ConditionFalse, b.condition("Degraded").Status)
}

// bursts is N5 in small: machines for all pods are started at once.
func bursts(b *bench) {
	b.class()
	b.pool("poolSize: 12, minStandby: 12")
	b.standby(12)
	b.apply(
		fmt.Sprintf(
			"{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: many, namespace: %s}, spec: {replicas: 300, selector: {matchLabels: {app: many}}, template: {metadata: {labels: {app: many}}, spec: {terminationGracePeriodSeconds: 0, nodeSelector: {stratos.sh/pool: %s}, containers: [{name: c, image: x, resources: {requests: {cpu: 100m}}}]}}}}",
			b.name,
			b.name,
		),
	)
	b.eventually("all run", func() bool { return b.bound() == 300 })
}

// replacesDrifted is C30: after a change of the class standby machines are replaced one at a
// time, and one that runs when it stops.
func replacesDrifted(b *bench) {
	b.class()
	b.pool("poolSize: 4, minStandby: 2")
	b.standby(2)
	b.pods(names("pod", 1), "cpu: 1", "")
	b.eventually("it runs", func() bool { return b.bound() == 1 })
	// Not before: a machine that is ready counts as empty until the scheduler has bound its pod.
	b.pool("poolSize: 4, minStandby: 2, scaleDown: {emptyNodeTTL: 1s}")
	b.standby(2)
	running := b.in("running")[0].Labels[v1alpha1.LabelInstanceID]
	_, err := b.cluster.Kubectl(b.Context(), "patch", "awsnc", b.name, "--type=merge", "-p", `{"spec":{"instanceType":"m5.2xlarge"}}`)
	require.NoError(b, err)
	types := func() map[string]int {
		all := map[string]int{}
		for _, i := range b.instances() {
			if *i.InstanceId != running {
				all[string(i.InstanceType)]++
			}
		}
		return all
	}
	least := int32(2)
	b.eventually("the standby machines are replaced", func() bool {
		least = min(least, int32(len(b.in("standby")))) //nolint:gosec // some
		return len(types()) == 1 && types()["m5.2xlarge"] >= 2 && b.counts()[0] >= 2
	})
	require.GreaterOrEqual(b, least, int32(1), "one at a time")
	require.Equal(b, 1, b.bound(), "the machine that runs is left alone")
	b.removePods("pod-00")
	b.eventually("it is replaced when it has stopped", func() bool { return b.state(running) == "terminated" && types()["m5.2xlarge"] >= 2 })
}
