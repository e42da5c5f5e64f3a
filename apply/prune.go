package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientmetadata "k8s.io/client-go/metadata"
)

const applyPatch = types.ApplyYAMLPatchType // JSON is YAML

// PruneOptions say what [Applier.Prune] may delete. The zero value deletes
// nothing, because it does not state completeness.
type PruneOptions struct {
	// Complete states that the set is the whole desired state, as of now.
	// Without it Prune does nothing and returns [ErrIncomplete].
	Complete bool
	// AllowEmpty lets the set be empty. Without it Prune returns
	// [ErrKeepNothing] then.
	AllowEmpty bool
	// Keep, if set, protects objects that are not in the set, such as those of a
	// service whose wanted state could not be read.
	Keep func(Observed) bool
	// Gone, if set, reports that the desired state itself names the object as
	// deleted. Such an object needs no grace. Keep comes first.
	Gone func(Observed) bool
	// Grace, if set, says how long an object must be absent from complete sets
	// before it is deleted. Nil: no grace.
	Grace func(schema.GroupKind) Grace
	// Limit bounds the deletions of one call.
	Limit Limit
}

// Grace is how long an object must be absent: in at least Passes consecutive
// calls of Prune, the first of which lies at least Age back.
type Grace struct {
	Passes int
	Age    time.Duration
}

// Limit is the greater of a number of objects and a share of the owned ones. Its
// zero value means 5 objects or 10 percent; a negative Count with no Percent
// lets nothing be deleted.
type Limit struct {
	Count   int
	Percent int
	// Off lifts the limit.
	Off bool
}

func (l Limit) of(owned int) int {
	switch {
	case l.Off:
		return owned
	case l == Limit{}:
		return max(5, owned*10/100)
	default:
		return max(0, l.Count, owned*l.Percent/100)
	}
}

// LimitError says that more objects were to be deleted than the limit allows,
// and that therefore none was.
type LimitError struct {
	Wanted, Limit, Owned int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%d of %d objects are to be deleted; the limit is %d, so none was", e.Wanted, e.Owned, e.Limit)
}

// PruneReport is what one call of Prune did.
type PruneReport struct {
	// Results holds what was deleted, and what could not be.
	Results []Result
	// Held holds what would be deleted if the limit allowed it.
	Held []ID
	// Pending counts the objects that are absent and still in their grace.
	Pending int
}

// absence is how long an object has been absent.
type absence struct {
	since  time.Time
	passes int
}

// Prune deletes the objects of the owner that the set does not state. An object
// is deleted only if it carries all the owner's labels and fields that our
// manager applied, if the view of its kind is complete, and if it still is the
// very object that the view shows: the request carries its UID and
// resourceVersion. Deletion is in reverse order of the stages, and a failed one
// stops no other.
//
// The report is valid with an error: [ErrIncomplete], [ErrKeepNothing] or a
// [*LimitError] when nothing was deleted at all, or the joined errors of the
// results.
func (a *Applier) Prune(ctx context.Context, set *Set, options PruneOptions) (PruneReport, error) {
	if err := a.prepare(set); err != nil {
		return PruneReport{}, err
	}
	switch {
	case !options.Complete || set.nameless:
		return PruneReport{}, ErrIncomplete
	case len(set.ids) == 0 && !options.AllowEmpty:
		return PruneReport{}, ErrKeepNothing
	}
	plan := a.planPrune(set, options, time.Now())
	report := PruneReport{Pending: plan.pending}
	if limit := options.Limit.of(plan.owned); len(plan.doomed) > limit {
		for _, d := range plan.doomed {
			report.Held = append(report.Held, d.ID)
		}
		return report, &LimitError{Wanted: len(plan.doomed), Limit: limit, Owned: plan.owned}
	}
	for len(plan.doomed) > 0 {
		stage := stageOf(plan.doomed[0].ID.GroupKind())
		end := slices.IndexFunc(plan.doomed, func(o Observed) bool { return stageOf(o.ID.GroupKind()) != stage })
		if end < 0 {
			end = len(plan.doomed)
		}
		results := make([]Result, end)
		each(end, a.Concurrency, func(i int) { results[i] = a.delete(ctx, plan.doomed[i]) })
		report.Results = append(report.Results, results...)
		plan.doomed = plan.doomed[end:]
	}
	return report, errors.Join(Report{Results: report.Results}.Err(), context.Cause(ctx))
}

// prunePlan is what a call of Prune is about to do.
type prunePlan struct {
	doomed  []Observed // in the order of deletion
	owned   int
	pending int
}

func (a *Applier) planPrune(set *Set, options PruneOptions, now time.Time) prunePlan {
	var plan prunePlan
	missing := map[string]absence{}
	for o := range a.Live.All() {
		if !o.owned || o.pruned || o.Deleting {
			continue
		}
		plan.owned++
		if set.Has(o.ID) || options.Keep != nil && options.Keep(o) {
			continue
		}
		gone := a.missing[string(o.UID)]
		if gone.passes == 0 {
			gone.since = now
		}
		gone.passes++
		missing[string(o.UID)] = gone
		var grace Grace
		if options.Grace != nil {
			grace = options.Grace(o.ID.GroupKind())
		}
		due := gone.passes >= grace.Passes && now.Sub(gone.since) >= grace.Age
		if due || options.Gone != nil && options.Gone(o) {
			plan.doomed = append(plan.doomed, o)
		} else {
			plan.pending++
		}
	}
	a.missing = missing
	slices.SortFunc(plan.doomed, func(x, y Observed) int {
		if d := stageOf(y.ID.GroupKind()) - stageOf(x.ID.GroupKind()); d != 0 {
			return d
		}
		return x.ID.Compare(y.ID)
	})
	return plan
}

func (a *Applier) delete(ctx context.Context, o Observed) Result {
	v := a.Live.views[o.ID.GroupKind()]
	version := fmt.Sprint(o.version)
	n := name{o.ID.Namespace, o.ID.Name}
	v.began(n)
	defer v.ended(n, true)
	background := metav1.DeletePropagationBackground
	start := time.Now()
	err := a.resource(v, o.ID).Delete(ctx, o.ID.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &o.UID, ResourceVersion: &version},
		PropagationPolicy: &background,
	})
	a.wrote(Write{ID: o.ID, Verb: "delete", Duration: time.Since(start), Err: err})
	if err != nil && !apierrors.IsNotFound(err) {
		return Result{o.ID, Failed, err}
	}
	v.change(n, func(r *record) {
		if r != nil && r.uid == string(o.UID) {
			r.pruned = true
		}
	})
	return Result{ID: o.ID, Action: Deleted}
}

// resource reaches the resource of an object's kind, in its namespace.
func (a *Applier) resource(v *view, id ID) clientmetadata.ResourceInterface {
	v.mu.RLock()
	defer v.mu.RUnlock()
	resource := a.Live.Client.Resource(v.mapping.Resource)
	if id.Namespace == "" {
		return resource
	}
	return resource.Namespace(id.Namespace)
}
