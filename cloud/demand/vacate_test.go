package demand_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

// with puts pods on a node.
func with(n *demand.Node, pods ...*demand.Pod) *demand.Node {
	n.Pods = append(n.Pods, pods...)
	return n
}

// occupied are nodes whose pods may all be moved, except the pods of DaemonSets.
func occupied(nodes ...*demand.Node) (all []demand.Occupied) {
	for _, n := range nodes {
		movable := slices.DeleteFunc(slices.Clone(n.Pods), func(p *demand.Pod) bool { return p.Namespace == "kube-system" })
		all = append(all, demand.Occupied{Node: n, Pods: movable})
	}
	return all
}

func TestVacate(t *testing.T) {
	t.Parallel()
	web := app("web", asks(1000, gi))
	one := func(name string, change func(*demand.Pod)) *demand.Pod {
		p := pods(1, name, web)[0]
		if change != nil {
			change(p)
		}
		return p
	}
	four := func(name, zone string, n int) *demand.Node {
		return with(machine(name, zone, 4), pods(n, name, web)...)
	}
	spread := func(p *demand.Pod) {
		p.Spread = []demand.Spread{{TopologyKey: hostname, MaxSkew: 1, Selector: selects("web")}}
	}
	for name, c := range map[string]struct {
		nodes []*demand.Node
		in    func(*demand.Input)
		limit int
		also  *demand.Node // beside the nodes
		want  string
	}{
		"the pods of one fit on the other": {
			nodes: []*demand.Node{four("a", "x", 1), four("b", "x", 2)}, want: "a: a-00 to b",
		},
		"as long as there is room": {
			nodes: []*demand.Node{four("a", "x", 1), four("b", "x", 1), four("c", "x", 1), four("d", "x", 3)}, want: "a: a-00 to b; c: c-00 to b",
		},
		"at most so many": {
			nodes: []*demand.Node{four("a", "x", 1), four("b", "x", 1), four("c", "x", 1), four("d", "x", 3)}, limit: 1, want: "a: a-00 to b",
		},
		"pods that fit only in one way stay": {
			// The scheduler can place one of the pods on the only node with room for the other.
			nodes: []*demand.Node{
				with(machine("a", "x", 4), one("p", func(p *demand.Pod) { p.Requests.CPU = 1800 }), one("q", func(p *demand.Pod) { p.Requests.CPU = 1400 })),
				with(machine("b", "x", 4), one("b1", func(p *demand.Pod) { p.Requests.CPU = 2000 }), one("b2", func(p *demand.Pod) { p.Requests.CPU = 100 }), one("b3", nil)),
				with(machine("c", "x", 4), one("c1", func(p *demand.Pod) { p.Requests.CPU = 2200 }), one("c2", func(p *demand.Pod) { p.Requests.CPU = 200 }), one("c3", nil)),
			},
		},
		"pods that each have more nodes than there are others do not": {
			nodes: []*demand.Node{four("a", "x", 2), four("b", "x", 3), four("c", "x", 3), four("d", "x", 4)}, want: "a: a-00 to b, a-01 to c",
		},
		"a pod that waits may take one of these nodes": {
			nodes: []*demand.Node{four("a", "x", 2), four("b", "x", 3), four("c", "x", 3), four("d", "x", 4)}, in: func(in *demand.Input) {
				in.Pods = []*demand.Pod{one("waits", func(p *demand.Pod) { p.Requests.CPU = 100 })}
			},
		},
		"of as many pods the ones that ask for less go first": {
			nodes: []*demand.Node{
				with(machine("a", "x", 4), one("a1", func(p *demand.Pod) { p.Requests.CPU = 1200 })),
				with(machine("b", "x", 4), one("b1", func(p *demand.Pod) { p.Requests.CPU = 1100 })), four("c", "x", 2),
			},
			limit: 1, want: "b: b1-00 to a",
		},
		"and of as many processors the ones with less memory": {
			nodes: []*demand.Node{
				with(machine("a", "x", 4), one("a1", func(p *demand.Pod) { p.Requests.Memory = 2 * gi })),
				with(machine("b", "x", 4), one("b1", nil)), four("c", "x", 2),
			},
			limit: 1, want: "b: b1-00 to a",
		},
		"fewer pods go before less": {
			nodes: []*demand.Node{
				with(machine("a", "x", 4), one("a1", func(p *demand.Pod) { p.Requests.CPU = 100 }), one("a2", func(p *demand.Pod) { p.Requests.CPU = 100 })),
				with(machine("b", "x", 4), one("b1", func(p *demand.Pod) { p.Requests.CPU = 1100 })), four("c", "x", 2),
			},
			limit: 1, want: "b: b1-00 to a",
		},
		"pods of a machine that starts count for the scheduler": {
			// The pod must not be near the one that waits for the machine.
			nodes: []*demand.Node{
				with(machine("a", "x", 4), one("p", func(p *demand.Pod) { p.AntiAffinity = near("zone", "other") })), four("b", "y", 4), four("c", "z", 2),
			},
			in: func(in *demand.Input) {
				waits := one("waits", func(p *demand.Pod) {
					p.Labels = map[string]string{"app": "other"}
					p.NodeSelector = map[string]string{"zone": "z"}
				})
				waits.Requests.CPU = 3000
				in.Pods = []*demand.Pod{waits}
				in.Starting = []demand.Starting{{Node: machine("s", "z", 4), Reserved: []string{waits.UID}}}
			},
		},
		"a node that is not in the input is none": {
			nodes: []*demand.Node{four("a", "x", 4), four("b", "x", 4)}, also: four("stranger", "x", 1), want: "",
		},
		"full nodes stay": {nodes: []*demand.Node{four("a", "x", 3), four("b", "x", 2)}},
		"all pods of a node fit or none goes": {
			nodes: []*demand.Node{four("a", "x", 2), four("b", "x", 3), four("c", "x", 4)},
		},
		"pods that wait have their room first": {
			nodes: []*demand.Node{four("a", "x", 1), four("b", "x", 3)}, in: func(in *demand.Input) {
				in.Pods = []*demand.Pod{one("waits", func(p *demand.Pod) { p.NodeSelector = map[string]string{hostname: "b"} })}
			},
		},
		"and keep their node": {
			nodes: []*demand.Node{four("a", "x", 1), four("b", "x", 2)}, in: func(in *demand.Input) {
				in.Pods = []*demand.Pod{one("waits", func(p *demand.Pod) { p.NodeSelector = map[string]string{hostname: "a"} })}
			},
			want: "b: b-00 to a, b-01 to a",
		},
		"one that fits nowhere changes nothing": {
			nodes: []*demand.Node{four("a", "x", 1), four("b", "x", 2)}, in: func(in *demand.Input) {
				in.Pods = []*demand.Pod{one("huge", func(p *demand.Pod) { p.Requests.CPU = 99_000 })}
			},
			want: "a: a-00 to b",
		},
		"no machine is started for it": {
			nodes: []*demand.Node{four("a", "x", 1), four("b", "x", 4)}, in: func(in *demand.Input) {
				in.Supplies = []demand.Supply{{Pool: "p", Standby: standby("x", "s"), MaxLaunches: 9, Templates: []demand.NodeTemplate{{Node: *machine("", "x", 4)}}}}
			},
		},
		"nor does one that starts count": {
			nodes: []*demand.Node{four("a", "x", 1), four("b", "x", 4)}, in: func(in *demand.Input) {
				in.Starting = []demand.Starting{{Node: machine("s", "x", 4)}}
			},
		},
		"a pod of a zone stays in it": {
			nodes: []*demand.Node{
				with(machine("a", "x", 4), one("p", func(p *demand.Pod) { p.NodeSelector = map[string]string{"zone": "x"} })), four("b", "y", 2),
			},
			want: "b: b-00 to a, b-01 to a",
		},
		"so does one whose volume is there": {
			nodes: []*demand.Node{
				with(machine("a", "x", 4), one("p", func(p *demand.Pod) { *p = volumeIn(*p, "x") })), four("b", "y", 4),
			},
		},
		"a cordoned node gets none": {nodes: []*demand.Node{four("a", "x", 1), cordoned(four("b", "x", 0)), four("c", "x", 4)}},
		"replicas that must be apart stay": {
			nodes: []*demand.Node{
				with(machine("a", "x", 4), one("p", func(p *demand.Pod) { p.AntiAffinity = near(hostname, "web") })), four("b", "x", 2),
			},
		},
		"the node of a machine that was stopped still is a domain": {
			// Two on b and none on a is a skew of 2.
			nodes: []*demand.Node{with(machine("a", "x", 4), one("p", spread)), with(machine("b", "x", 4), one("q", spread))},
		},
		"unless its taint counts": {
			nodes: []*demand.Node{
				with(machine("a", "x", 4), one("p", func(p *demand.Pod) { spread(p); p.Spread[0].HonorTaints = true })),
				with(machine("b", "x", 4), one("q", func(p *demand.Pod) { spread(p); p.Spread[0].HonorTaints = true })),
			},
			want: "a: p-00 to b",
		},
		"a pod that ends is waited for": {
			nodes: []*demand.Node{with(machine("a", "x", 4), one("p", func(p *demand.Pod) { p.Terminating = true })), four("b", "x", 4)},
		},
		"a pod of which nothing is known stays": {
			nodes: []*demand.Node{with(machine("a", "x", 4), one("p", func(p *demand.Pod) { p.Unmodelled = []string{"a device"} })), four("b", "x", 4)},
		},
		"an empty node ends by itself, and gets none": {nodes: []*demand.Node{four("a", "x", 0), four("b", "x", 1)}},
		"unless a pod that waits is about to be on it": {
			nodes: []*demand.Node{four("a", "x", 0), four("b", "x", 1)}, in: func(in *demand.Input) {
				in.Pods = []*demand.Pod{one("waits", func(p *demand.Pod) { p.NodeSelector = map[string]string{hostname: "a"} })}
			},
			want: "b: b-00 to a",
		},
		"what the scheduler once made room for moves, too": {
			nodes: []*demand.Node{with(machine("a", "x", 4), one("p", func(p *demand.Pod) { p.Nominated = "a" })), four("b", "x", 2)}, want: "a: p-00 to b",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := demand.Input{Nodes: c.nodes, Namespaces: map[string]map[string]string{"default": nil}}
			if c.in != nil {
				c.in(&in)
			}
			var got []string
			all := c.nodes
			if c.also != nil {
				all = append(slices.Clip(all), c.also)
			}
			for _, v := range demand.Vacate(in, occupied(all...), c.limit) {
				var moves []string
				for _, p := range v.Placements {
					require.Equal(t, demand.OnNode, p.On)
					require.Contains(t, c.nodes, p.Node)
					moves = append(moves, p.Pod.Name+" to "+p.Node.Name)
				}
				got = append(got, v.Node.Name+": "+strings.Join(moves, ", "))
			}
			require.Equal(t, c.want, strings.Join(got, "; "))
		})
	}
}

