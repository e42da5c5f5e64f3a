package kube

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

// Node converts n. Pods are the pods bound to n; finished ones are left out, as the
// scheduler does.
//
// The caller sets Machine, if the name of the node does not identify the machine.
func Node(n *corev1.Node, pods ...*corev1.Pod) demand.Node {
	node := demand.Node{
		Name: n.Name, Labels: maps.Clone(n.Labels), Unschedulable: n.Spec.Unschedulable,
		Allocatable: Resources(n.Status.Allocatable),
	}
	for _, t := range n.Spec.Taints {
		node.Taints = append(node.Taints, demand.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
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
// the Pods of the node of a [demand.NodeTemplate] or of a standby machine. They lack
// what admission adds to a pod, such as the defaults of a LimitRange or the overhead of
// a RuntimeClass.
func Daemons(node *demand.Node, sets ...*appsv1.DaemonSet) []*demand.Pod {
	var all []*demand.Pod
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
func daemonTolerations(hostNetwork bool) []demand.Toleration {
	all := []demand.Toleration{
		{Key: corev1.TaintNodeNotReady, Exists: true, Effect: demand.NoExecute},
		{Key: corev1.TaintNodeUnreachable, Exists: true, Effect: demand.NoExecute},
		{Key: corev1.TaintNodeDiskPressure, Exists: true, Effect: demand.NoSchedule},
		{Key: corev1.TaintNodeMemoryPressure, Exists: true, Effect: demand.NoSchedule},
		{Key: corev1.TaintNodePIDPressure, Exists: true, Effect: demand.NoSchedule},
		{Key: corev1.TaintNodeUnschedulable, Exists: true, Effect: demand.NoSchedule},
	}
	if hostNetwork {
		all = append(all, demand.Toleration{Key: corev1.TaintNodeNetworkUnavailable, Exists: true, Effect: demand.NoSchedule})
	}
	return all
}
