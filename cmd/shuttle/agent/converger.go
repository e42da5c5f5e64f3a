package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// converger makes the cluster match the accepted state.
type converger struct {
	applier *apply.Applier
	desired *desired
	guard   *apply.Guard
	metrics *metrics
	logger  *slog.Logger
	status  *reporter
	awaits  *atomic.Bool      // an object that must be deleted still exists
	last    apply.PruneReport // of the last prune
	pruned  *accepted         // the state whose deletions were all found and tried, or held
	limited string            // the last log text about the deletions that the guard holds
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
	var pruneErr error
	if confirmed && c.desired.names(current) {
		c.last, pruneErr = c.prune(ctx, current)
		if slices.ContainsFunc(c.last.Results, func(r apply.Result) bool { return r.Action == apply.Deleted && replaced(current.set, r.ID) }) {
			report, err = c.applier.Apply(ctx, current.set) // the replicas are stated in the same pass
			c.log(ctx, report.Results)
		}
		// The other deletions were tried, whatever one of them has come to.
		c.pruned = nil
		if failed := failures(c.last.Results); pruneErr == nil || failed > 0 && !errors.Is(pruneErr, apply.ErrNotSynced) {
			c.pruned = current
		}
	}
	if err == nil {
		c.metrics.generation.Set(float64(current.state.Generation))
	}
	err = errors.Join(err, pruneErr)
	if ctx.Err() != nil {
		return reconcile.Result{}, err // a pass that was cut short has not seen all objects
	}
	gone := c.deletions(current)
	c.awaits.Store(len(gone.left) > 0)
	c.status.update(&outcome{current: current, results: resultsOf(report.Results), written: c.written(current), deletions: gone})
	if err != nil {
		c.metrics.reconcileError.Inc()
	}
	return reconcile.Result{}, err
}

func (c *converger) prune(ctx context.Context, current *accepted) (apply.PruneReport, error) {
	absence := &current.rendered.absence
	c.guard.Unit = func(o apply.Observed) string { return absence.unit(identityOf(o)) }
	report, err := c.applier.Prune(ctx, current.set, apply.PruneOptions{
		Complete:   true,
		AllowEmpty: true, // the grace and the guard stand before it
		Keep:       func(o apply.Observed) bool { return absence.keeps(identityOf(o)) },
		Gone:       func(o apply.Observed) bool { return replaced(current.set, o.ID) || absence.isGone(identityOf(o)) },
		Grace:      grace,
		Guard:      c.guard, Approved: current.state.ApprovedDeletions,
	})
	c.log(ctx, report.Results)
	c.metrics.held.WithLabelValues("limit").Set(float64(len(report.Held.IDs())))
	c.metrics.held.WithLabelValues("grace").Set(float64(report.Pending))
	c.metrics.held.WithLabelValues("unproven").Set(float64(len(report.Unproven)))
	limited, err := held(err)
	if text := fmt.Sprint(limited); len(limited) > 0 && text != c.limited {
		c.limited = text
		c.logger.WarnContext(
			ctx, "deletions held", slog.String("digest", report.Held.Digest), slog.Any("error", errors.Join(limited...)),
		)
	} else if len(limited) == 0 {
		c.limited = ""
	}
	return report, err
}

// held takes what the guard holds out of an error: a retry would not cure it.
func held(err error) (limited []error, others error) {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range all.Unwrap() {
			over, other := held(one)
			limited, others = append(limited, over...), errors.Join(others, other)
		}
		return limited, others
	}
	if over, ok := errors.AsType[*apply.LimitError](err); ok {
		return []error{over}, nil
	}
	return nil, err
}

// newGuard returns what bounds the deletions of an agent: at most a quarter of what
// there is goes within an hour because the desired state names it as deleted, and less
// if it merely lacks it.
func newGuard(percent int, memory apply.GuardMemory) *apply.Guard {
	return &apply.Guard{
		Absent: apply.Limit{Count: 5, Percent: percent}, Named: apply.Limit{Count: 20, Percent: 25}, Memory: memory,
	}
}

// grace is how long absence must last: it is weaker than a tombstone.
func grace(kind schema.GroupKind) apply.Grace {
	if kind.Kind == "Namespace" {
		return apply.Grace{Passes: 2, Age: 10 * time.Minute}
	}
	return apply.Grace{Passes: 2, Age: time.Minute}
}

// written returns the Deployments of the state as they are now.
func (c *converger) written(current *accepted) map[types.NamespacedName]written {
	found := make(map[types.NamespacedName]written, len(current.rendered.Services))
	for i := range current.rendered.Services {
		n := current.rendered.Services[i].Deployment
		if o, err := c.applier.Live.Get(apply.ID{Group: "apps", Kind: "Deployment", Namespace: n.Namespace, Name: n.Name}); err == nil {
			found[n] = written{o.UID, o.Generation}
		}
	}
	return found
}

func failures(list []apply.Result) (n int) {
	for i := range list {
		if list[i].Err != nil {
			n++
		}
	}
	return n
}

func resultsOf(list []apply.Result) map[apply.ID]apply.Result {
	results := make(map[apply.ID]apply.Result, len(list))
	for _, r := range list {
		results[r.ID] = r
	}
	return results
}

func (c *converger) log(ctx context.Context, results []apply.Result) {
	for _, r := range results {
		if r.Err != nil {
			c.logger.WarnContext(
				ctx,
				"object not converged",
				slog.String("object", r.ID.String()),
				slog.String("action", string(r.Action)),
				slog.Any("error", r.Err),
			)
			continue
		}
		c.logger.InfoContext(ctx, "object converged", slog.String("object", r.ID.String()), slog.String("action", string(r.Action)))
	}
}