// vacated is the input with more nodes and pods, what of it is vacated, and the cluster after
// that as package demand's plain model has it.
func vacated(seed uint64) (in demand.Input, nodes []demand.Occupied, out []demand.Vacancy, w *world, at map[string]*dumbNode) {
	b := newBatch(seed)
	in = b.input()
	plain := &world{namespaces: in.Namespaces}
	for _, n := range in.Nodes {
		plain.add(n)
	}
	for i := range 2 + b.IntN(4) {
		n := b.node(fmt.Sprintf("more-%d", i), b.zone())
		in.Nodes = append(in.Nodes, n)
		plain.add(n)
	}
	for _, p := range b.pods("bound", 1+b.IntN(4), 4, true) {
		for _, i := range b.Perm(len(plain.nodes)) {
			if n := plain.nodes[i]; plain.fits(p, n) == "" {
				n.pods, n.Pods = append(n.pods, p), append(n.Pods, p)
				break
			}
		}
	}
	nodes = occupied(in.Nodes...)
	out = demand.Vacate(in, nodes, 0)
	w, at = &world{namespaces: in.Namespaces}, map[string]*dumbNode{}
	gone := func(n *demand.Node) bool {
		return slices.ContainsFunc(out, func(v demand.Vacancy) bool { return v.Node == n })
	}
	for _, n := range in.Nodes {
		d := w.add(n)
		at[n.Name] = d
		if gone(n) {
			d.stopped, d.pods = true, nil
		}
	}
	for _, s := range in.Supplies {
		for _, n := range s.Standby {
			w.add(n).stopped = true
		}
	}
	for _, s := range in.Starting {
		at[s.Node.Name] = w.add(s.Node)
	}
	for _, p := range demand.Place(in).Placements {
		if p.On == demand.OnNode || p.On == demand.OnStarting {
			at[p.Node.Name].pods = append(at[p.Node.Name].pods, p.Pod)
		}
	}
	return in, nodes, out, w, at
}

