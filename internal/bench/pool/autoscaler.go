package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube"
)

// autoscaler measures the input of cluster-autoscaler's benchmark of its
// estimator: 50,000 pods of one size and 1,000 of another, on machines of one
// core, of which it needs 2,595. The peer is not measured: its module is not
// served by the Go module proxy.
func (b *bench) autoscaler(context.Context) error {
	const small, large, needed = 50_000, 1000, 2595
	pods := make([]*corev1.Pod, 0, small+large)
	for i := range small + large {
		cpu, memory := int64(50), int64(100)
		if i >= small {
			cpu, memory = 95, 190
		}
		name := fmt.Sprintf("estimatee-%05d", i)
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "universe", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "estimatee"}},
			Status:     unschedulable(),
		}
		p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewMilliQuantity(cpu, resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(memory, resource.DecimalSI),
		}}}}
		pods = append(pods, p)
	}
	supply := demand.Supply{Pool: "template", MaxLaunches: 3000, Templates: []demand.NodeTemplate{{Node: kube.Node(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelTopologyZone: "zone-mars"}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(
				"1",
			),
			corev1.ResourceMemory: resource.MustParse("5000Mi"),
			corev1.ResourcePods:   resource.MustParse("100"),
		}},
	})}}}
	read := convert(pods)
	for _, c := range []struct {
		name  string
		solve func() (int, int, error)
	}{
		{"trueup_autoscaler", func() (int, int, error) {
			r := demand.Place(demand.Input{Pods: read, Supplies: []demand.Supply{supply}})
			return machines(r), len(r.Placements), nil
		}},
		{"trueup_autoscaler_reading_pods", places(pods, supply)},
	} {
		s, err := median(len(pods), func() (func() (int, int, error), error) { return c.solve, nil })
		if err != nil {
			return err
		}
		if s.machines > needed || s.placed != len(pods) {
			return fmt.Errorf("%d machines for %d pods; want %d for %d", s.machines, s.placed, needed, len(pods))
		}
		b.book.Add(c.name+"_pods_per_second", s.perSecond, "pods/s")
		b.book.Add(c.name+"_allocations", s.allocations, "allocations/pod")
		b.book.Add(c.name+"_machines", float64(s.machines), "machines")
	}
	return nil
}
