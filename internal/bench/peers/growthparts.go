package main

import (
	"context"
	"fmt"

	"github.com/seed-9e1ffd66/trueup/apply"
)

// growthChildren is how many children a parent has, and growthSampled of how many parents, spread
// over all of them, a child is pruned.
const (
	growthChildren = 10
	growthSampled  = 100
)

// parts measures a part for each of n parents.
func (r *growthRun) parts(ctx context.Context) error {
	warm, err := r.world.part(0, growthChildren)
	if err != nil {
		return err
	}
	first, stop, err := r.live(ctx)
	if err != nil {
		return err
	}
	if err := r.settle(ctx, first, warm); err != nil {
		return err
	}
	stop()
	copies := max(1, 2000/r.n)
	base := settled()
	sets := make([][]*apply.Set, copies)
	for c := range sets {
		sets[c] = make([]*apply.Set, r.n)
		for p := range sets[c] {
			if sets[c][p], err = r.world.part(p, growthChildren); err != nil {
				return err
			}
		}
	}
	stated := settled()
	appliers, stops := make([]*apply.Applier, copies), make([]func(), copies)
	for c := range sets {
		if appliers[c], stops[c], err = r.live(ctx); err != nil {
			return err
		}
		for _, set := range sets[c] {
			if err := r.settle(ctx, appliers[c], set); err != nil {
				return err
			}
		}
	}
	r.held(base, stated, settled(), copies*r.n*growthChildren)
	for c := range sets[1:] {
		stops[1+c]()
	}
	applier := appliers[0]
	defer stops[0]()
	if err := r.partsPass(ctx, applier, sets[0]); err != nil {
		return err
	}
	return r.partsPruned(ctx, applier, sets[0])
}

// partsPass measures a pass over each parent, in no order, as their events come.
func (r *growthRun) partsPass(ctx context.Context, applier *apply.Applier, sets []*apply.Set) error {
	order := shuffled(len(sets))
	r.count.reset()
	pass := func() error {
		for _, p := range order {
			if err := r.unchanged(ctx, applier, sets[p]); err != nil {
				return err
			}
			report, err := applier.Prune(ctx, sets[p], apply.PruneOptions{Complete: true})
			if err != nil || len(report.Results) > 0 {
				return fmt.Errorf("%d objects pruned, must be none: %w", len(report.Results), err)
			}
		}
		return nil
	}
	if err := r.measure("pass_us", len(sets), pass, nil); err != nil {
		return err
	}
	// Few of them over and over: what they take then does not depend on how many others there are.
	order = shuffled(len(sets))[:min(growthSampled, len(sets))]
	if err := r.measure("pass_same_us", len(order), pass, nil); err != nil {
		return err
	}
	if r.n*growthChildren <= growthCold {
		cold, err := r.cold(pass, len(sets))
		if err != nil {
			return err
		}
		r.book.Add("pass_cold_us", cold, "us")
	}
	return r.count.silent("passes at rest")
}

// partsPruned measures the prune of one child of a parent, which is then made again.
func (r *growthRun) partsPruned(ctx context.Context, applier *apply.Applier, sets []*apply.Set) error {
	sampled := min(growthSampled, len(sets))
	parents, fewer := shuffled(len(sets))[:sampled], make([]*apply.Set, sampled)
	for at, p := range parents {
		var err error
		if fewer[at], err = r.world.part(p, growthChildren-1); err != nil {
			return err
		}
	}
	r.count.reset()
	prune := func() error {
		for _, set := range fewer {
			report, err := applier.Prune(ctx, set, apply.PruneOptions{Complete: true})
			if err != nil || len(report.Results) != 1 {
				return fmt.Errorf("%d objects pruned, must be one: %w", len(report.Results), err)
			}
		}
		return nil
	}
	again := func() error {
		_, other, deleted := r.count.reset()
		for _, p := range parents {
			if last := growthChildren*p + growthChildren - 1; !deleted[r.world.path(last)] {
				return fmt.Errorf("%s was not deleted", r.world.name(last))
			}
		}
		if other != sampled || len(deleted) != sampled {
			return fmt.Errorf("%d requests delete %d objects; must be one each for %d", other, len(deleted), sampled)
		}
		for _, p := range parents {
			if err := r.settle(ctx, applier, sets[p]); err != nil {
				return err
			}
		}
		r.count.reset()
		return nil
	}
	if err := r.measure("prune_us", sampled, prune, again); err != nil {
		return err
	}
	return nil
}