func TestEveryVacatedPodHasRoomElsewhere(t *testing.T) {
	t.Parallel()
	found, moved := 0, 0
	seeds(t, 2000, func(seed uint64) {
		_, nodes, out, w, at := vacated(seed)
		var all []demand.PlacedPod
		for _, v := range out {
			i := slices.IndexFunc(nodes, func(o demand.Occupied) bool { return o.Node == v.Node })
			require.Len(t, v.Placements, len(nodes[i].Pods), "seed %d: each pod of %s", seed, v.Node.Name)
			all = append(all, v.Placements...)
		}
		require.Empty(t, settle(w, at, all), "seed %d", seed)
		found, moved = found+len(out), moved+len(all)
	})
	t.Logf("%d nodes vacated of %d pods", found, moved)
	require.Greater(t, found, 20)
}

func TestWhatIsVacatedIsTheSameInAnyOrder(t *testing.T) {
	t.Parallel()
	seeds(t, 500, func(seed uint64) {
		in, nodes, out, _, _ := vacated(seed)
		slices.Reverse(nodes)
		slices.Reverse(in.Pods)
		require.Empty(t, cmp.Diff(out, demand.Vacate(in, nodes, 0)), "seed %d", seed)
	})
}

// Of pods that are alone on their nodes, without any constraint, one is moved unless none has room
// elsewhere: the smallest requests first.
func TestWhatFitsIsVacated(t *testing.T) {
	t.Parallel()
	kept := 0
	seeds(t, 1000, func(seed uint64) {
		b := newBatch(seed)
		in := demand.Input{}
		for i := range 2 + b.IntN(6) {
			n := b.node(fmt.Sprintf("node-%d", i), "x")
			n.Taints = nil
			p := app("web", b.requests())
			p.Requests.CPU += 1900
			p.Name = n.Name
			in.Nodes = append(in.Nodes, with(n, &p))
		}
		if len(demand.Vacate(in, occupied(in.Nodes...), 0)) > 0 {
			return
		}
		kept++
		for _, n := range in.Nodes {
			for _, other := range in.Nodes {
				if other != n {
					pod := n.Pods[len(n.Pods)-1]
					require.False(t, dumbRoom(pod, &dumbNode{Node: other, pods: other.Pods}), "seed %d: %s has room on %s", seed, pod.Name, other.Name)
				}
			}
		}
	})
	require.Positive(t, kept)
}

