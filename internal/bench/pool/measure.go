package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/internal/bench/benchfigures"
)

// sample is one measurement of a way to place pods.
type sample struct {
	perSecond, allocations float64 // pods each second, allocations of each pod
	machines, placed       int
}

// median measures a few times and returns the run in the middle. prepare is not
// measured.
func median(pods int, prepare func() (func() (machines, placed int, err error), error)) (sample, error) {
	const runs = 5
	samples := make([]sample, 0, runs)
	for range runs {
		solve, err := prepare()
		if err != nil {
			return sample{}, err
		}
		var s sample
		took, allocations, err := benchfigures.Measured(func() (err error) {
			s.machines, s.placed, err = solve()
			return err
		})
		if err != nil {
			return sample{}, err
		}
		s.perSecond, s.allocations = float64(pods)/took.Seconds(), allocations/float64(pods)
		samples = append(samples, s)
	}
	slices.SortFunc(samples, func(a, b sample) int { return cmp.Compare(a.perSecond, b.perSecond) })
	return samples[runs/2], nil
}

func (b *bench) add(name string, s sample) {
	b.book.Add(name+"_pods_per_second", s.perSecond, "pods/s")
	b.book.Add(name+"_allocations", s.allocations, "allocations/pod")
	b.book.Add(name+"_machines", float64(s.machines), "machines")
	b.book.Add(name+"_unplaced", float64(b.pods-s.placed), "pods")
}

// karpenter measures both on the same pods and instance types. What we take to
// read the pods is part of it.
func (b *bench) karpenter(ctx context.Context) error {
	for _, types := range []int{8, 40} {
		pods, instances := diverse(b.pods, 42), fake.InstanceTypes(types)
		peer, err := median(b.pods, func() (func() (int, int, error), error) { return karpenter(ctx, instances, pods) })
		if err != nil {
			return err
		}
		ours, err := median(b.pods, func() (func() (int, int, error), error) { return places(pods, supply(instances)), nil })
		if err != nil {
			return err
		}
		if err := b.compare(types, ours, peer); err != nil {
			return err
		}
	}
	return nil
}

// compare adds the figures of both. It returns an error unless ours has placed as many pods as the peer's, on no
// more machines: how long it took is no comparison otherwise.
func (b *bench) compare(types int, ours, peer sample) error {
	b.add(fmt.Sprintf("karpenter_%d", types), peer)
	b.add(fmt.Sprintf("trueup_%d", types), ours)
	if ours.placed < peer.placed || ours.machines > peer.machines {
		return fmt.Errorf("%d instance types: %d pods are placed on %d machines, must be %d or more on %d or fewer, as karpenter's",
			types, ours.placed, ours.machines, peer.placed, peer.machines)
	}
	b.book.Add(fmt.Sprintf("pool_demand_ratio_karpenter_%d", types), ours.perSecond/peer.perSecond, "x")
	b.book.Add(fmt.Sprintf("pool_demand_allocations_ratio_karpenter_%d", types), peer.allocations/ours.allocations, "x")
	return nil
}

// places reads the pods and places them.
func places(pods []*corev1.Pod, s demand.Supply) func() (int, int, error) {
	return func() (int, int, error) {
		r := demand.Place(demand.Input{Pods: convert(pods), Supplies: []demand.Supply{s}})
		return machines(r), len(r.Placements), nil
	}
}

func marks() []benchfigures.Mark {
	ratio := func(figure, what string, limit float64) benchfigures.Mark {
		return benchfigures.Mark{ID: "N1", What: what, Figure: figure, Limit: limit, AtLeast: true, Hard: true}
	}
	return []benchfigures.Mark{
		ratio("pool_demand_ratio_karpenter_8", "pods placed each second, of karpenter's, 8 instance types", 10),
		ratio("pool_demand_ratio_karpenter_40", "the same, 40 instance types", 10),
		ratio("pool_demand_allocations_ratio_karpenter_8", "allocations of karpenter for each of ours, 8 instance types", 20),
		ratio("pool_demand_allocations_ratio_karpenter_40", "the same, 40 instance types", 20),
	}
}
