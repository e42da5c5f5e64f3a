package main

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube"
)

// convert reads the pods as package cloud takes them.
func convert(pods []*corev1.Pod) []*demand.Pod {
	all := make([]*demand.Pod, len(pods))
	for i, p := range pods {
		pod := kube.Pod(p)
		all[i] = &pod
	}
	return all
}

// supply has one template for each instance type and each zone it is offered
// in, the largest first.
func supply(types []*cloudprovider.InstanceType) demand.Supply {
	s := demand.Supply{Pool: "default", MaxLaunches: 1 << 20}
	for _, t := range slices.Backward(types) {
		zones := map[string]bool{}
		for _, o := range t.Offerings.Available() {
			zones[o.Requirements.Get(corev1.LabelTopologyZone).Any()] = true
		}
		for _, zone := range slices.Sorted(maps.Keys(zones)) {
			s.Templates = append(s.Templates, demand.NodeTemplate{Name: t.Name + "/" + zone, Node: kube.Node(&corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
					corev1.LabelInstanceTypeStable: t.Name, corev1.LabelTopologyZone: zone, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
				}},
				Status: corev1.NodeStatus{Allocatable: t.Allocatable()},
			})})
		}
	}
	return s
}

// machines is how many machines a result adds.
func machines(r demand.Result) (n int) {
	for _, d := range r.Pools {
		n += len(d.Start)
		for _, l := range d.Launch {
			n += l.Count
		}
	}
	return n
}
