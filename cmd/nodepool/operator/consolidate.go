package operator

import (
	"context"
	"fmt"

	"github.com/seed-9e1ffd66/trueup/cloud/kube/pools"
)

// explain says what could be consolidated, also where that is off.
func explain(pool *pools.Pool, c pools.Consolidation) string {
	text := c.String()
	switch after := pool.Spec.ConsolidateAfter; {
	case len(c.Vacant) == 0:
	case after == 0:
		text += "nothing is drained for that: spec.disruption.consolidateAfter is not set\n"
	default:
		text += fmt.Sprintf("drained is what was not needed for %s\n", after)
	}
	return text
}

// budgetsSeen waits until the PodDisruptionBudgets were taken in once. Until then no pod is moved.
func (o *operator) budgetsSeen(ctx context.Context) error {
	err := o.until(ctx, func() error { return taken(view{o.budgets.Synced, o.budgets.Keys, o.cluster.SeenBudgets()}) })
	if err == nil {
		o.cluster.SawBudgets()
	}
	return err
}
