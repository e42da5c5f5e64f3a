package pools

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
)

// A Consolidation is which running machines of a pool are not needed.
type Consolidation struct {
	// Vacant are the machines whose pods fit on other Nodes, first choice first.
	Vacant []demand.Vacancy
	// Kept is why each of the others is, by the ID of the machine: one of its pods must stay, or
	// they may not all find room elsewhere.
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
		in.Pods = c.Coming()
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
	limit := max(0, pool.Spec.Disruptions) + moreVacant
	out.Vacant = demand.Vacate(in, occupied, limit)
	for _, o := range occupied {
		vacant := slices.ContainsFunc(out.Vacant, func(v demand.Vacancy) bool { return v.Node == o.Node })
		if len(o.Pods) > 0 && !vacant && len(out.Vacant) < limit {
			out.Kept[o.Node.Machine] = "its pods may not all find room on other Nodes"
		}
	}
	return out
}

// settleAfter is for how long no machine is drained after others were whose pods fitted elsewhere:
// until their pods are seen where they are.
const settleAfter = 10 * time.Second

// consolidate adds to what pods want of a pool the machines that are not needed. One pool at a time
// drains some, so that two do not count on the same room; done is called after the pass with its
// results.
func (s *ScaleUp) consolidate(pool *Pool) (vacate []string, late bool, done func([]cloud.Result)) {
	if pool.Spec.ConsolidateAfter == 0 || pool.Spec.Deleting {
		return nil, true, func([]cloud.Result) {}
	}
	turn := s.moving.TryLock()
	s.mu.Lock()
	settled := !s.time().Before(s.moved.Add(settleAfter))
	s.mu.Unlock()
	return s.Consolidate(pool).Machines(), !turn || !settled, func(results []cloud.Result) {
		if !turn {
			return
		}
		for _, r := range results {
			if r.Action.Verb == cloud.Drain && r.Action.From != r.Action.To && r.Action.Intent.Reason == cloud.ReasonUnderutilized {
				s.mu.Lock()
				s.moved = s.time()
				s.mu.Unlock()
			}
		}
		s.moving.Unlock()
	}
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
