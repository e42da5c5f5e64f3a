package shuttle

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// converger makes the cluster match the accepted state.
type converger struct {
	applier *apply.Applier
	desired *desired
	limit   int // percent
	metrics *metrics
	logger  *slog.Logger
	status  *reporter
	held    map[labelled]int // services whose deletion the last prune has held
	pruned  *accepted        // the state whose deletions are all done or held
}

// Reconcile implements reconcile.Reconciler: one pass over the whole state.
func (c *converger) Reconcile(ctx context.Context) (reconcile.Result, error) {
	current, confirmed := c.desired.take()
	if current == nil {
		return reconcile.Result{}, nil // without a desired state nothing is changed
	}
	c.metrics.passes.Inc()
	report, err := c.applier.Apply(ctx, current.set)
	c.log(ctx, report.Results)
	if err == nil {
		c.metrics.generation.Set(float64(current.state.Generation))
	}
	if confirmed {
		pruned, pruneErr := c.prune(ctx, current)
		c.held = c.heldServices(pruned.Held)
		if c.pruned = current; pruneErr != nil {
			c.pruned = nil
		}
		err = errors.Join(err, pruneErr)
	}
	c.status.update(current, report, deletions{held: c.held, left: c.left(current)})
	if err != nil {
		c.metrics.reconcileError.Inc()
	}
	return reconcile.Result{}, err
}

func (c *converger) prune(ctx context.Context, current *accepted) (apply.PruneReport, error) {
	absence := &current.rendered.absence
	report, err := c.applier.Prune(ctx, current.set, apply.PruneOptions{
		Complete:   true,
		AllowEmpty: true, // the grace and the limit guard it
		Keep:       func(o apply.Observed) bool { return absence.keeps(identityOf(o)) },
		Gone:       func(o apply.Observed) bool { return absence.isGone(identityOf(o)) },
		Grace:      grace,
		Limit: apply.Limit{
			Count: 5, Percent: c.limit,
			Off: current.state.AllowMassDelete != 0 && current.state.AllowMassDelete == current.state.Generation,
		},
	})
	c.log(ctx, report.Results)
	c.metrics.held.WithLabelValues("limit").Set(float64(len(report.Held)))
	c.metrics.held.WithLabelValues("grace").Set(float64(report.Pending))
	if over, ok := errors.AsType[*apply.LimitError](err); ok {
		c.logger.WarnContext(ctx, "deletions held", slog.Int("wanted", over.Wanted), slog.Int("limit", over.Limit), slog.Int("owned", over.Owned))
		return report, nil // the guard worked; a retry would not cure it
	}
	return report, err
}

// grace is how long absence must last: it is weaker than a tombstone.
func grace(kind schema.GroupKind) apply.Grace {
	if kind.Kind == "Namespace" {
		return apply.Grace{Passes: 2, Age: 10 * time.Minute}
	}
	return apply.Grace{Passes: 2, Age: time.Minute}
}

// heldServices finds the services whose deletion is held.
func (c *converger) heldServices(held []apply.ID) map[labelled]int {
	if len(held) == 0 {
		return nil
	}
	ids := make(map[apply.ID]bool, len(held))
	for _, id := range held {
		ids[id] = true
	}
	services := map[labelled]int{}
	for o := range c.applier.Live.All() {
		if at := identityOf(o); ids[o.ID] && at.service != "" {
			services[at]++
		}
	}
	return services
}

// left counts the objects of each service, unless all deletions of the state are
// done or held. Where not everything can be seen, each tombstone counts.
func (c *converger) left(current *accepted) map[labelled]int {
	if c.pruned == current {
		return nil
	}
	services := map[labelled]int{}
	for o := range c.applier.Live.All() {
		if at := identityOf(o); at.service != "" {
			services[at]++
		}
	}
	if c.applier.Live.Unseen() == nil {
		return services
	}
	for i := range current.state.Services {
		if s := &current.state.Services[i]; s.Deleted {
			services[labelsOf(s.Identity())]++
		}
	}
	return services
}

func (c *converger) log(ctx context.Context, results []apply.Result) {
	for _, r := range results {
		if r.Err != nil {
			c.logger.WarnContext(ctx, "object not converged", slog.String("object", r.ID.String()), slog.String("action", string(r.Action)), slog.Any("error", r.Err))
			continue
		}
		c.logger.InfoContext(ctx, "object converged", slog.String("object", r.ID.String()), slog.String("action", string(r.Action)))
	}
}
