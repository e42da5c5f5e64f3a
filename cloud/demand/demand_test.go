package demand_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

const gi = 1 << 30

// machine is a node of cores cores, with 4 Gi for each, in a zone.
func machine(name, zone string, cores int64) *demand.Node {
	return &demand.Node{
		Name: name, Labels: map[string]string{hostname: name, "zone": zone, "arch": "amd64"},
		Allocatable: demand.Resources{CPU: cores * 1000, Memory: cores * 4 * gi, EphemeralStorage: 20 * gi, Pods: 110},
	}
}

func standby(zone string, names ...string) (all []*demand.Node) {
	for _, name := range names {
		all = append(all, machine(name, zone, 4))
	}
	return all
}

func cordoned(n *demand.Node) *demand.Node {
	n.Unschedulable = true
	return n
}

func pods(n int, name string, shape demand.Pod) (all []*demand.Pod) {
	for i := range n {
		p := shape
		p.Name = fmt.Sprintf("%s-%02d", name, i)
		p.UID = p.Name
		all = append(all, &p)
	}
	return all
}

func asks(cpu, memory int64) demand.Resources { return demand.Resources{CPU: cpu, Memory: memory} }

// summary is what each pool adds, and how many pods are where.
func summary(r demand.Result) (s string) {
	for _, d := range r.Pools {
		s += d.Pool + ":"
		for _, n := range d.Start {
			s += " start " + n.Name
		}
		for _, l := range d.Launch {
			s += fmt.Sprintf(" launch %d %s", l.Count, l.Template)
		}
		s += "; "
	}
	for _, where := range []demand.Where{demand.OnNode, demand.OnStarting, demand.OnStandby, demand.OnLaunch} {
		n := 0
		for _, p := range r.Placements {
			if p.On == where {
				n++
			}
		}
		if n > 0 {
			s += fmt.Sprintf("%d %s ", n, where)
		}
	}
	if len(r.Unplaced) > 0 {
		s += fmt.Sprintf("%d unplaced: ", len(r.Unplaced))
		var reasons []string
		for _, u := range r.Unplaced {
			for _, why := range u.Reasons {
				if line := why.Pool + " " + why.Message; !slices.Contains(reasons, line) {
					reasons = append(reasons, line)
				}
			}
		}
		s += fmt.Sprint(reasons)
	}
	return s
}

func near(key, app string) []demand.PodTerm {
	return []demand.PodTerm{{TopologyKey: key, Selector: selects(app)}}
}

func selects(app string) demand.Selector {
	return demand.Selector{{Key: "app", Operator: demand.In, Values: []string{app}}}
}

func app(name string, requests demand.Resources) demand.Pod {
	return demand.Pod{Namespace: "default", Labels: map[string]string{"app": name}, Requests: requests}
}

func change(p demand.Pod, by func(*demand.Pod)) demand.Pod {
	by(&p)
	return p
}

// volumeIn adds a volume that is attachable in one zone.
func volumeIn(p demand.Pod, zone string) demand.Pod {
	p.Volumes = append(slices.Clip(p.Volumes), demand.Volume{Name: "claim " + zone, Nodes: []demand.NodeTerm{
		{Labels: []demand.Requirement{{Key: "zone", Operator: demand.In, Values: []string{zone}}}},
	}})
	return p
}

// volumeOn adds a volume of one node.
func volumeOn(p demand.Pod, node string) demand.Pod {
	only := demand.Requirement{Operator: demand.In, Values: []string{node}}
	p.Volumes = []demand.Volume{{Name: "claim", Nodes: []demand.NodeTerm{{Names: []demand.Requirement{only}}}}}
	return p
}

