package apply

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
)

// restrain removes from the plan what a guard holds, what an object needs that stays, and what waits for pods. If note is
// set, the rest counts as deleted. A unit of which everything waits does not. Set is nil for a deletion by name.
func (a *Applier) restrain(
	ctx context.Context,
	plan *prunePlan,
	set *Set,
	options PruneOptions,
	views []*view.Kind,
	note bool,
) (held Held, err error) {
	plan.orphan, plan.podsOf = options.Orphan, options.podsOf
	guard := options.Guard
	if guard == nil && !options.meant && set.Part() == "" {
		guard = &a.Live.guard
	}
	if guard != nil {
		plan.unit = guard.unitOf
		if options.Propagation != metav1.DeletePropagationBackground {
			plan.propagation = options.Propagation
		}
	}
	hold := func(plan *prunePlan, note bool) (held Held, err error) {
		if guard != nil {
			held, err = guard.hold(ctx, plan, func() census { return a.census(guard, plan, set, views) }, options.Gone, options.Approved, note)
		}
		if len(plan.due) > 0 {
			plan.settle(plan.standing(a.Live.registry.plural), options, a.Live.registry.closing)
		}
		return held, err
	}
	waits, idle := a.waitForPods(ctx, plan, options, func(trial *prunePlan) error {
		_, err := hold(trial, false) // which comes again
		return err
	})
	plan.waiting = plan.hold(idle)
	held, err = hold(plan, note)
	plan.waiting = append(plan.waiting, plan.hold(func(o Observed) bool { _, waits := waits[o.ID]; return waits })...)
	for i := range plan.waiting {
		if id := plan.waiting[i].ID; waits[id] != nil {
			plan.refuse(Result{id, Waiting, isolationError(waits[id])})
		} else {
			plan.pending++
		}
	}
	return held, err
}
