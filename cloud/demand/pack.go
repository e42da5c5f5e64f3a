//trueup:pure

package demand

import "slices"

// packing places the pods of a model one class after the other.
type packing struct {
	model     *model
	counters  []counter
	announced []machine // counted as domains before they exist
	bins      []bin
	free      []int64 // by bin, then by resource
	blocks    blocks
	at        []int32  // by pod: its bin, or nowhere
	started   [][]bool // by supply, then by standby machine
	launched  [][]int  // by supply, then by template
	launches  []int    // by supply
	left      []int32  // pods without a place
	order     []int32  // pods in the order in which they got their places
}

// machine is one machine of a site, with its domains.
type machine struct {
	site    *site
	number  int // of the launch
	domains []int32
}

// bin is a machine that takes pods.
type bin struct {
	machine
	pods      int32 // placed here
	exclusive bool  // a pod without requests takes the machine
	ports     []HostPort
}

const nowhere = -1

func newPacking(m *model, announced []machine) *packing {
	p := &packing{
		model: m, announced: announced, counters: make([]counter, len(m.topology.tallies)), at: make([]int32, len(m.pods)),
		order:   make([]int32, 0, len(m.pods)),
		started: make([][]bool, len(m.supplies)), launched: make([][]int, len(m.supplies)), launches: make([]int, len(m.supplies)),
	}
	p.blocks.dims = m.dims
	for i := range p.at {
		p.at[i] = nowhere
	}
	for i, s := range m.supplies {
		p.started[i], p.launched[i] = make([]bool, len(s.standby)), make([]int, len(s.templates))
	}
	return p
}

func (p *packing) run() {
	for _, s := range p.model.nodes {
		p.open(machine{site: s, domains: s.domains})
	}
	for _, s := range p.model.starting {
		p.open(machine{site: s, domains: s.domains})
	}
	p.announce()
	if p.reserved() {
		p.placeReserved()
	}
	var waiting []*class
	for _, c := range p.model.classes {
		left := p.place(c, p.unplaced(c))
		if len(left) > 0 && len(c.affinity)+len(c.spreads) > 0 {
			waiting = append(waiting, c)
			continue
		}
		p.left = append(p.left, left...)
	}
	// Pods that they have affinity to, or that reduce the skew, may have been placed
	// meanwhile.
	for progress := true; progress; {
		progress = false
		waiting = slices.DeleteFunc(waiting, func(c *class) bool {
			before := p.unplaced(c)
			left := p.place(c, before)
			progress = progress || len(left) < len(before)
			return len(left) == 0
		})
	}
	for _, c := range waiting {
		p.left = append(p.left, p.unplaced(c)...)
	}
	slices.Sort(p.left)
}

// announce adds the domains of machines that the scheduler sees but does not use: a
// stopped machine still has its Node.
func (p *packing) announce() {
	for id, t := range p.model.topology.tallies {
		if t.kind != spreading {
			continue
		}
		for _, s := range p.model.supplies {
			for _, site := range s.standby {
				if !t.spread.HonorTaints && p.model.eligible(t, site) {
					p.counters[id].ensure(site.domains[t.key])
				}
			}
		}
		for _, a := range p.announced {
			if p.model.eligible(t, a.site) {
				p.counters[id].ensure(a.domains[t.key])
			}
		}
	}
}

func (p *packing) reserved() bool {
	return slices.ContainsFunc(p.model.in.Starting, func(s Starting) bool { return len(s.Reserved) > 0 }) ||
		slices.ContainsFunc(p.model.pods, func(pod *Pod) bool { return pod.Nominated != "" })
}

// placeReserved places the pods whose machine is already decided: the scheduler evicts
// others for them, or the machine is being started for them.
func (p *packing) placeReserved() {
	nominated, holder := map[string]int32{}, map[string]int32{}
	for i, s := range p.model.nodes {
		nominated[s.node.Name] = int32(i) //nolint:gosec // fewer nodes than that
	}
	delete(nominated, "")
	for i := range p.model.in.Starting {
		for _, uid := range p.model.in.Starting[i].Reserved {
			holder[uid] = int32(len(p.model.nodes) + i) //nolint:gosec // fewer nodes than that
		}
	}
	for _, c := range p.model.classes {
		for _, pod := range c.members {
			if b, there := nominated[p.model.pods[pod].Nominated]; there {
				p.put(c, b, []int32{pod})
			} else if b, there := holder[p.model.pods[pod].UID]; there && p.fits(c, b) == yes {
				p.put(c, b, []int32{pod})
			}
		}
	}
}