func TestDemand(t *testing.T) {
	t.Parallel()
	small := app("web", asks(500, 2*gi))
	four := demand.Supply{Pool: "a", Standby: standby("x", "a-1", "a-2", "a-3", "a-4")}
	cold := demand.Supply{Pool: "a", MaxLaunches: 9, Templates: []demand.NodeTemplate{
		{Name: "x", Node: *machine("", "x", 4)}, {Name: "y", Node: *machine("", "y", 4)}, {Name: "z", Node: *machine("", "z", 4)},
	}}
	daemon := &demand.Pod{Namespace: "kube-system", Name: "agent", Requests: asks(1000, gi), HostPorts: []demand.HostPort{{Port: 9100}}}
	with := func(s demand.Supply, by func(*demand.Supply)) demand.Supply {
		by(&s)
		return s
	}
	for _, c := range []struct {
		name string
		in   demand.Input
		want string
	}{
		{"nothing is needed for no pods", demand.Input{Supplies: []demand.Supply{four}}, ""},
		{
			"ten pods of half a core and 2 Gi take two machines of four cores",
			demand.Input{Pods: pods(10, "p", small), Supplies: []demand.Supply{four}},
			"a: start a-1 start a-2; 10 standby ",
		},
		{
			"three pods of 2.1 cores take three machines of four cores",
			demand.Input{Pods: pods(3, "p", app("web", asks(2100, gi))), Supplies: []demand.Supply{four}},
			"a: start a-1 start a-2 start a-3; 3 standby ",
		},
		{
			"a pod of 100 cores starts nothing",
			demand.Input{Pods: pods(1, "p", app("web", asks(100_000, gi))), Supplies: []demand.Supply{four}},
			"1 unplaced: [a needs 100 cpu, the largest machine has 4 cpu]",
		},
		{
			"a pod of another architecture starts nothing",
			demand.Input{Pods: pods(1, "p", change(small, func(p *demand.Pod) {
				p.NodeSelector = map[string]string{"arch": "arm64"}
			})), Supplies: []demand.Supply{four}},
			"1 unplaced: [a no machine has label arch=arm64]",
		},
		{
			"a volume decides the zone of a launch",
			demand.Input{Pods: pods(2, "p", volumeIn(small, "y")), Supplies: []demand.Supply{cold}},
			"a: launch 1 y; 2 launch ",
		},
		{
			"volumes in two zones are of two machines",
			demand.Input{Pods: append(pods(1, "p", volumeIn(small, "y")), pods(1, "q", volumeIn(small, "z"))...), Supplies: []demand.Supply{cold}},
			"a: launch 1 y launch 1 z; 2 launch ",
		},
		{
			"a volume of a node is attached to no other",
			demand.Input{
				Pods:  append(pods(1, "p", volumeOn(app("web", asks(900, gi)), "n-1")), pods(1, "q", volumeOn(app("web", asks(900, gi)), "n-2"))...),
				Nodes: []*demand.Node{machine("n-1", "x", 1), machine("n-2", "x", 1)},
			},
			"2 node ",
		},
		{
			"each of two pods that are alike has the name of its own volume",
			demand.Input{
				Pods:     append(pods(1, "p", volumeIn(small, "w")), pods(1, "q", change(volumeIn(small, "w"), func(p *demand.Pod) { p.Volumes[0].Name = "claim v" }))...),
				Supplies: []demand.Supply{four},
			},
			"2 unplaced: [a claim w is attachable only where zone in w: no machine would be there a claim v is attachable only where zone in w: no machine would be there]",
		},
		{
			"of two volumes the one that no machine takes is named",
			demand.Input{Pods: pods(1, "p", volumeIn(volumeIn(small, "y"), "w")), Supplies: []demand.Supply{cold}},
			"1 unplaced: [a claim w is attachable only where zone in w: no machine would be there]",
		},
		{
			"a pool that could help comes before one without the zone",
			demand.Input{Pods: pods(1, "p", volumeIn(small, "w")), Supplies: []demand.Supply{four, {Pool: "b"}}},
			"1 unplaced: [b has no machine that can be started or launched a claim w is attachable only where zone in w: no machine would be there]",
		},
		{
			"two volumes in two zones fit nowhere",
			demand.Input{Pods: pods(1, "p", volumeIn(volumeIn(small, "y"), "x")), Supplies: []demand.Supply{cold}},
			"1 unplaced: [a claim y is attachable only where zone in y: no machine would be there]",
		},
		{
			"a volume in a zone without machines starts nothing",
			demand.Input{Pods: pods(1, "p", volumeIn(volumeIn(small, "x"), "w")), Supplies: []demand.Supply{four}},
			"1 unplaced: [a claim w is attachable only where zone in w: no machine would be there]",
		},
		{
			"a volume of no node starts nothing",
			demand.Input{Pods: pods(1, "p", change(small, func(p *demand.Pod) { p.Volumes = []demand.Volume{{Name: "claim c"}} })), Supplies: []demand.Supply{four}},
			"1 unplaced: [a claim c can be attached to no node]",
		},
		{
			"a node takes as many volumes as it says",
			demand.Input{Pods: pods(3, "p", change(small, func(p *demand.Pod) { p.Requests.Extended = map[string]int64{"volumes": 1} })), Supplies: []demand.Supply{
				with(four, func(s *demand.Supply) {
					s.Standby = nil
					for _, n := range standby("x", "a-1", "a-2") {
						n.Allocatable.Extended = map[string]int64{"volumes": 2}
						s.Standby = append(s.Standby, n)
					}
				}),
			}},
			"a: start a-1 start a-2; 3 standby ",
		},
		{
			"a pod that a node has room for starts nothing",
			demand.Input{Pods: pods(3, "p", small), Nodes: []*demand.Node{machine("n", "x", 1)}, Supplies: []demand.Supply{four}},
			"a: start a-1; 2 node 1 standby ",
		},
		{
			"a machine on its way is counted once",
			demand.Input{
				Pods:     append(pods(8, "old", small), pods(5, "young", small)...),
				Starting: []demand.Starting{{Pool: "a", Node: machine("s", "x", 4), Reserved: []string{"old-00", "old-01", "old-02", "old-03", "old-04", "old-05", "old-06", "old-07"}}},
				Supplies: []demand.Supply{four},
			},
			"a: start a-1; 8 starting 5 standby ",
		},
		{
			"room that is left on a machine on its way is used",
			demand.Input{
				Pods:     append(pods(3, "old", small), pods(5, "young", small)...),
				Starting: []demand.Starting{{Pool: "a", Node: machine("s", "x", 4), Reserved: []string{"old-00", "old-01", "old-02"}}},
				Supplies: []demand.Supply{four},
			},
			"8 starting ",
		},
		{
			"a reservation is kept where a node has room meanwhile",
			demand.Input{
				Pods: pods(1, "old", small), Nodes: []*demand.Node{machine("n", "x", 4)},
				Starting: []demand.Starting{{Pool: "a", Node: machine("s", "x", 4), Reserved: []string{"old-00"}}},
			},
			"1 starting ",
		},
		{
			"a pod that the scheduler evicts others for needs no machine",
			demand.Input{
				Pods:     append(pods(1, "vip", change(app("web", asks(3000, gi)), func(p *demand.Pod) { p.Nominated = "full" })), pods(1, "p", small)...),
				Nodes:    []*demand.Node{{Name: "full", Allocatable: asks(1000, 9*gi)}},
				Supplies: []demand.Supply{four},
			},
			"a: start a-1; 1 node 1 standby ",
		},
		{
			"a node without a name is nominated for no pod",
			demand.Input{
				Pods:     append(pods(1, "vip", change(small, func(p *demand.Pod) { p.Nominated = "gone" })), pods(1, "p", small)...),
				Nodes:    []*demand.Node{{Allocatable: asks(100, 9*gi)}},
				Supplies: []demand.Supply{four},
			},
			"a: start a-1; 2 standby ",
		},
		{
			"a nomination for a deleted node does not count",
			demand.Input{Pods: pods(1, "vip", change(small, func(p *demand.Pod) { p.Nominated = "gone" })), Supplies: []demand.Supply{four}},
			"a: start a-1; 1 standby ",
		},
		{
			"of two pools that fit exactly one starts a machine",
			demand.Input{Pods: pods(1, "p", small), Supplies: []demand.Supply{{Pool: "b", Standby: standby("x", "b-1")}, {Pool: "a", Standby: standby("x", "a-1")}}},
			"a: start a-1; 1 standby ",
		},
		{
			"the pool whose spare machines take more pods comes first",
			demand.Input{Pods: pods(12, "p", small), Supplies: []demand.Supply{{Pool: "b", Standby: standby("x", "b-1", "b-2")}, {Pool: "a", Standby: standby("x", "a-1")}}},
			"b: start b-1 start b-2; 12 standby ",
		},
		{
			"a pool of more weight comes before all",
			demand.Input{Pods: pods(12, "p", small), Supplies: []demand.Supply{{Pool: "b", Standby: standby("x", "b-1", "b-2")}, {Pool: "a", Weight: 1, Standby: standby("x", "a-1")}}},
			"a: start a-1; b: start b-1; 12 standby ",
		},
		{
			"standby machines of any pool come before launches",
			demand.Input{Pods: pods(16, "p", small), Supplies: []demand.Supply{with(cold, func(s *demand.Supply) { s.Weight = 1 }), {Pool: "b", Standby: standby("x", "b-1")}}},
			"a: launch 1 x; b: start b-1; 8 standby 8 launch ",
		},
		{
			"launches are bounded",
			demand.Input{Pods: pods(17, "p", small), Supplies: []demand.Supply{with(cold, func(s *demand.Supply) { s.MaxLaunches = 2 })}},
			"a: launch 2 x; 16 launch 1 unplaced: [a all 0 standby machines and 2 launches are taken]",
		},
		{
			"a pod that requests nothing gets a machine of its own",
			demand.Input{Pods: append(pods(2, "none", app("web", demand.Resources{})), pods(1, "p", small)...), Supplies: []demand.Supply{four}},
			"a: start a-1 start a-2 start a-3; 3 standby ",
		},
		{
			"unless its pool has default requests",
			demand.Input{Pods: append(pods(2, "none", app("web", demand.Resources{})), pods(1, "p", small)...), Supplies: []demand.Supply{with(four, func(s *demand.Supply) { s.DefaultRequests = asks(100, gi) })}},
			"a: start a-1; 3 standby ",
		},
		{
			"which is taken off for each of them",
			demand.Input{Pods: pods(9, "none", app("web", demand.Resources{})), Supplies: []demand.Supply{with(four, func(s *demand.Supply) { s.DefaultRequests = asks(1000, gi) })}},
			"a: start a-1 start a-2 start a-3; 9 standby ",
		},
		{
			"a machine of its own takes no other pod",
			demand.Input{Pods: append(pods(1, "none", change(app("web", demand.Resources{}), func(p *demand.Pod) { p.Priority = 1 })), pods(1, "p", small)...), Supplies: []demand.Supply{four}},
			"a: start a-1 start a-2; 2 standby ",
		},
		{
			"a pod that requests nothing takes nothing of a node",
			demand.Input{Pods: pods(50, "none", app("web", demand.Resources{})), Nodes: []*demand.Node{machine("n", "x", 1)}, Supplies: []demand.Supply{four}},
			"50 node ",
		},
		{
			"pods of DaemonSets take their part of a launched machine",
			demand.Input{Pods: pods(8, "p", small), Supplies: []demand.Supply{with(cold, func(s *demand.Supply) {
				s.Templates = []demand.NodeTemplate{{Name: "x", Node: *machine("", "x", 4)}}
				s.Templates[0].Node.Pods = []*demand.Pod{daemon}
			})}},
			"a: launch 2 x; 8 launch ",
		},
		{
			"and their host ports",
			demand.Input{Pods: pods(1, "p", change(small, func(p *demand.Pod) { p.HostPorts = []demand.HostPort{{Port: 9100}} })), Supplies: []demand.Supply{with(cold, func(s *demand.Supply) {
				s.Templates = []demand.NodeTemplate{{Name: "x", Node: *machine("", "x", 4)}}
				s.Templates[0].Node.Pods = []*demand.Pod{daemon}
			})}},
			"1 unplaced: [a host port 9100/TCP is taken on every machine]",
		},
		{
			"and count for a spread",
			demand.Input{
				Pods:  pods(1, "p", change(small, func(p *demand.Pod) { p.Spread = []demand.Spread{{TopologyKey: "zone", Selector: selects("web")}} })),
				Nodes: []*demand.Node{machine("full", "y", 0)},
				Supplies: []demand.Supply{with(cold, func(s *demand.Supply) {
					s.Templates = []demand.NodeTemplate{{Name: "x", Node: *machine("", "x", 4)}}
					s.Templates[0].Node.Pods = []*demand.Pod{{Namespace: "default", Labels: small.Labels}}
				})},
			},
			"1 unplaced: [a one more pod would exceed skew 1 over zone]",
		},
		{
			"a node that is short of what a pod does not ask for takes it",
			demand.Input{
				Pods:  pods(1, "p", app("web", asks(500, 0))),
				Nodes: []*demand.Node{{Name: "n", Allocatable: demand.Resources{CPU: 1000, Memory: gi, Pods: 9}, Pods: []*demand.Pod{{Requests: asks(0, 2*gi)}}}},
			},
			"1 node ",
		},
		{
			"the number of pods of a machine is bounded",
			demand.Input{Pods: pods(5, "p", small), Supplies: []demand.Supply{{Pool: "a", MaxLaunches: 5, Templates: []demand.NodeTemplate{{Node: demand.Node{Allocatable: demand.Resources{CPU: 64_000, Memory: 64 * gi, Pods: 2}}}}}}},
			"a: launch 3 ; 5 launch ",
		},
		{
			"extended resources count",
			demand.Input{Pods: pods(3, "p", change(small, func(p *demand.Pod) { p.Requests.Extended = map[string]int64{"example.com/gpu": 1} })), Supplies: []demand.Supply{
				four, {Pool: "gpu", MaxLaunches: 5, Templates: []demand.NodeTemplate{{Node: demand.Node{Allocatable: demand.Resources{CPU: 64_000, Memory: 64 * gi, Pods: 9, Extended: map[string]int64{"example.com/gpu": 2}}}}}},
			}},
			"gpu: launch 2 ; 3 launch ",
		},
		{
			"a taint keeps out who does not tolerate it",
			demand.Input{Pods: pods(1, "p", small), Supplies: []demand.Supply{with(cold, func(s *demand.Supply) {
				s.Templates = []demand.NodeTemplate{{Node: *machine("", "x", 4)}}
				s.Templates[0].Node.Taints = []demand.Taint{{Key: "dedicated", Value: "db", Effect: demand.NoSchedule}}
			})}},
			"1 unplaced: [a its machines have taint dedicated=db:NoSchedule, which the pod does not tolerate]",
		},
		{
			"pods that keep away from each other get a machine each",
			demand.Input{Pods: pods(3, "p", change(small, func(p *demand.Pod) { p.AntiAffinity = near(hostname, "web") })), Supplies: []demand.Supply{four}},
			"a: start a-1 start a-2 start a-3; 3 standby ",
		},
		{
			"pods that keep away from each other over zones get a zone each",
			demand.Input{Pods: pods(4, "p", change(small, func(p *demand.Pod) { p.AntiAffinity = near("zone", "web") })), Supplies: []demand.Supply{cold}},
			"a: launch 1 x launch 1 y launch 1 z; 3 launch 1 unplaced: [a anti-affinity keeps the pod out of the zone of its machines]",
		},
		{
			"a pod keeps away from one that does not want it near",
			demand.Input{
				Pods:  pods(1, "p", small),
				Nodes: []*demand.Node{{Name: "n", Labels: map[string]string{hostname: "n"}, Allocatable: demand.Resources{CPU: 9000, Memory: 99 * gi, Pods: 9}, Pods: []*demand.Pod{{Namespace: "default", AntiAffinity: near(hostname, "web")}}}},
			},
			"1 unplaced: []",
		},
		{
			"pods that want to be together fill one zone",
			demand.Input{Pods: pods(10, "p", change(small, func(p *demand.Pod) { p.Affinity = near("zone", "web") })), Supplies: []demand.Supply{with(cold, func(s *demand.Supply) { s.Standby = standby("y", "a-1") })}},
			"a: start a-1 launch 1 y; 8 standby 2 launch ",
		},
		{
			"a small pod that wants to be near a later one waits for it",
			demand.Input{Pods: append(pods(1, "big", change(app("db", asks(3000, gi)), func(p *demand.Pod) { p.Affinity = near(hostname, "web") })), pods(1, "small", small)...), Supplies: []demand.Supply{four}},
			"a: start a-1; 2 standby ",
		},
		{
			"a pod that wants to be near none that is there is not placed",
			demand.Input{Pods: pods(1, "p", change(small, func(p *demand.Pod) { p.Affinity = near(hostname, "db") })), Supplies: []demand.Supply{four}},
			"1 unplaced: [a no machine is near the pods that the pod affinity asks for]",
		},
		{
			"the zones of stopped machines are spread over, because their nodes are there",
			demand.Input{
				Pods:     pods(3, "p", change(small, func(p *demand.Pod) { p.Spread = []demand.Spread{{TopologyKey: "zone", Selector: selects("web")}} })),
				Supplies: []demand.Supply{{Pool: "a", Standby: append(standby("x", "x-1", "x-2"), standby("y", "y-1")...)}},
			},
			"a: start x-1 start y-1; 3 standby ",
		},
		{
			"a node that was refused for the skew is tried again",
			demand.Input{
				Pods:     pods(6, "p", change(small, func(p *demand.Pod) { p.Spread = []demand.Spread{{TopologyKey: "zone", Selector: selects("web")}} })),
				Nodes:    []*demand.Node{machine("n1", "x", 4), machine("n2", "x", 0), machine("n3", "y", 4)},
				Supplies: []demand.Supply{four},
			},
			"6 node ",
		},
		{
			"and so is a standby machine",
			demand.Input{
				Pods: pods(3, "p", change(app("web", asks(3000, gi)), func(p *demand.Pod) { p.Spread = []demand.Spread{{TopologyKey: "zone", Selector: selects("web")}} })),
				Supplies: []demand.Supply{with(cold, func(s *demand.Supply) {
					s.Standby = append(standby("x", "x-1", "x-2"), standby("y", "y-1")...)
				})},
			},
			"a: start x-1 start x-2 start y-1; 3 standby ",
		},
		{
			"of two nodes that look alike the one that is cordoned takes nothing",
			demand.Input{Pods: pods(4, "p", small), Nodes: []*demand.Node{machine("n1", "x", 1), cordoned(machine("n2", "x", 1))}, Supplies: []demand.Supply{four}},
			"a: start a-1; 2 node 2 standby ",
		},
		{
			"as many domains as asked for",
			demand.Input{
				Pods: pods(3, "p", change(small, func(p *demand.Pod) {
					p.Spread = []demand.Spread{{TopologyKey: "zone", MinDomains: 3, Selector: selects("web")}}
				})),
				Supplies: []demand.Supply{cold},
			},
			"a: launch 1 x launch 1 y launch 1 z; 3 launch ",
		},
		{
			"a zone without a machine stops a spread",
			demand.Input{
				Pods:     pods(3, "p", change(small, func(p *demand.Pod) { p.Spread = []demand.Spread{{TopologyKey: "zone", Selector: selects("web")}} })),
				Nodes:    []*demand.Node{machine("full", "y", 0)},
				Supplies: []demand.Supply{four},
			},
			"a: start a-1; 1 standby 2 unplaced: [a one more pod would exceed skew 1 over zone]",
		},
		{
			"machines of pods that keep away from each other are filled up by the others",
			demand.Input{
				Pods: append(pods(6, "big", change(app("web", asks(1000, gi)), func(p *demand.Pod) { p.Spread = []demand.Spread{{TopologyKey: hostname, Selector: selects("web")}} })),
					pods(2, "small", change(app("db", asks(900, gi)), func(p *demand.Pod) { p.AntiAffinity = near(hostname, "db") }))...),
				Supplies: []demand.Supply{cold},
			},
			"a: launch 2 x; 8 launch ",
		},
		{
			"the higher priority gets what there is",
			demand.Input{
				Pods:     append(pods(1, "big", app("web", asks(3000, gi))), pods(2, "vip", change(app("web", asks(2000, gi)), func(p *demand.Pod) { p.Priority = 1 }))...),
				Supplies: []demand.Supply{{Pool: "a", Standby: standby("x", "a-1")}},
			},
			"a: start a-1; 2 standby 1 unplaced: [a all 1 standby machines and 0 launches are taken]",
		},
		{
			"no selector selects nothing, an empty one everything",
			demand.Input{
				Pods: append(pods(1, "a", change(small, func(p *demand.Pod) { p.AntiAffinity = []demand.PodTerm{{TopologyKey: hostname}} })),
					pods(1, "b", change(small, func(p *demand.Pod) {
						p.AntiAffinity = []demand.PodTerm{{TopologyKey: hostname, Selector: demand.Selector{}}}
					}))...),
				Supplies: []demand.Supply{four},
			},
			"a: start a-1 start a-2; 2 standby ",
		},
		{
			"a namespace has its name as a label",
			demand.Input{
				Pods: append(pods(1, "a", small), pods(1, "b", change(app("db", asks(400, gi)), func(p *demand.Pod) {
					p.Namespace = "other"
					p.AntiAffinity = near(hostname, "web")
					p.AntiAffinity[0].NamespaceSelector = demand.Selector{{Key: "kubernetes.io/metadata.name", Operator: demand.In, Values: []string{"default"}}}
				}))...),
				Namespaces: map[string]map[string]string{"default": nil, "other": nil},
				Supplies:   []demand.Supply{four},
			},
			"a: start a-1 start a-2; 2 standby ",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, summary(demand.Place(c.in)))
		})
	}
}

