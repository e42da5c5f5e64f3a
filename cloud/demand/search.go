//trueup:pure

package demand

import (
	"cmp"
	"slices"
)

// search is the progress of the search for one class.
type search struct {
	first int // all bins before it will never take a pod of the class
	next  int // where to continue
}

// find returns the first bin from s on that takes a pod of c.
func (p *packing) find(c *class, s *search) int32 {
	for i := s.next; i < len(p.bins); i++ {
		if i%blockSize == 0 && !c.nothing && p.blocks.full(i/blockSize, c.need, p.free) {
			if s.first == i {
				s.first = min(i+blockSize, len(p.bins))
			}
			i += blockSize - 1
			continue
		}
		switch p.fits(c, int32(i)) { //nolint:gosec // fewer machines than that
		case yes:
			s.next = i
			return int32(i) //nolint:gosec // fewer machines than that
		case never:
			if s.first == i {
				s.first++
			}
		case notYet:
		}
	}
	s.next = len(p.bins)
	return nowhere
}

// blocks bounds the free resources of each blockSize bins: full blocks are skipped as a
// whole.
type blocks struct {
	dims    int
	maxFree []int64
	stale   []bool
}

const blockSize = 32

// grow adds the last bin, with its free resources.
func (b *blocks) grow(free []int64) {
	block := (len(free)/b.dims - 1) / blockSize
	last := free[len(free)-b.dims:]
	if block == len(b.stale) {
		b.maxFree, b.stale = append(b.maxFree, last...), append(b.stale, false)
		return
	}
	for d, n := range last {
		b.maxFree[block*b.dims+d] = max(b.maxFree[block*b.dims+d], n)
	}
}

// touch records that a bin has less room now.
func (b *blocks) touch(bin int32) {
	b.stale[bin/blockSize] = true
}

// full reports whether no bin of a block has room for need.
func (b *blocks) full(block int, need, free []int64) bool {
	freest := b.maxFree[block*b.dims : (block+1)*b.dims]
	if b.stale[block] {
		b.stale[block] = false
		bins := free[block*blockSize*b.dims : min((block+1)*blockSize*b.dims, len(free))]
		copy(freest, bins)
		for i, n := range bins {
			d := i % b.dims
			freest[d] = max(freest[d], n)
		}
	}
	for d, n := range need {
		if n > freest[d] && n > 0 {
			return true
		}
	}
	return false
}

// offer is the order of pools to ask for a machine for one class, and how many of their
// standby machines were checked.
type offer struct {
	pools []*supply
	next  []int
}

// add adds the first machine that takes a pod of c: a standby machine of any pool, else
// one to launch. pods is how many of c have no place.
func (p *packing) add(c *class, o *offer, pods int) int32 {
	if o.pools == nil {
		o.pools, o.next = p.preference(c, pods), make([]int, len(p.model.supplies))
	}
	for _, s := range o.pools {
		passing := true // machines that never fit
		for i := o.next[s.index]; i < len(s.standby); i++ {
			fit := never
			if !p.started[s.index][i] {
				fit = p.fitsNew(c, s.standby[i])
			}
			if fit == yes {
				p.started[s.index][i] = true
				return p.open(machine{site: s.standby[i], domains: s.standby[i].domains})
			}
			passing = passing && fit == never
			if passing {
				o.next[s.index] = i + 1
			}
		}
	}
	for _, s := range o.pools { // launches under way come first
		if b := p.addLaunch(c, s, s.offer.Coming); b != nowhere {
			return b
		}
	}
	for _, s := range o.pools {
		if b := p.addLaunch(c, s, s.offer.Coming+s.offer.MaxLaunches); b != nowhere {
			return b
		}
	}
	return nowhere
}

// addLaunch adds a machine to launch from the first template of s that takes a pod
// of c, if s has fewer launches than limit.
func (p *packing) addLaunch(c *class, s *supply, limit int) int32 {
	if p.launches[s.index] >= limit {
		return nowhere
	}
	for i, t := range s.templates {
		if p.fitsNew(c, t) == yes {
			number := p.launched[s.index][i]
			p.launched[s.index][i]++
			p.launches[s.index]++
			return p.open(machine{site: t, number: number, domains: p.model.launch(t, number)})
		}
	}
	return nowhere
}

// preference is the order in which pools are asked for machines for a number of pods of
// c.
func (p *packing) preference(c *class, pods int) []*supply {
	order := p.model.supplies
	tie := slices.ContainsFunc(order, func(s *supply) bool {
		return s.index > 0 && s.offer.Weight == order[s.index-1].offer.Weight
	})
	if !tie {
		return order
	}
	spare := make([]int, len(order))
	for i, s := range order {
		spare[i] = p.spare(c, s, pods)
	}
	return slices.SortedStableFunc(slices.Values(order), func(a, b *supply) int {
		return cmp.Or(cmp.Compare(b.offer.Weight, a.offer.Weight), cmp.Compare(spare[b.index], spare[a.index]))
	})
}

// spare is how many of the pods of c fit on machines that s can add.
func (p *packing) spare(c *class, s *supply, pods int) int {
	sum, best := 0, 0
	each := func(site *site) int {
		if p.model.seen(c.pod, &c.seen, site) != admitted || !p.room(c, site, site.free, 0) {
			return 0
		}
		return copies(site.need(c), site.free)
	}
	for i, site := range s.standby {
		if sum >= pods {
			return pods
		}
		if !p.started[s.index][i] {
			sum += each(site)
		}
	}
	for _, site := range s.templates {
		best = max(best, each(site))
	}
	launches := max(s.offer.Coming+s.offer.MaxLaunches-p.launches[s.index], 0)
	return min(pods, sum+best*min(launches, pods))
}
