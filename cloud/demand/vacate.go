//trueup:pure

package demand

import (
	"cmp"
	"slices"
)

// An Occupied is a node that may be vacated.
type Occupied struct {
	// Node is one of [Input].Nodes.
	Node *Node
	// Pods are the pods of Node that have to go to other nodes. The others, such as the pods of
	// DaemonSets, end with the node. A node without any is about to end by itself.
	Pods []*Pod
}

// A Vacancy is a node that is not needed, and where its pods have room.
type Vacancy struct {
	// Node is the node of the input.
	Node *Node
	// Placements are the pods, each on another of [Input].Nodes.
	Placements []PlacedPod
}

// Vacate returns which of the occupied nodes are not needed: their pods fit on other nodes of the
// input by the rules of [Place]. That holds for all of the result together, and leaves the pods
// of the input the places that they have or wait for: those that fit on a node get their room
// first, those for which a machine starts are there then. No machine that starts, is on standby or
// may be launched gets a pod, and no node that is about to end.
//
// A scheduler chooses other nodes than Place does. So each pod must fit on more nodes than there are
// other pods that come to any, or on one that has room for all of them: then it has a place
// whatever nodes the others get, and no machine is started for it. What pods ask of each other
// beyond one node is as Place has it.
//
// The nodes with the fewest pods come first, among these the ones with the smallest requests. A
// node that gets pods of another one is kept, and so is one with a pod that is Unmodelled or
// Terminating. At most limit nodes are returned; less than 1 means all. Equal input gives an
// equal result, whatever the order of nodes.
func Vacate(in Input, nodes []Occupied, limit int) []Vacancy {
	v := newVacating(&in, nodes)
	for _, o := range slices.SortedFunc(slices.Values(nodes), compareOccupied) {
		if limit > 0 && len(v.out) == limit {
			break
		}
		v.move(o)
	}
	return v.result()
}

func compareOccupied(a, b Occupied) int {
	sum := func(o Occupied) (r Resources) {
		for _, p := range o.Pods {
			r.CPU += p.Requests.CPU
			r.Memory += p.Requests.Memory
		}
		return r
	}
	left, right := sum(a), sum(b)
	return cmp.Or(
		cmp.Compare(len(a.Pods), len(b.Pods)), cmp.Compare(left.CPU, right.CPU), cmp.Compare(left.Memory, right.Memory),
		cmp.Compare(a.Node.Name, b.Node.Name),
	)
}

// vacating is the cluster as it is once the nodes that were found are vacated.
type vacating struct {
	in *Input
	// nodes are the nodes of the input and the machines that start, with the waiting pods that
	// fit there. Nodes that are about to end have no room.
	nodes map[*Node]*Node
	taken map[*Node]bool // those with such pods
	// coming are the waiting pods that are about to come to any of the nodes.
	coming []*Pod
	out    []*Node        // the nodes that were found
	from   map[*Pod]*Node // their pods
	moved  []PlacedPod    // all of these
}

func newVacating(in *Input, nodes []Occupied) *vacating {
	v := &vacating{in: in, nodes: make(map[*Node]*Node, len(in.Nodes)), taken: map[*Node]bool{}, from: map[*Pod]*Node{}}
	for _, n := range in.Nodes {
		v.nodes[n] = n
	}
	for _, s := range in.Starting {
		v.nodes[s.Node] = s.Node
	}
	if len(in.Pods) > 0 {
		for _, p := range Place(*in).Placements {
			if p.On == OnNode || p.On == OnStarting {
				v.put(p)
				v.coming = append(v.coming, p.Pod)
			}
		}
	}
	for _, o := range nodes {
		if len(o.Pods) == 0 && !v.taken[o.Node] {
			full := *o.Node // it still is a domain
			full.Allocatable = Resources{}
			v.nodes[o.Node] = &full
		}
	}
	return v
}

// put adds a pod to the node that it was placed on.
func (v *vacating) put(p PlacedPod) {
	if !v.taken[p.Node] {
		with := *p.Node
		with.Pods = slices.Clip(p.Node.Pods)
		v.nodes[p.Node], v.taken[p.Node] = &with, true
	}
	v.nodes[p.Node].Pods = append(v.nodes[p.Node].Pods, p.Pod)
}