// TestReasonsOfPoolsThatThePodSelectsComeFirst: where there are more pools than a message
// has room for, the end of the list is cut.
func TestReasonsOfPoolsThatThePodSelectsComeFirst(t *testing.T) {
	t.Parallel()
	labelled := func(m *demand.Node, taints ...demand.Taint) *demand.Node {
		m.Labels["team"], m.Taints = "x", taints
		return m
	}
	var in demand.Input
	for i := range 40 {
		in.Supplies = append(in.Supplies, demand.Supply{Pool: fmt.Sprintf("a-%02d", i), Standby: standby("x", fmt.Sprintf("m-%02d", i))})
	}
	in.Supplies = append(
		in.Supplies,
		demand.Supply{Pool: "w-empty"},
		demand.Supply{
			Pool:    "x-tainted",
			Standby: []*demand.Node{labelled(machine("x-1", "x", 4), demand.Taint{Key: "t", Effect: demand.NoSchedule})},
		},
		demand.Supply{Pool: "z-small", Standby: []*demand.Node{labelled(machine("z-1", "x", 4))}},
		demand.Supply{Pool: "y-taken", MaxLaunches: 0, Templates: []demand.NodeTemplate{{Node: *labelled(machine("", "x", 99))}}},
	)
	in.Pods = pods(1, "p", change(app("web", asks(50_000, gi)), func(p *demand.Pod) { p.NodeSelector = map[string]string{"team": "x"} }))
	reasons := demand.Place(in).Unplaced[0].Reasons
	require.Len(t, reasons, 44)
	require.Equal(t, []demand.Reason{
		{Pool: "y-taken", Message: "all 0 standby machines and 0 launches are taken"},
		{Pool: "z-small", Message: "needs 50 cpu, the largest machine has 4 cpu"},
		{Pool: "w-empty", Message: "has no machine that can be started or launched"},
		{Pool: "x-tainted", Message: "its machines have taint t:NoSchedule, which the pod does not tolerate"},
		{Pool: "a-00", Message: "no machine has label team=x"},
	}, reasons[:5])
	require.Equal(t, "a-39", reasons[43].Pool)
}

