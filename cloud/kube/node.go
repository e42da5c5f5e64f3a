package kube

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// Node converts n. Pods are the pods bound to n; finished ones are left out, as the
// scheduler does.
//
// The caller sets Machine, if the name of the node does not identify the machine.
func Node(n *corev1.Node, pods ...*corev1.Pod) cloud.Node {
	node := cloud.Node{
		Name: n.Name, Labels: maps.Clone(n.Labels), Unschedulable: n.Spec.Unschedulable,
		Allocatable: resources(n.Status.Allocatable),
	}
	for _, t := range n.Spec.Taints {
		node.Taints = append(node.Taints, cloud.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
	}
	for _, p := range pods {
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		pod := Pod(p)
		node.Pods = append(node.Pods, &pod)
	}
	return node
}

// Daemons returns the pods of the DaemonSets that will run on a machine like node, for
// the Pods of the node of a [cloud.NodeTemplate] or of a standby machine. They lack
// what admission adds to a pod, such as the defaults of a LimitRange or the overhead of
// a RuntimeClass.
func Daemons(node *cloud.Node, sets ...*appsv1.DaemonSet) []*cloud.Pod {
	var all []*cloud.Pod
	for _, set := range sets {
		if set.DeletionTimestamp != nil {
			continue
		}
		spec := set.Spec.Template.Spec
		pod := Pod(&corev1.Pod{ObjectMeta: set.Spec.Template.ObjectMeta, Spec: spec})
		pod.Namespace, pod.Name = set.Namespace, set.Name
		pod.Tolerations = append(pod.Tolerations, daemonTolerations(spec.HostNetwork)...)
		if (spec.NodeName == "" || spec.NodeName == node.Name) && pod.CanRunOn(node) {
			all = append(all, &pod)
		}
	}
	return all
}

// daemonTolerations are the tolerations that the DaemonSet controller adds to its pods.
func daemonTolerations(hostNetwork bool) []cloud.Toleration {
	all := []cloud.Toleration{
		{Key: corev1.TaintNodeNotReady, Exists: true, Effect: cloud.NoExecute},
		{Key: corev1.TaintNodeUnreachable, Exists: true, Effect: cloud.NoExecute},
		{Key: corev1.TaintNodeDiskPressure, Exists: true, Effect: cloud.NoSchedule},
		{Key: corev1.TaintNodeMemoryPressure, Exists: true, Effect: cloud.NoSchedule},
		{Key: corev1.TaintNodePIDPressure, Exists: true, Effect: cloud.NoSchedule},
		{Key: corev1.TaintNodeUnschedulable, Exists: true, Effect: cloud.NoSchedule},
	}
	if hostNetwork {
		all = append(all, cloud.Toleration{Key: corev1.TaintNodeNetworkUnavailable, Exists: true, Effect: cloud.NoSchedule})
	}
	return all
}
