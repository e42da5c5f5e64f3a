//trueup:pure

package demand

import "slices"

// settles reports whether the scheduler can bind the pods where they were placed, once it
// sees all machines, as far as spreading is concerned. Machines are added one after the other:
// a new one may be a domain that is short of pods. What is even in the end may be out of
// reach, too: of two constraints each can bar the step that the other one needs first. One
// constraint alone always leaves a step.
func (p *packing) settles() bool {
	even := true
	for id, t := range p.model.topology.tallies {
		even = even && (t.kind != spreading || !p.counters[id].skewed(t.spread))
	}
	if even && !slices.ContainsFunc(p.model.classes, func(c *class) bool { return len(c.spreads) > 1 }) {
		return true
	}
	q := newPacking(p.model, nil)
	q.announce()
	for i := range p.bins {
		q.open(p.bins[i].machine)
	}
	type alike struct {
		class *class
		bin   int32
		pods  []int32
	}
	var left []*alike // pods of a class on a machine, in the order of the first of them
	groups := map[[2]int32]*alike{}
	classOf := make([]int32, len(p.model.pods))
	for i, c := range p.model.classes {
		for _, pod := range c.members {
			classOf[pod] = int32(i) //nolint:gosec // fewer classes than that
		}
	}
	for _, pod := range p.order {
		key := [2]int32{classOf[pod], p.at[pod]}
		g := groups[key]
		if g == nil {
			g = &alike{class: p.model.classes[key[0]], bin: key[1]}
			groups[key] = g
			left = append(left, g)
		}
		g.pods = append(g.pods, pod)
	}
	for progress := true; progress; {
		progress = false
		left = slices.DeleteFunc(left, func(g *alike) bool {
			for len(g.pods) > 0 && q.allowsSpread(g.class, &q.bins[g.bin].machine, nil) {
				q.put(g.class, g.bin, g.pods[:1])
				g.pods, progress = g.pods[1:], true
			}
			return len(g.pods) == 0
		})
	}
	return len(left) == 0
}