// TestAPoolThatCannotLaunchIsPassedOver: pods go to the next pool that fits in the same
// decision, and to machines that are launched already before any other.
func TestAPoolThatCannotLaunchIsPassedOver(t *testing.T) {
	t.Parallel()
	pool := func(name string, coming, room int, limit string) demand.Supply {
		return demand.Supply{
			Pool:        name,
			Coming:      coming,
			MaxLaunches: room,
			Limit:       limit,
			Templates:   []demand.NodeTemplate{{Name: "t", Node: *machine("", "x", 1)}},
		}
	}
	for name, c := range map[string]struct {
		pods     int
		supplies []demand.Supply
		want     string
	}{
		"the first is full":             {2, []demand.Supply{pool("a", 0, 0, "full"), pool("b", 0, 3, "")}, "b: launch 2 t; 2 launch "},
		"it has less room than needed":  {3, []demand.Supply{pool("a", 0, 2, ""), pool("b", 0, 3, "")}, "b: launch 3 t; 3 launch "},
		"neither has enough by itself":  {4, []demand.Supply{pool("a", 0, 2, ""), pool("b", 0, 2, "")}, "a: launch 2 t; b: launch 2 t; 4 launch "},
		"what the first has launched":   {2, []demand.Supply{pool("a", 2, 0, "full"), pool("b", 0, 3, "")}, "a: launch 2 t; 2 launch "},
		"what the second has launched":  {2, []demand.Supply{pool("a", 0, 3, ""), pool("b", 2, 0, "full")}, "b: launch 2 t; 2 launch "},
		"and more than it has launched": {2, []demand.Supply{pool("a", 0, 3, ""), pool("b", 1, 0, "full")}, "a: launch 1 t; b: launch 1 t; 2 launch "},
		"none can": {
			1,
			[]demand.Supply{pool("a", 0, 0, "PoolFull: it has 1 of 1 machines"), pool("b", 0, 0, "")},
			"1 unplaced: [a all 0 standby machines and 0 launches are taken: PoolFull: it has 1 of 1 machines b all 0 standby machines and 0 launches are taken]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(
				t,
				c.want,
				summary(demand.Place(demand.Input{Pods: pods(c.pods, "p", app("web", asks(1000, gi))), Supplies: c.supplies})),
			)
		})
	}
}

