package main

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// diverse returns pods in the mix of karpenter's own scheduling benchmark: a
// fifth each without constraints, spread over zones, spread over hosts, near
// their likes in a zone, and away from each other.
func diverse(count int, seed uint64) []*corev1.Pod {
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a repeatable mix
	value := func() string { return string(rune('a' + random.IntN(7))) }
	one := func(key string) map[string]string { return map[string]string{key: value()} }
	pods := make([]*corev1.Pod, count)
	for i := range pods {
		name := fmt.Sprintf("pod-%06d", i)
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: one("my-label")}}
		p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewMilliQuantity([]int64{100, 250, 500, 1000, 1500}[random.IntN(5)], resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity([]int64{100, 256, 512, 1024, 2048, 4096}[random.IntN(6)]<<20, resource.BinarySI),
		}}}}
		p.Status = unschedulable()
		spread := func(key string) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
				{
					MaxSkew:           1,
					TopologyKey:       key,
					WhenUnsatisfiable: corev1.DoNotSchedule,
					LabelSelector:     &metav1.LabelSelector{MatchLabels: one("my-label")},
				},
			}
		}
		term := func(key string) []corev1.PodAffinityTerm {
			return []corev1.PodAffinityTerm{{TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels}}}
		}
		switch i * 5 / count {
		case 1:
			spread(corev1.LabelTopologyZone)
		case 2:
			spread(corev1.LabelHostname)
		case 3:
			p.Labels = one("my-affinity")
			p.Spec.Affinity = &corev1.Affinity{
				PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term(corev1.LabelTopologyZone)},
			}
		case 4:
			p.Labels = map[string]string{"app": "nginx"}
			p.Spec.Affinity = &corev1.Affinity{
				PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term(corev1.LabelHostname)},
			}
		}
		pods[i] = p
	}
	return pods
}

func unschedulable() corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable},
	}}
}
