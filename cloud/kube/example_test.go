package kube_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
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

// A claim is bound to a volume of one zone.
func ExampleVolumes_Attach() {
	volume := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{
		Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"zone-b"}},
		}}}},
	}}}
	claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "volume"}}
	claim.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
	volumes := kube.Volumes{
		Claim: func(_, name string) *corev1.PersistentVolumeClaim {
			return map[string]*corev1.PersistentVolumeClaim{"data": claim}[name]
		},
		Volume: func(string) *corev1.PersistentVolume { return volume },
		Class:  func(string) *storagev1.StorageClass { return nil },
	}
	for _, name := range []string{"data", "other"} {
		p := &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}}}}}
		pod := volumes.Attach(kube.PodWithoutClaims(p), kube.Claims(p)...)
		fmt.Println(pod.Volumes, pod.Unmodelled)
	}
	// Output:
	// [{claim data [{[{topology.kubernetes.io/zone In [zone-b]}] []}]}] []
	// [] [claim other does not exist]
}
