package kube_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube"
)

func TestNodeTakesOverWhatDecidesAboutItsPods(t *testing.T) {
	t.Parallel()
	var node corev1.Node
	require.NoError(t, yaml.UnmarshalStrict([]byte(`
metadata: {name: n1, labels: {zone: a}}
spec:
  unschedulable: true
  taints: [{key: k, value: v, effect: NoExecute}]
status:
  capacity: {cpu: "4"}
  allocatable: {cpu: 3920m, memory: 7Gi, ephemeral-storage: 9Gi, pods: "58", nvidia.com/gpu: "2", attachable-volumes-aws-ebs: "25"}
`), &node))
	running, ended, failed := podOf(t, `containers: []`), podOf(t, `containers: []`), podOf(t, `containers: []`)
	ended.Status.Phase, failed.Status.Phase = corev1.PodSucceeded, corev1.PodFailed
	pod := kube.Pod(running)
	require.Empty(t, cmp.Diff(demand.Node{
		Name:          "n1",
		Labels:        map[string]string{"zone": "a"},
		Unschedulable: true,
		Taints:        []demand.Taint{{Key: "k", Value: "v", Effect: demand.NoExecute}},
		Allocatable: demand.Resources{
			CPU:              3920,
			Memory:           7 << 30,
			EphemeralStorage: 9 << 30,
			Pods:             58,
			Extended:         map[string]int64{"nvidia.com/gpu": 2, "attachable-volumes-aws-ebs": 25},
		},
		Pods: []*demand.Pod{&pod},
	}, kube.Node(&node, ended, running, failed)))
}

func TestDaemonsAreThoseThatTheNodeWillRun(t *testing.T) {
	t.Parallel()
	set := func(name, spec string) *appsv1.DaemonSet {
		ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}}
		ds.Spec.Template.Labels = map[string]string{"app": name}
		require.NoError(t, yaml.UnmarshalStrict([]byte(spec), &ds.Spec.Template.Spec))
		return ds
	}
	gone := set("gone", `containers: []`)
	gone.DeletionTimestamp = &metav1.Time{}
	node := &demand.Node{
		Labels:        map[string]string{"os": "linux"},
		Unschedulable: true,
		Taints: []demand.Taint{
			{Key: "node.kubernetes.io/not-ready", Effect: demand.NoExecute},
			{Key: "dedicated", Value: "x", Effect: "PreferNoSchedule"},
		},
	}
	tainted := &demand.Node{Taints: []demand.Taint{{Key: "dedicated", Value: "x", Effect: demand.NoSchedule}}}
	unreachable := &demand.Node{Taints: []demand.Taint{{Key: "node.kubernetes.io/network-unavailable", Effect: demand.NoSchedule}}}
	sets := []*appsv1.DaemonSet{
		set("all", `{containers: [{name: a, resources: {requests: {cpu: 100m}}}], tolerations: [{operator: Exists}]}`),
		set("plain", `containers: []`),
		set("windows", `{nodeSelector: {os: windows}, containers: []}`),
		set(
			"linux",
			`{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: os, operator: In, values: [linux]}]}]}}}, containers: []}`,
		),
		set("network", `{hostNetwork: true, containers: []}`),
		gone,
	}
	names := func(pods []*demand.Pod) (all []string) {
		for _, p := range pods {
			all = append(all, p.Namespace+"/"+p.Name)
		}
		return all
	}
	require.Equal(
		t,
		[]string{"kube-system/all", "kube-system/plain", "kube-system/linux", "kube-system/network"},
		names(kube.Daemons(node, sets...)),
	)
	require.Equal(t, []string{"kube-system/all"}, names(kube.Daemons(tainted, sets...)))
	require.Equal(t, []string{"kube-system/all", "kube-system/network"}, names(kube.Daemons(unreachable, sets...)))
	require.Equal(t, int64(100), kube.Daemons(node, sets...)[0].Requests.CPU)
	require.Equal(t, map[string]string{"app": "all"}, kube.Daemons(node, sets...)[0].Labels)
}