// A scheduler takes the pods in any order, and any node that fits. None is left without a place.
func TestNoChoiceOfTheSchedulerLeavesAPodOut(t *testing.T) {
	t.Parallel()
	found := 0
	seeds(t, 2000, func(seed uint64) {
		b := newBatch(seed)
		in := demand.Input{}
		w := &world{}
		for i := range 3 + b.IntN(5) {
			n := b.node(fmt.Sprintf("node-%d", i), b.zone())
			in.Nodes = append(in.Nodes, n)
			w.add(n)
		}
		for _, p := range b.pods("bound", 3+b.IntN(5), 4, false) {
			for _, i := range b.Perm(len(w.nodes)) {
				if n := w.nodes[i]; w.fits(p, n) == "" {
					n.pods, n.Pods = append(n.pods, p), append(n.Pods, p)
					break
				}
			}
		}
		in.Pods = b.pods("waits", b.IntN(3), 2, false)
		out := demand.Vacate(in, occupied(in.Nodes...), 0)
		found += len(out)
		for range 20 {
			var coming []*demand.Pod
			after := &world{}
			for _, n := range in.Nodes {
				d := after.add(n)
				if slices.ContainsFunc(out, func(v demand.Vacancy) bool { return v.Node == n }) {
					d.stopped, d.pods = true, nil
				}
			}
			for _, v := range out {
				for _, p := range v.Placements {
					coming = append(coming, p.Pod)
				}
			}
			for _, p := range demand.Place(in).Placements {
				if p.On == demand.OnNode {
					coming = append(coming, p.Pod)
				}
			}
			b.Shuffle(len(coming), func(i, j int) { coming[i], coming[j] = coming[j], coming[i] })
			for _, p := range coming {
				fits := slices.DeleteFunc(slices.Clone(after.nodes), func(n *dumbNode) bool { return after.fits(p, n) != "" })
				if len(fits) == 0 {
					require.False(t, strings.HasPrefix(p.Name, "bound"), "seed %d: %s has no place", seed, p.Name)
					continue
				}
				n := fits[b.IntN(len(fits))]
				n.pods = append(n.pods, p)
			}
		}
	})
	require.Greater(t, found, 20)
}
