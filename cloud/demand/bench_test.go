package demand_test

import (
	"fmt"
	"testing"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

// BenchmarkDemand is the time of one call, for 20,000 pods of 20 groups with
// constraints of all kinds, and for pods that are all different.
func BenchmarkDemand(b *testing.B) {
	random := newBatch(1)
	in := func(groups, most int, constrained bool) demand.Input {
		d := demand.Input{Pods: random.pods("p", groups, most, constrained)}
		for i, zone := range []string{"x", "y", "z"} {
			d.Nodes = append(d.Nodes, random.node(fmt.Sprint("node-", i), zone))
			d.Supplies = append(d.Supplies, demand.Supply{Pool: zone, MaxLaunches: 1 << 20, Templates: []demand.NodeTemplate{{Node: demand.Node{
				Labels: map[string]string{
					"zone": zone,
					"size": "16",
				},
				Allocatable: demand.Resources{
					CPU: 16_000, Memory: 64 * gi, EphemeralStorage: 100 * gi, Pods: 110, Extended: map[string]int64{"gpu": 8},
				},
			}}}})
		}
		return d
	}
	different := in(1, 1, false)
	different.Pods = nil
	for i := range 10_000 {
		different.Pods = append(
			different.Pods,
			&demand.Pod{Name: fmt.Sprintf("p%05d", i), Requests: asks(int64(100+random.IntN(8000)), int64(random.IntN(32*gi)))},
		)
	}
	// A cluster of 1,000 nodes with 30 pods each, all of which keep away from
	// their likes.
	large := in(5, 20, true)
	for i := range 1000 {
		n := random.node(fmt.Sprintf("large-%d", i), "x")
		for j := range 30 {
			n.Pods = append(
				n.Pods,
				&demand.Pod{
					Namespace:    "one",
					Labels:       map[string]string{"app": fmt.Sprint(j)},
					Requests:     asks(100, 1<<27),
					AntiAffinity: near(hostname, fmt.Sprint(j)),
				},
			)
		}
		large.Nodes = append(large.Nodes, n)
	}
	for _, c := range []struct {
		name string
		in   demand.Input
	}{
		{"large", large},
		{"equal", in(20, 2000, false)},
		{"constrained", in(40, 1000, true)},
		{"different", different},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				demand.Place(c.in)
			}
			pods := float64(len(c.in.Pods)) * float64(b.N)
			b.ReportMetric(pods/b.Elapsed().Seconds(), "pods/s")
		})
	}
}

// BenchmarkVacate is the time of one call in a cluster of 1,000 nodes, of which none can be
// vacated, and of which a tenth can.
func BenchmarkVacate(b *testing.B) {
	for _, c := range []struct {
		name string
		free int64 // millicores of each node
	}{{"full", 50}, {"roomy", 400}} {
		in := demand.Input{}
		for i := range 1000 {
			n := machine(fmt.Sprintf("node-%d", i), "x", 4)
			for j := range 10 {
				p := app(fmt.Sprint(j), asks((4000-c.free)/10, gi))
				p.Name = fmt.Sprintf("p-%d-%d", i, j)
				n.Pods = append(n.Pods, &p)
			}
			in.Nodes = append(in.Nodes, n)
		}
		nodes := occupied(in.Nodes...)
		b.Run(c.name, func(b *testing.B) {
			found := 0
			for b.Loop() {
				found = len(demand.Vacate(in, nodes, 10))
			}
			b.ReportMetric(float64(found), "vacated")
		})
	}
}
