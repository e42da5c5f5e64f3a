package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// PruneOptions say what [Applier.Prune] may delete. The zero value deletes
// nothing, because it does not state completeness.
type PruneOptions struct {
	// Complete states that the set is the whole desired state of the owner, or of
	// the part, as of now. Without it Prune does nothing and returns
	// [ErrIncomplete].
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
	// Grace, if set, is how long an object must be absent from complete sets
	// before it is deleted. Nil: no grace.
	Grace func(schema.GroupKind) Grace
	// Limit bounds the deletions of one call.
	Limit Limit
	// Orphan, if set, selects objects that are not deleted but released: they stay
	// as they are, without the owner's labels. They count as deletions for the
	// limit.
	Orphan func(Observed) bool
	// WithStrangers deletes a Namespace, or a definition, also if objects of others
	// live in it, or if that cannot be seen. They go with it. Default false: it
	// stays, and its result counts them.
	WithStrangers bool
	// Propagation decides about the objects that a deleted one owns. Empty
	// means background: the garbage collector deletes them afterwards.
	Propagation metav1.DeletionPropagation
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

// LimitError reports that more objects were to be deleted than the limit allows,
// and that therefore none was.
type LimitError struct {
	Wanted, Limit, Owned int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%d of %d objects are to be deleted; the limit is %d, so none was", e.Wanted, e.Owned, e.Limit)
}

// PruneReport is the outcome of one call of Prune or Delete.
type PruneReport struct {
	// Results holds what was deleted or released, and what could not be.
	Results []Result
	// Held holds what would be deleted if the limit allowed it.
	Held []ID
	// Pending counts the objects that are absent and still in their grace.
	Pending int
	// Remaining counts the objects whose deletion is accepted, by this call or an
	// earlier one, and that the watch has not shown to be gone. With an empty set, no
	// error and none remaining, nothing is left.
	Remaining int
	// Unseen names the kinds of which objects may exist that cannot be seen. The call
	// fails because of them, after it has deleted what it sees.
	Unseen []schema.GroupKind
	// Unproven holds objects that carry the owner's labels, are not wanted, and
	// are left, because nothing shows that we applied them: copies of ours, or
	// those of a kind whose server keeps no managedFields. What a controller made
	// for another object, and which got the labels by inheritance, is none.
	Unproven []ID
}

// Prune deletes the objects of the owner, or of the set's part, that the set does
// not state. An object is deleted only if it carries all the owner's labels and
// fields that our manager applied, if the view of its kind is complete, if no object
// that is wanted or kept lives in it or is defined by it, nor one of a kind whose
// view is not complete might, and if it still is the very object that the view
// shows: the request carries its UID and resourceVersion, and is decided anew when
// another change has overtaken it. A Namespace or definition
// is deleted only if no object of others goes with it ([PruneOptions.WithStrangers]).
// Deletion is in reverse order, and a failed one stops no other.
//
// The kinds that are looked at are all that are watched ([Live.Kinds]). The cost is
// that of the part.
//
// The report is valid with an error: [ErrIncomplete], [ErrKeepNothing] or a
// [*LimitError] when no object was deleted at all, [ErrNotSynced] for kinds that
// cannot be seen, or the joined errors of the results.
func (a *Applier) Prune(ctx context.Context, set *Set, options PruneOptions) (PruneReport, error) {
	if err := a.accept(set); err != nil {
		return PruneReport{}, err
	}
	if err := options.permit(set); err != nil {
		return PruneReport{}, err
	}
	views, done := a.Live.useAll(ctx)
	defer done()
	plan, absences := a.planPrune(set, options, views, time.Now())
	a.Live.absences.set(set.Part(), absences)
	a.spare(ctx, &plan, options)
	report, err := a.carryOut(ctx, &plan, options)
	if set.empty && err == nil {
		a.Live.unwant(set.Part())
	}
	return report, err
}

// permit returns why nothing may be deleted at all.
func (o PruneOptions) permit(set *Set) error {
	switch {
	case !o.Complete || set.nameless:
		return ErrIncomplete
	case set.empty && !o.AllowEmpty:
		return ErrKeepNothing
	default:
		return nil
	}
}

// carryOut executes a plan, unless that is more than the limit allows.
func (a *Applier) carryOut(ctx context.Context, plan *prunePlan, options PruneOptions) (PruneReport, error) {
	again := func(o Observed) bool { return options.Keep == nil || !options.Keep(o) }
	report := PruneReport{
		Results: plan.refused, Pending: plan.pending, Remaining: plan.remaining, Unproven: plan.unproven, Unseen: plan.unseenKinds(),
	}
	over := plan.over(options.Limit)
	if over != nil {
		for i := range plan.due {
			report.Held = append(report.Held, plan.due[i].ID)
		}
		return report, errors.Join(over, plan.unseenError(), Report{Results: report.Results}.Err())
	}
	for due := range plan.ranks() {
		results := make([]Result, len(due))
		each(len(due), a.Concurrency, func(i int) { results[i] = a.discard(ctx, &due[i], due[i].must(), options, again) })
		report.Results = append(report.Results, results...)
		for _, r := range results {
			if r.Action == Deleted {
				report.Remaining++
			}
		}
	}
	return report, errors.Join(plan.unseenError(), Report{Results: report.Results}.Err(), context.Cause(ctx))
}

// DeleteOptions refine [Applier.Delete]. The zero value deletes up to 5 objects.
type DeleteOptions struct {
	// Limit bounds the deletions of one call; a share is one of the objects named.
	Limit Limit
	// Orphan, WithStrangers and Propagation are those of [PruneOptions].
	Orphan        func(Observed) bool
	WithStrangers bool
	Propagation   metav1.DeletionPropagation
}

// Delete deletes the objects with these IDs, and no other, with the guards of
// [Applier.Prune]: each must be ours and the very object that the view shows, what
// still lives in a Namespace keeps it, and the order is the reverse one. An object
// that is not there, as far as a complete view shows, needs nothing. One whose kind
// cannot be seen is a result with [ErrNotSynced], one that carries our labels
// without our fields a result with [ErrNotOurs].
//
// The report is valid with an error, which is a [*LimitError] when no object was
// deleted at all, or the joined errors of the results.
func (a *Applier) Delete(ctx context.Context, ids []ID, options DeleteOptions) (PruneReport, error) {
	if err := a.prepare(); err != nil {
		return PruneReport{}, err
	}
	kinds := make([]schema.GroupKind, 0, len(ids))
	for _, id := range ids {
		kinds = append(kinds, id.GroupKind())
	}
	views, done := a.Live.useAll(ctx, kinds...)
	defer done()
	prune := PruneOptions{
		Limit: options.Limit, Orphan: options.Orphan, WithStrangers: options.WithStrangers, Propagation: options.Propagation,
	}
	plan := a.planDelete(ids, views)
	a.spare(ctx, &plan, prune)
	return a.carryOut(ctx, &plan, prune)
}

// DeletePart deletes every object of a part, with the guards of [Applier.Prune] and
// without a limit unless one is set: what is left to do for a parent object that is
// being deleted. With no error and none [PruneReport.Remaining], nothing of the part
// is left. The report is valid with an error, which is as that of Prune.
func (a *Applier) DeletePart(ctx context.Context, part string, options DeleteOptions) (PruneReport, error) {
	if err := a.prepare(); err != nil {
		return PruneReport{}, err
	}
	none, err := NewSet(a.Live.Owner, nil, SetOptions{Part: part})
	if none == nil { // with an error, it only lacks an ApplySet's parent that no kind is made for
		return PruneReport{}, err
	}
	if options.Limit == (Limit{}) {
		options.Limit.Off = true
	}
	return a.Prune(ctx, none, PruneOptions{
		Complete: true, AllowEmpty: true,
		Limit: options.Limit, Orphan: options.Orphan, WithStrangers: options.WithStrangers, Propagation: options.Propagation,
	})
}
