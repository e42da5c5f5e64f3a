//trueup:pure

package demand

// verdict is whether a machine takes a pod.
type verdict int8

const (
	yes    verdict = iota
	never          // nor another pod of this class
	notYet         // perhaps once more pods are placed
)

// fits reports whether bin b takes one more pod of c.
func (p *packing) fits(c *class, b int32) verdict {
	bin := &p.bins[b]
	if bin.exclusive || !p.room(c, bin.site, p.free[int(b)*p.model.dims:int(b+1)*p.model.dims], bin.pods) {
		return never
	}
	return p.allows(c, &bin.machine, bin.ports, nil)
}

// fitsNew reports whether a machine that would be added takes a pod of c.
func (p *packing) fitsNew(c *class, s *site) verdict {
	if !p.room(c, s, s.free, 0) {
		return never
	}
	return p.allows(c, &machine{site: s, domains: s.domains}, s.ports, s.counted)
}

// room reports whether free is enough for a pod of c.
func (p *packing) room(c *class, s *site, free []int64, pods int32) bool {
	need := s.need(c)
	if need == nil {
		return pods == 0 && free[dimPods] > 0
	}
	for d, n := range need {
		if n > free[d] && n > 0 {
			return false
		}
	}
	return true
}

// capacity is how many pods of c bin b takes; at least one fits.
func (p *packing) capacity(c *class, b int32) int {
	s := p.bins[b].site
	return copies(s.need(c), p.free[int(b)*p.model.dims:int(b+1)*p.model.dims])
}

// copies is how often need fits into free.
func copies(need, free []int64) int {
	if need == nil {
		return 1
	}
	n := free[dimPods]
	for d, each := range need {
		if each > 0 {
			n = min(n, free[d]/each)
		}
	}
	return int(max(n, 0))
}

// allows checks everything except the room. present has the pods of a machine that is
// not counted yet.
func (p *packing) allows(c *class, m *machine, ports []HostPort, present []tallied) verdict {
	if p.model.seen(c.pod, &c.seen, m.site) != admitted {
		return never
	}
	for i := range c.pod.HostPorts {
		for j := range ports {
			if c.pod.HostPorts[i].conflicts(&ports[j]) {
				return never
			}
		}
	}
	for _, id := range c.set.blocked {
		if p.near(id, m, present) > 0 {
			return never
		}
	}
	for _, id := range c.anti {
		if p.near(id, m, present) > 0 {
			return never
		}
	}
	if !p.allowsAffinity(c, m, present) || !p.allowsSpread(c, m, present) {
		return notYet
	}
	return yes
}

// near is how many pods of a tally are in the domain of m.
func (p *packing) near(id int32, m *machine, present []tallied) int32 {
	domain := m.domains[p.model.topology.tallies[id].key]
	if domain == noDomain {
		return 0
	}
	return p.counters[id].count(domain) + own(present, id)
}

func own(present []tallied, id int32) int32 {
	for i := range present {
		if present[i].tally == id {
			return present[i].pods
		}
	}
	return 0
}

func (p *packing) allowsAffinity(c *class, m *machine, present []tallied) bool {
	met, anywhere := true, int32(0)
	for _, id := range c.affinity {
		if m.domains[p.model.topology.tallies[id].key] == noDomain {
			return false
		}
		met = met && p.near(id, m, present) > 0
		anywhere += p.counters[id].total + own(present, id)
	}
	// The first of several pods with affinity to each other.
	return met || anywhere == 0 && c.selfAffine
}

func (p *packing) allowsSpread(c *class, m *machine, present []tallied) bool {
	for i, id := range c.spreads {
		t, counter := p.model.topology.tallies[id], &p.counters[id]
		domain := m.domains[t.key]
		if domain == noDomain {
			return false
		}
		// A machine that the pod may use counts as a domain of its constraint.
		here := own(present, id)
		if counter.count(domain)+here+c.selfs[i]-counter.minWith(t.spread, domain, here) > max(t.spread.MaxSkew, 1) {
			return false
		}
	}
	return true
}
