package kube_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube"
)

func podOf(t *testing.T, spec string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "uid", Labels: map[string]string{"app": "web", "rev": "3"}},
	}
	require.NoError(t, yaml.UnmarshalStrict([]byte(spec), &pod.Spec))
	return pod
}

const mi = 1 << 20

func TestPodRequestsAreThoseOfTheScheduler(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, spec string
		want       demand.Resources
	}{
		{
			"containers are summed up, and rounded up", `
containers:
- {name: a, resources: {requests: {cpu: 100m, memory: 1Mi, ephemeral-storage: 1Gi, nvidia.com/gpu: 1}}}
- {name: b, resources: {requests: {cpu: "0.0005", memory: 1500m, hugepages-2Mi: 4Mi}}}`,
			demand.Resources{CPU: 101, Memory: mi + 2, EphemeralStorage: 1 << 30, Extended: map[string]int64{"nvidia.com/gpu": 1, "hugepages-2Mi": 4 * mi}},
		},
		{
			"an init container counts where it needs more", `
initContainers:
- {name: i, resources: {requests: {cpu: "2", memory: 1Mi}}}
- {name: j, resources: {requests: {cpu: "1", memory: 9Mi}}}
containers:
- {name: a, resources: {requests: {cpu: 500m, memory: 4Mi}}}`,
			demand.Resources{CPU: 2000, Memory: 9 * mi},
		},
		{
			"a sidecar counts with all that run after it", `
initContainers:
- {name: early, resources: {requests: {cpu: "2"}}}
- {name: sidecar, restartPolicy: Always, resources: {requests: {cpu: "1"}}}
- {name: late, resources: {requests: {cpu: 1500m}}}
containers:
- {name: a, resources: {requests: {cpu: 500m}}}`,
			demand.Resources{CPU: 2500},
		},
		{
			"overhead is added", `
overhead: {cpu: 250m, memory: 2Mi}
containers:
- {name: a, resources: {requests: {cpu: 500m}}}`,
			demand.Resources{CPU: 750, Memory: 2 * mi},
		},
		{
			"requests of the pod replace its containers' requests", `
resources: {requests: {cpu: "3"}}
containers:
- {name: a, resources: {requests: {cpu: 500m, memory: 1Mi}}}`,
			demand.Resources{CPU: 3000, Memory: mi},
		},
		{"nothing is nothing", `containers: [{name: a}]`, demand.Resources{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Empty(t, cmp.Diff(c.want, kube.Pod(podOf(t, c.spec)).Requests))
		})
	}
}

func TestAPodThatWasResizedCountsWithTheLargerRequests(t *testing.T) {
	t.Parallel()
	pod := podOf(t, `{nodeName: n, containers: [{name: a, resources: {requests: {cpu: 500m}}}]}`)
	larger := podOf(t, `{containers: [{name: a, resources: {requests: {cpu: "2"}}}]}`).Spec.Containers[0].Resources
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "a", Resources: &larger, AllocatedResources: larger.Requests}}
	require.Equal(t, int64(2000), kube.Pod(pod).Requests.CPU)
	pod.Spec.NodeName = ""
	require.Equal(t, int64(500), kube.Pod(pod).Requests.CPU)
}

