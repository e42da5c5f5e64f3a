//trueup:pure

package demand

import (
	"cmp"
	"slices"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// result returns the result of the packing.
func (p *packing) result() Result {
	r := Result{Unmodelled: p.model.unmodelled}
	if placed := len(p.model.pods) - len(p.left); placed > 0 {
		r.Placements = make([]PlacedPod, 0, placed)
	}
	for i, b := range p.at {
		if b != nowhere {
			r.Placements = append(r.Placements, p.placement(p.model.pods[i], &p.bins[b]))
		}
	}
	for _, s := range p.model.supplies {
		if d, some := p.poolDemand(s); some {
			r.Pools = append(r.Pools, d)
		}
	}
	slices.SortStableFunc(r.Pools, func(a, b PoolDemand) int { return cmp.Compare(a.Pool, b.Pool) })
	r.Unplaced = p.unplacedPods()
	return r
}

func (p *packing) placement(pod *Pod, b *bin) PlacedPod {
	at := PlacedPod{Pod: pod, On: b.site.on, Node: b.site.node}
	switch b.site.on {
	case OnStarting:
		at.Pool = p.model.in.Starting[slices.Index(p.model.starting, b.site)].Pool
	case OnStandby:
		at.Pool = b.site.supply.offer.Pool
	case OnLaunch:
		s := b.site.supply
		at.Node, at.Pool, at.Template, at.Launch = nil, s.offer.Pool, s.offer.Templates[b.site.template].Name, b.number
	case OnNode:
	}
	return at
}

func (p *packing) poolDemand(s *supply) (d PoolDemand, some bool) {
	d.Pool = s.offer.Pool
	for i, started := range p.started[s.index] {
		if started {
			d.Start = append(d.Start, s.offer.Standby[i])
		}
	}
	for i, n := range p.launched[s.index] {
		if n > 0 {
			d.Launch = append(d.Launch, LaunchCount{Template: s.offer.Templates[i].Name, Count: n})
		}
	}
	return d, len(d.Start)+len(d.Launch) > 0
}

func (p *packing) unplacedPods() []Unplaced {
	if len(p.left) == 0 {
		return nil
	}
	all := make([]Unplaced, 0, len(p.left))
	for _, c := range p.model.classes {
		var why []Reason
		for _, pod := range c.members {
			if p.at[pod] != nowhere {
				continue
			}
			if why == nil || len(c.pod.Volumes) > 0 {
				// Pods of a class are alike but for what their volumes are called.
				own := *c
				own.pod = p.model.pods[pod]
				why = p.reasons(&own)
			}
			all = append(all, Unplaced{Pod: p.model.pods[pod], Reasons: why})
		}
	}
	slices.SortStableFunc(all, func(a, b Unplaced) int { return comparePods(a.Pod, b.Pod) })
	return all
}

// Want returns the demand for [cloud.Pool.Plan]. Standby machines are named by
// [Node].Machine.
func (d PoolDemand) Want() cloud.Want {
	var w cloud.Want
	for _, n := range d.Start {
		w.Start = append(w.Start, n.Machine)
	}
	for _, l := range d.Launch {
		if w.Launch == nil {
			w.Launch = make(map[string]int, len(d.Launch))
		}
		w.Launch[l.Template] = l.Count
	}
	return w
}