// unplaced are the pods of c without a place.
func (p *packing) unplaced(c *class) []int32 {
	placed := func(pod int32) bool { return p.at[pod] != nowhere }
	if !slices.ContainsFunc(c.members, placed) {
		return c.members
	}
	return slices.DeleteFunc(slices.Clone(c.members), placed)
}

// place puts pods of c into the first bins with room, adds machines for those
// that have none, and returns those that fit nowhere.
func (p *packing) place(c *class, pods []int32) (left []int32) {
	search, offer := search{}, offer{}
	for len(pods) > 0 {
		b := p.find(c, &search)
		if b == nowhere {
			b = p.add(c, &offer, len(pods))
		}
		if b == nowhere {
			return pods
		}
		n := 1
		if c.alike() {
			n = min(len(pods), p.capacity(c, b))
		}
		before := p.state(c)
		p.put(c, b, pods[:n])
		pods = pods[n:]
		if before != p.state(c) {
			search.next = search.first
		}
	}
	return nil
}

// state changes when bins that refused a pod of c because of pods elsewhere may take it
// now.
func (p *packing) state(c *class) (sum int32) {
	for _, id := range c.spreads {
		sum += p.counters[id].min
	}
	for _, id := range c.affinity {
		sum += p.counters[id].total
	}
	return sum
}

// open adds a bin, and counts its pods.
func (p *packing) open(m machine) int32 {
	b := int32(len(p.bins)) //nolint:gosec // fewer machines than that
	p.bins = append(p.bins, bin{machine: m, ports: m.site.ports[:len(m.site.ports):len(m.site.ports)]})
	p.free = append(p.free, m.site.free...)
	p.blocks.grow(p.free)
	for id, t := range p.model.topology.tallies {
		if t.kind == spreading && p.model.eligible(t, m.site) {
			p.counters[id].ensure(m.domains[t.key])
		}
	}
	for _, present := range m.site.counted {
		p.count(present.tally, &p.bins[b].machine, present.pods)
	}
	return b
}

func (p *packing) count(id int32, m *machine, pods int32) {
	t, c := p.model.topology.tallies[id], &p.counters[id]
	domain := m.domains[t.key]
	if domain == noDomain || t.kind == spreading && !p.model.eligible(t, m.site) {
		return
	}
	c.ensure(domain)
	c.add(domain, pods)
}

// put places pods of c on bin b, where they fit.
func (p *packing) put(c *class, b int32, pods []int32) {
	bin, n := &p.bins[b], int32(len(pods)) //nolint:gosec // fewer pods than that
	free := p.free[int(b)*p.model.dims : int(b+1)*p.model.dims]
	if need := bin.site.need(c); need != nil {
		for d := range free {
			free[d] -= need[d] * int64(n)
		}
	} else {
		bin.exclusive = true
	}
	p.blocks.touch(b)
	bin.pods += n
	bin.ports = append(bin.ports, c.pod.HostPorts...)
	for _, pod := range pods {
		p.at[pod] = b
	}
	p.order = append(p.order, pods...)
	for _, id := range c.set.counted {
		p.count(id, &bin.machine, n)
	}
	for _, id := range c.carries {
		p.count(id, &bin.machine, n)
	}
	for _, id := range c.spreads {
		p.counters[id].mark(bin.domains[p.model.topology.tallies[id].key])
	}
}

// lateDomains returns the added machines, if some of them are domains over which
// earlier pods must be spread, or over which they cannot be; otherwise nil. With keep it adds the machines that were
// announced before, which makes the search end.
func (p *packing) lateDomains(keep bool) []machine {
	if p.settles() {
		return nil
	}
	same := func(a, b machine) bool { return a.site == b.site && a.number == b.number }
	var added []machine
	for i := range p.bins {
		if m := p.bins[i].machine; m.site.on == OnStandby || m.site.on == OnLaunch {
			added = append(added, m)
		}
	}
	for _, m := range p.announced {
		if keep && !slices.ContainsFunc(added, func(a machine) bool { return same(a, m) }) {
			added = append(added, m)
		}
	}
	if slices.EqualFunc(added, p.announced, same) {
		return nil
	}
	return added
}
