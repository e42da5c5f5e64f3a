package kube_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube"
)

func ExamplePod() {
	cores := func(n string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(n)}}
	}
	always := corev1.ContainerRestartPolicyAlways
	pod := kube.Pod(&corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{
			{Name: "proxy", RestartPolicy: &always, Resources: cores("500m")},
			{Name: "migrate", Resources: cores("3")},
		},
		Containers: []corev1.Container{{Name: "web", Resources: cores("2")}},
	}})
	fmt.Println(pod.Requests.CPU)

	node := kube.Node(&corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourcePods: resource.MustParse("58"),
	}}})
	result := demand.Place(demand.Input{Pods: []*demand.Pod{&pod}, Nodes: []*demand.Node{&node}})
	fmt.Println(result.Placements[0].On)
	// Output:
	// 3500
	// node
}