func TestWhatIsNotModelledIsReportedAndStartsNothing(t *testing.T) {
	t.Parallel()
	odd := pods(
		1,
		"odd",
		change(app("db", asks(1000, gi)), func(p *demand.Pod) { p.Unmodelled = []string{"volume data: its zone is not known"} }),
	)
	r := demand.Place(demand.Input{
		Pods:     append(pods(2, "p", app("web", asks(1000, gi))), odd...),
		Supplies: []demand.Supply{{Pool: "a", Standby: standby("x", "a-1")}},
	})
	require.Equal(t, odd, r.Unmodelled)
	require.Equal(t, "a: start a-1; 2 standby ", summary(r))

	r = demand.Place(demand.Input{Pods: odd, Supplies: []demand.Supply{{Pool: "a", Standby: standby("x", "a-1")}}})
	require.Empty(t, r.Pools)
}

func TestAPlacementNamesTheMachine(t *testing.T) {
	t.Parallel()
	node, moving, stopped := machine("n", "x", 1), machine("s", "x", 1), machine("a-1", "x", 1)
	r := demand.Place(demand.Input{
		Pods:     pods(5, "p", app("web", asks(1000, gi))),
		Nodes:    []*demand.Node{node},
		Starting: []demand.Starting{{Pool: "a", Node: moving}},
		Supplies: []demand.Supply{
			{Pool: "a", Standby: []*demand.Node{stopped}, MaxLaunches: 2, Templates: []demand.NodeTemplate{{Name: "t", Node: *machine("", "x", 1)}}},
		},
	})
	for i := range r.Placements {
		r.Placements[i].Pod = nil
	}
	require.Equal(t, []demand.PlacedPod{
		{On: demand.OnNode, Node: node},
		{On: demand.OnStarting, Pool: "a", Node: moving},
		{On: demand.OnStandby, Pool: "a", Node: stopped},
		{On: demand.OnLaunch, Pool: "a", Template: "t", Launch: 0},
		{On: demand.OnLaunch, Pool: "a", Template: "t", Launch: 1},
	}, r.Placements)
}