func TestPodTakesOverWhatTheSchedulerFiltersBy(t *testing.T) {
	t.Parallel()
	pod := podOf(t, `
priority: 7
nodeSelector: {zone: a}
affinity:
  nodeAffinity:
    preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: x, operator: Exists}]}}]
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      - matchExpressions: [{key: cores, operator: Gt, values: ["4"]}, {key: old, operator: DoesNotExist}]
        matchFields: [{key: metadata.name, operator: NotIn, values: [n1]}]
      - matchExpressions: [{key: zone, operator: In, values: ["not a label!", a]}]
      - {}
  podAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
    - {topologyKey: zone, labelSelector: {matchLabels: {b: "2", a: "1"}, matchExpressions: [{key: c, operator: NotIn, values: [z, w]}]}}
    - {topologyKey: rack, labelSelector: {}, namespaces: [one], namespaceSelector: {}}
    - {topologyKey: host}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: zone}}]
    requiredDuringSchedulingIgnoredDuringExecution:
    - {topologyKey: host, labelSelector: {matchExpressions: [{key: app, operator: Exists}]}, namespaceSelector: {matchLabels: {team: t}}}
topologySpreadConstraints:
- {topologyKey: zone, maxSkew: 2, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}, matchLabelKeys: [rev, absent], minDomains: 3, nodeAffinityPolicy: Ignore, nodeTaintsPolicy: Honor}
- {topologyKey: host, maxSkew: 1, whenUnsatisfiable: ScheduleAnyway, labelSelector: {}}
- {topologyKey: host, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, nodeAffinityPolicy: Honor, nodeTaintsPolicy: Ignore, matchLabelKeys: [rev]}
tolerations:
- {operator: Exists}
- {key: k, value: v, effect: NoSchedule, tolerationSeconds: 3}
initContainers:
- {name: gone, ports: [{containerPort: 1, hostPort: 1}]}
- {name: sidecar, restartPolicy: Always, ports: [{containerPort: 2, hostPort: 2}]}
containers:
- {name: c, ports: [{containerPort: 80}, {containerPort: 53, hostPort: 53, protocol: UDP, hostIP: 10.0.0.1}]}
`)
	pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	pod.Status.NominatedNodeName = "n2"
	want := demand.Pod{
		Namespace:    "ns",
		Name:         "p",
		UID:          "uid",
		Labels:       map[string]string{"app": "web", "rev": "3"},
		Priority:     7,
		Terminating:  true,
		Nominated:    "n2",
		NodeSelector: map[string]string{"zone": "a"},
		NodeAffinity: []demand.NodeTerm{
			{
				Labels: []demand.Requirement{{Key: "cores", Operator: demand.Gt, Values: []string{"4"}}, {Key: "old", Operator: demand.DoesNotExist}},
				Names:  []demand.Requirement{{Key: "metadata.name", Operator: demand.NotIn, Values: []string{"n1"}}},
			},
			{}, // the scheduler does not read it either
			{},
		},
		Affinity: []demand.PodTerm{
			{TopologyKey: "zone", Selector: demand.Selector{
				{Key: "a", Operator: demand.In, Values: []string{"1"}},
				{Key: "b", Operator: demand.In, Values: []string{"2"}},
				{Key: "c", Operator: demand.NotIn, Values: []string{"w", "z"}},
			}},
			{TopologyKey: "rack", Selector: demand.Selector{}, Namespaces: []string{"one"}, NamespaceSelector: demand.Selector{}},
			{TopologyKey: "host"},
		},
		AntiAffinity: []demand.PodTerm{{
			TopologyKey: "host", Selector: demand.Selector{{Key: "app", Operator: demand.Exists}},
			NamespaceSelector: demand.Selector{{Key: "team", Operator: demand.In, Values: []string{"t"}}},
		}},
		Spread: []demand.Spread{
			{
				TopologyKey:        "zone",
				MaxSkew:            2,
				MinDomains:         3,
				IgnoreNodeAffinity: true,
				HonorTaints:        true,
				Selector: demand.Selector{
					{Key: "app", Operator: demand.In, Values: []string{"web"}},
					{Key: "rev", Operator: demand.In, Values: []string{"3"}},
				},
			},
			{TopologyKey: "host", MaxSkew: 1},
		},
		Tolerations: []demand.Toleration{{Exists: true}, {Key: "k", Value: "v", Effect: demand.NoSchedule}},
		HostPorts:   []demand.HostPort{{Port: 2}, {Port: 53, Protocol: "UDP", IP: "10.0.0.1"}},
	}
	require.Empty(t, cmp.Diff(want, kube.Pod(pod)))
}

func TestRequiredNodeAffinityWithoutTermsAdmitsNoNode(t *testing.T) {
	t.Parallel()
	pod := kube.Pod(
		podOf(
			t,
			`{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}, containers: [{name: a}]}`,
		),
	)
	require.False(t, pod.CanRunOn(&demand.Node{Labels: map[string]string{"a": "b"}}))
}

func TestWhatHasNoCounterpartIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ spec, want string }{
		{`{schedulingGates: [{name: wait}]}`, "scheduling gate wait: the scheduler does not look at the pod"},
		{`{resourceClaims: [{name: gpu}]}`, "resource claim gpu: which nodes have the device is not known"},
		{`{volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}`, "claim data: where it can be attached is not known"},
		{`{volumes: [{name: v, ephemeral: {}}]}`, "claim p-v: where it can be attached is not known"},
		{`{volumes: [{name: v, awsElasticBlockStore: {volumeID: x}}]}`, "volume v: where its disk can be attached is not known"},
		{`{tolerations: [{key: k, operator: Gt, value: "3"}]}`, "toleration of k: operator Gt is not known"},
		{
			`{topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchExpressions: [{key: a, operator: In}]}}]}`,
			`topology spread over zone: values: Invalid value`,
		},
	} {
		reasons := kube.Pod(podOf(t, c.spec)).Unmodelled
		require.Len(t, reasons, 1)
		require.True(t, strings.HasPrefix(reasons[0], c.want), reasons[0])
	}
	harmless := podOf(
		t,
		`{volumes: [{name: a, emptyDir: {}}, {name: b, configMap: {name: c}}, {name: d, secret: {secretName: e}}, {name: f, projected: {}}, {name: g, hostPath: {path: /x}}, {name: h, nfs: {server: s, path: /x}}, {name: i, csi: {driver: d.example.com}}]}`,
	)
	require.Empty(t, kube.Pod(harmless).Unmodelled)
}

func TestUnschedulableIsWhatTheSchedulerSays(t *testing.T) {
	t.Parallel()
	pod := corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending}}
	require.False(t, kube.Unschedulable(&pod), "not looked at yet")
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated},
	}
	require.False(t, kube.Unschedulable(&pod), "gated")
	pod.Status.Conditions[0].Reason = corev1.PodReasonUnschedulable
	require.True(t, kube.Unschedulable(&pod))
	bound := pod.DeepCopy()
	bound.Spec.NodeName = "n"
	require.False(t, kube.Unschedulable(bound), "has a node by now")
	gone := pod.DeepCopy()
	gone.DeletionTimestamp = &metav1.Time{}
	require.False(t, kube.Unschedulable(gone), "is being deleted")
}
