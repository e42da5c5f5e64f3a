package replay

import (
	"slices"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

// placeable reports whether an empty machine has room for requests.
func (s *simulation) placeable(requests demand.Resources) bool {
	key := [2]int64{requests.CPU, requests.Memory}
	fits, known := s.fit[key]
	if !known {
		fits = s.fits(requests)
		s.fit[key] = fits
	}
	return fits
}

// fits reports whether a machine of the pool has room for a pod.
func (s *simulation) fits(requests demand.Resources) bool {
	supply := s.supply(nil)
	supply.MaxLaunches = 1
	return len(demand.Place(demand.Input{Pods: []*demand.Pod{{Requests: requests}}, Supplies: []demand.Supply{supply}}).Unplaced) == 0
}

func (s *simulation) supply(ready []*demand.Node) demand.Supply {
	return demand.Supply{
		Pool: poolName, Standby: ready, MaxLaunches: s.Pool.Size, DefaultRequests: s.DefaultRequests,
		Templates: []demand.NodeTemplate{{Name: templateName, Node: demand.Node{Allocatable: s.Capacity}}},
	}
}

// bind puts waiting pods on the Nodes that are open, each on the one with the most room.
func (s *simulation) bind() {
	if len(s.pending) == 0 {
		return
	}
	open := s.ready[:0]
	for _, m := range s.machines {
		if m.open() {
			open = append(open, m)
		}
	}
	s.ready = open
	full := map[[2]int64]bool{} // requests that fit nowhere any more
	s.pending = slices.DeleteFunc(s.pending, func(p *pod) bool {
		key := [2]int64{p.Requests.CPU, p.Requests.Memory}
		if full[key] {
			return false
		}
		var best *machine
		room := 0.0
		for _, m := range open {
			if !m.fits(p) {
				continue
			}
			if share := s.room(m); best == nil || share > room {
				best, room = m, share
			}
		}
		if best == nil {
			full[key] = true
			return false
		}
		s.place(p, best)
		return true
	})
}

// room is the share of a machine that is free, processors and memory alike.
func (s *simulation) room(m *machine) float64 {
	return float64(m.free.CPU)/float64(s.Capacity.CPU) + float64(m.free.Memory)/float64(s.Capacity.Memory)
}

func (s *simulation) place(p *pod, m *machine) {
	s.changed = s.changed || p.decided || len(m.pods) == 0
	if !p.decided {
		p.decided = true
		s.hits++
	}
	m.take(p, 1)
	delete(s.byUID, p.UID)
	p.machine, p.ends = m, s.now.Add(p.left)
	p.waited += s.now.Sub(p.since)
	s.later(p.left, event{pod: p, run: p.run})
}

// want asks what the waiting pods need, and keeps machines that start for them.
func (s *simulation) want() cloud.Want {
	begins := func(id string) bool {
		m := s.byID[id]
		return m != nil && m.node.State == cloud.StateRunning && !m.node.Ready && s.now.Before(m.node.LastStarted.Add(patience))
	}
	waits := func(uid string) bool { return s.byUID[uid] != nil }
	s.reservations = demand.Settle(s.reservations, waits, begins, s.now)
	var begun, ready []*machine
	for _, m := range s.machines {
		switch {
		case begins(m.instance.ID):
			begun = append(begun, m)
		case m.node.State == cloud.StateStandby:
			ready = append(ready, m)
		}
	}
	var result demand.Result
	// A pool that is full, with nothing to start, can do nothing for pods.
	if len(s.pending) > 0 && (len(begun)+len(ready) > 0 || len(s.machines) < s.Pool.Size) {
		result = demand.Place(s.demand(begun, ready))
	}
	s.reservations = demand.Reserve(s.reservations, result, s.now.Add(patience))
	for _, p := range result.Placements {
		if one := s.byUID[p.Pod.UID]; !one.decided && (p.On == demand.OnStarting || p.On == demand.OnStandby) {
			one.decided = true
			s.hits++
		}
	}
	for _, p := range s.pending {
		p.decided = true
	}
	if len(result.Pools) == 0 {
		return cloud.Want{}
	}
	return result.Pools[0].Want()
}

// demand is the input of the decision about the pods that wait. The Nodes that are open are
// left out: no pod that waits fits on one.
func (s *simulation) demand(begun, ready []*machine) demand.Input {
	in := demand.Input{Pods: make([]*demand.Pod, 0, len(s.pending))}
	for _, p := range s.pending {
		in.Pods = append(in.Pods, &p.Pod)
	}
	reserved := map[string][]string{}
	for _, r := range s.reservations {
		reserved[r.Machine] = r.Pods
	}
	for _, m := range begun {
		in.Starting = append(in.Starting, demand.Starting{Pool: poolName, Node: m.site, Reserved: reserved[m.instance.ID]})
	}
	slices.SortStableFunc(ready, func(a, b *machine) int { return a.node.Since.Compare(b.node.Since) })
	sites := make([]*demand.Node, len(ready))
	for i, m := range ready {
		sites[i] = m.site
	}
	in.Supplies = []demand.Supply{s.supply(sites)}
	return in
}