// move vacates a node, if all its pods and the pods of the nodes before fit on others.
func (v *vacating) move(o Occupied) {
	gets := func(p PlacedPod) bool { return p.Node == o.Node }
	if v.taken[o.Node] || v.nodes[o.Node] == nil || len(o.Pods) == 0 || slices.ContainsFunc(v.moved, gets) {
		return
	}
	var pods []*Pod
	for _, p := range v.moved {
		pods = append(pods, p.Pod)
	}
	for _, p := range o.Pods {
		if p.Terminating || len(p.Unmodelled) > 0 {
			return
		}
		pod := *p
		pod.Nominated = "" // of its present node
		pods = append(pods, &pod)
	}
	in, of := v.without(o.Node)
	in.Pods = pods
	if !v.sturdy(in, of) {
		return
	}
	placed := Place(in).Placements
	if len(placed) != len(pods) || slices.ContainsFunc(placed, func(p PlacedPod) bool { return p.On != OnNode }) {
		return
	}
	for i := range placed {
		placed[i].Node = of[placed[i].Node]
	}
	for _, p := range pods[len(v.moved):] {
		v.from[p] = o.Node
	}
	v.moved, v.out = placed, append(v.out, o.Node)
}

// sturdy reports whether each pod of the input has room on a node whatever nodes the others and
// those that are coming get.
func (v *vacating) sturdy(in Input, of map[*Node]*Node) bool {
	nodes := make([]*Node, 0, len(in.Nodes))
	for _, n := range in.Nodes {
		if was := of[n]; v.taken[was] {
			n = was // without those that are coming
		}
		nodes = append(nodes, n)
	}
	in.Nodes = nodes
	m := newModel(&in)
	p := newPacking(m, nil)
	for _, s := range m.nodes {
		p.open(machine{site: s, domains: s.domains})
	}
	p.announce()
	all := make([]int64, m.dims)
	for _, pod := range slices.Concat(in.Pods, v.coming) {
		for d, n := range m.needs(&pod.Requests) {
			all[d] += n
		}
	}
	for _, c := range m.classes {
		fit, roomy := 0, false
		for b := range p.bins {
			if p.fits(c, int32(b)) == yes { //nolint:gosec // fewer machines than that
				fit++
				roomy = roomy || copies(all, p.free[b*m.dims:(b+1)*m.dims]) > 0
			}
		}
		if !roomy && fit < len(in.Pods)+len(v.coming) {
			return false
		}
	}
	return true
}

// without is the cluster without a node and those that were found, and which node of the input
// each of its nodes is. The nodes of stopped machines still are domains for the scheduler.
func (v *vacating) without(node *Node) (in Input, of map[*Node]*Node) {
	in, of = Input{Namespaces: v.in.Namespaces}, make(map[*Node]*Node, len(v.nodes))
	for _, s := range v.in.Supplies {
		in.Supplies = append(in.Supplies, Supply{Pool: s.Pool, Standby: s.Standby})
	}
	var vacated Supply
	for _, n := range append(slices.Clip(v.out), node) {
		empty := *n
		empty.Pods = nil
		vacated.Standby = append(vacated.Standby, &empty)
	}
	in.Supplies = append(in.Supplies, vacated)
	for _, n := range v.in.Nodes {
		if with := v.nodes[n]; with != nil && n != node && !slices.Contains(v.out, n) {
			in.Nodes = append(in.Nodes, with)
			of[with] = n
		}
	}
	for _, s := range v.in.Starting {
		in.Starting = append(in.Starting, Starting{Pool: s.Pool, Node: v.nodes[s.Node]})
	}
	return in, of
}

func (v *vacating) result() []Vacancy {
	var all []Vacancy
	for _, n := range v.out {
		vacancy := Vacancy{Node: n}
		for _, p := range v.moved {
			if v.from[p.Pod] == n {
				vacancy.Placements = append(vacancy.Placements, p)
			}
		}
		all = append(all, vacancy)
	}
	return all
}
