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
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
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
	failed  map[string]int    // how many failed objects were logged, by cause
	undone  map[string]int    // the same of deletions

	memory     string                 // of the guard, for people
	unrecorded string                 // why it cannot be used; empty: it can
	done       map[labelled]bool      // the deleted services that were seen to have no object left
	slow       map[apply.ID]time.Time // since when an object must go and does not
	began      time.Time              // of the first pass in which not everything could be seen
	seen       bool                   // everything could be seen once
}

// Reconcile implements reconcile.Reconciler: one pass over the whole state.
func (c *converger) Reconcile(ctx context.Context) (reconcile.Result, error) {
	current, confirmed := c.desired.take()
	if current == nil {
		return reconcile.Result{}, nil // without a desired state nothing is changed
	}
	c.metrics.passes.Inc()
	c.forget(current)
	report, err := c.applier.Apply(ctx, current.set)
	c.failed = c.log(ctx, c.failed, report.Results)
	var pruneErr error
	if confirmed && c.desired.names(current) {
		c.last, pruneErr = c.prune(ctx, current)
		if slices.ContainsFunc(c.last.Results, func(r apply.Result) bool { return r.Action == apply.Deleted && replaced(current.set, r.ID) }) {
			report, err = c.applier.Apply(ctx, current.set) // the replicas are stated in the same pass
			c.failed = c.log(ctx, c.failed, report.Results)
		}
		// The other deletions were tried, whatever one of them has come to.
		c.pruned = nil
		if failed := failures(c.last.Results); pruneErr == nil || failed > 0 && !errors.Is(pruneErr, apply.ErrNotSynced) {
			c.pruned = current
		}
	}
	if err = errors.Join(err, pruneErr); err == nil {
		c.metrics.generation.Set(float64(current.state.Generation))
	}
	if ctx.Err() != nil {
		return reconcile.Result{}, err // a pass that was cut short has not seen all objects
	}
	gone := c.deletions(ctx, current)
	c.tell(&gone)
	c.awaits.Store(len(gone.left)+len(gone.projects) > 0)
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
	c.undone = c.log(ctx, c.undone, report.Results)
	c.metrics.held.WithLabelValues("limit").Set(float64(len(report.Held.IDs())))
	c.metrics.held.WithLabelValues("grace").Set(float64(report.Pending))
	c.metrics.held.WithLabelValues("needed").Set(float64(needed(report.Results)))
	c.metrics.held.WithLabelValues("unproven").Set(float64(len(report.Unproven)))
	limited, err := held(err)
	c.unrecorded = ""
	if at := slices.IndexFunc(report.Held.Units, func(u apply.HeldUnit) bool { return u.Reason != "" }); report.Held.Digest == "" && at >= 0 {
		c.unrecorded = fmt.Sprintf("what was deleted before must be known, and %s cannot be used: %s; correct or delete it, and let the agent "+
			"get, create and patch it", c.memory, report.Held.Units[at].Reason)
	}
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
	if _, over := errors.AsType[*apply.LimitError](err); !over {
		return nil, err
	}
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

// tell publishes what keeps the whole cluster from being as it is wanted, or seen. A start takes a while until
// everything is seen.
func (c *converger) tell(gone *deletions) {
	var view, memory problem
	if unseen := c.applier.Live.Unseen(); unseen == nil {
		c.seen = true
	} else {
		if c.began.IsZero() {
			c.began = time.Now()
		}
		if c.seen || time.Since(c.began) >= slowStart {
			view = problem{starbase.ClassUnseen, shorten("what is reported is what was so before: " + oneLine(unseen))}
		}
	}
	if c.unrecorded != "" {
		memory = problem{starbase.ClassDeletionsNotRecorded, shorten("deletions wait: " + c.unrecorded)}
	}
	c.status.updateCluster(ofView, view)
	c.status.updateCluster(ofDeletions, memory)
	c.status.updateCluster(ofProjects, gone.leftovers())
}

// slowStart is how long it may take until everything is seen.
const slowStart = 30 * time.Second

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

// needed counts what is not deleted, because an object that stays needs it.
func needed(list []apply.Result) (n int) {
	for i := range list {
		if errors.Is(list[i].Err, apply.ErrNeeded) {
			n++
		}
	}
	return n
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
