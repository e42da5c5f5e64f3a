//trueup:pure

package demand

import "slices"

// retryLeft retries the pods that were left out because of a domain that only an
// announced machine has, if that machine is not added in the end. It reports whether the
// placements hold: with add it may add a machine, whose domains are new to the others.
func (p *packing) retryLeft(add bool) bool {
	if len(p.announced) == 0 || len(p.left) == 0 || !p.forgetDomains() {
		return true
	}
	before := len(p.bins)
	for progress := true; progress; {
		progress = false
		for _, c := range p.model.classes {
			if len(c.spreads) == 0 {
				continue
			}
			for _, pod := range p.unplaced(c) {
				b := p.find(c, &search{})
				if b == nowhere && add {
					b = p.add(c, &offer{}, 1)
				}
				if b == nowhere {
					break
				}
				p.put(c, b, []int32{pod})
				progress = true
			}
		}
	}
	p.left = slices.DeleteFunc(p.left, func(pod int32) bool { return p.at[pod] != nowhere })
	return len(p.bins) == before || p.settles()
}

// forgetDomains drops the domains that only announced machines have, and reports
// whether there were any.
func (p *packing) forgetDomains() (found bool) {
	for id, t := range p.model.topology.tallies {
		if t.kind != spreading {
			continue
		}
		counter := &p.counters[id]
		for _, a := range p.announced {
			if d := a.domains[t.key]; p.model.eligible(t, a.site) && counter.has(d) && counter.count(d) == 0 && !p.isDomain(t, d) {
				counter.drop(d)
				found = true
			}
		}
	}
	return found
}

// isDomain reports whether an existing or added machine has the domain.
func (p *packing) isDomain(t *tally, domain int32) bool {
	for i := range p.bins {
		if m := &p.bins[i].machine; m.domains[t.key] == domain && p.model.eligible(t, m.site) {
			return true
		}
	}
	for _, s := range p.model.supplies {
		for _, site := range s.standby {
			if !t.spread.HonorTaints && site.domains[t.key] == domain && p.model.eligible(t, site) {
				return true
			}
		}
	}
	return false
}
