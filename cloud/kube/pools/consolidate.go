package pools

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
)

// A Consolidation is which running machines of a pool are not needed.
type Consolidation struct {
	// Vacant are the machines whose pods fit on other Nodes, first choice first.
	Vacant []demand.Vacancy
	// Kept is why a pod of each of the others must stay on it, by the ID of the machine.
	// Machines whose pods only fit nowhere else are not in it.
	Kept map[string]string
}

// moreVacant is how many machines are looked for beyond those that may be drained at a time:
// one of them may have to be passed over.
const moreVacant = 10

// Consolidate returns the machines of a pool whose pods fit on other Nodes, of any pool, as
// [demand.Vacate] does. Pods that wait, and those for which machines were started, have their
// room first. Nodes that are empty get none: their machines are about to be stopped.
func (s *ScaleUp) Consolidate(pool *Pool) Consolidation {
	now, out := s.time(), Consolidation{Kept: map[string]string{}}
	pools := s.Pools()
	var in demand.Input
	var occupied []demand.Occupied
	s.mu.Lock()
	s.Cluster.Read(func(c nodes.Snapshot) {
		c = c.ForMoves()
		in.Pods = c.Waiting()
		s.supplies(c, &in, map[string]string{}, pools, now)
		for _, node := range in.Nodes {
			v, known := c.OfMachine(node.Machine)
			of := pools[v.Pool]
			if !known || of == nil || !of.Owns(&v) || v.Status.State != cloud.StateRunning {
				continue
			}
			pods, kept := c.Movable(v.Status.Name)
			ours := of.Nodes.Name == pool.Nodes.Name
			switch {
			case kept != "":
				if ours {
					out.Kept[node.Machine] = kept
				}
			case len(pods) == 0 && !of.Spec.KeepEmpty, len(pods) > 0 && ours && v.Status.Ready:
				occupied = append(occupied, demand.Occupied{Node: node, Pods: pods})
			}
		}
	})
	s.mu.Unlock()
	out.Vacant = demand.Vacate(in, occupied, max(0, pool.Spec.Disruptions)+moreVacant)
	return out
}

// Machines returns the IDs of the machines that are not needed, for [cloud.Want].Vacate.
func (c Consolidation) Machines() []string {
	ids := make([]string, 0, len(c.Vacant))
	for _, v := range c.Vacant {
		ids = append(ids, v.Node.Machine)
	}
	return ids
}

// String returns a line for each machine that is not needed, and for each that is kept.
func (c Consolidation) String() string {
	var b strings.Builder
	for _, v := range c.Vacant {
		moves := make([]string, 0, len(v.Placements))
		for _, p := range v.Placements {
			moves = append(moves, fmt.Sprintf("%s/%s to %s", p.Pod.Namespace, p.Pod.Name, p.Node.Name))
		}
		fmt.Fprintf(&b, "not needed: %s (Node %s): its pods fit on other Nodes: %s\n", v.Node.Machine, v.Node.Name, strings.Join(moves, ", "))
	}
	for _, id := range slices.Sorted(maps.Keys(c.Kept)) {
		fmt.Fprintf(&b, "not moved: %s: %s\n", id, c.Kept[id])
	}
	return b.String()
}
