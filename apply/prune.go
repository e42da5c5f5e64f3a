package apply

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
)

// PruneOptions limit what [Applier.Prune] may delete. The zero value deletes
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
	// service whose desired state could not be read.
	Keep func(Observed) bool
	// Gone, if set, reports that the desired state itself names the object as
	// deleted. Such an object needs no grace. Keep comes first.
	Gone func(Observed) bool
	// Grace, if set, is how long an object must be absent from complete sets
	// before it is deleted. Nil: no grace.
	Grace func(schema.GroupKind) Grace
	// Guard bounds the deletions within a window. Nil: a prune of a whole owner uses a
	// guard of the Live with default limits; a prune of a part uses none, because its
	// parent object states the change.
	Guard *Guard
	// Approved lifts the guard for this call, because a person has approved the
	// deletions. They do not count.
	Approved bool
	// Orphan, if set, selects objects that are not deleted but released: they stay
	// without the owner's labels, and a Namespace or definition that they need stays,
	// too. They count as deletions for the guard.
	Orphan func(Observed) bool
	// DeleteForeign deletes a Namespace or a definition even if foreign objects live in
	// it, or if that cannot be seen. They are deleted with it. Default false: it stays,
	// and its result counts them.
	DeleteForeign bool
	// Propagation decides about the objects that a deleted one owns. Empty
	// means background: the garbage collector deletes them afterwards.
	Propagation metav1.DeletionPropagation
}

// Grace is how long an object must be absent: in at least Passes consecutive calls of
// Prune, the first at least Age ago.
type Grace struct {
	Passes int
	Age    time.Duration
}

// PruneReport is the outcome of one call of Prune or Delete.
type PruneReport struct {
	// Results holds the objects that were deleted or released, and those that could not
	// be.
	Results []Result
	// Held holds what would be deleted if the guard allowed it.
	Held []ID
	// Pending counts the absent objects that are still in their grace.
	Pending int
	// Remaining counts the objects whose deletion was accepted, by this call or an
	// earlier one, and that the watch still shows. With an empty set, no error and none
	// remaining, nothing is left.
	Remaining int
	// Unseen names the kinds that may have objects that cannot be seen. The call
	// deletes what it sees and fails because of them. It fails with [ErrNotSynced], too,
	// if kinds may be missing: the ApplySet's parent was deleted, Live.Kinds is empty,
	// and Live.Discovery is not there to look for them, or is incomplete.
	Unseen []schema.GroupKind
	// Unproven holds objects that carry the owner's labels, are not desired, and are
	// left, because nothing shows that we applied them: copies of our objects, objects
	// whose part label is another manager's, or objects of a kind whose server keeps no
	// managedFields. An object that a controller made for another object, with copied
	// labels, does not count.
	Unproven []ID
}

// Prune deletes the objects of the owner, or of the set's part, that the set does
// not state. An object is deleted only if it carries all the owner's labels and
// fields that our manager applied, if the view of its kind is complete, if no desired
// or kept object lives in it or is defined by it, nor might one of a kind whose view is
// incomplete, and if it is still the object that the view shows: the request carries
// its UID and resourceVersion, and Prune decides again if another change came first. A
// Namespace or definition is deleted only if no foreign object is deleted with it
// ([PruneOptions.DeleteForeign]). Deletion is in reverse order, and a failed one stops
// no other.
//
// Prune looks at all watched kinds ([Live.Kinds]). Its cost depends on the part only.
//
// The report is valid with an error: [ErrIncomplete] or [ErrKeepNothing] when no
// object was deleted at all, and [ErrStalePlan] when another set of the owner or part was
// applied after this one and states an object that would go; a [*LimitError] for each
// cause of which units are held, [ErrNotSynced] for kinds that cannot be seen, and the
// errors of the results, joined.
func (a *Applier) Prune(ctx context.Context, set *Set, options PruneOptions) (PruneReport, error) {
	if err := a.accept(set); err != nil {
		return PruneReport{}, err
	}
	if err := options.permit(set); err != nil {
		return PruneReport{}, err
	}
	views, done, untraced := a.useAll(ctx)
	defer done()
	plan, absences := a.planPrune(set, options, views, time.Now())
	if err := a.Live.overtaken(set, &plan); err != nil {
		return PruneReport{}, err
	}
	a.Live.absences.set(set.Part(), absences)
	a.spare(ctx, &plan, options)
	held, over := a.restrain(ctx, &plan, set, options, views, true)
	report, err := a.carryOut(ctx, &plan, options)
	report.Held, err = held, errors.Join(untraced, over, err)
	if set.empty && err == nil {
		a.Live.dropPart(set.Part())
	}
	return report, err
}

// useAll is useAll of the Live for a call that concludes from what is not there.
func (a *Applier) useAll(ctx context.Context) (views []*view.Kind, done func(), untraced error) {
	views, done = a.Live.useAll(ctx)
	if untraced = a.Live.trace(ctx); len(a.Live.views()) > len(views) { // kinds that it has found
		done()
		views, done = a.Live.useAll(ctx)
	}
	return views, done, untraced
}

// restrain removes from the plan what a guard holds. If note is set, the rest counts as
// deleted.
func (a *Applier) restrain(
	ctx context.Context,
	plan *prunePlan,
	set *Set,
	options PruneOptions,
	views []*view.Kind,
	note bool,
) ([]ID, error) {
	guard := options.Guard
	if guard == nil && set.Part() == "" {
		guard = &a.Live.guard
	}
	if guard == nil || options.Approved {
		return nil, nil
	}
	return guard.hold(ctx, plan, func() census { return a.census(guard, set, views) }, options.Gone, note)
}

// permit returns an error if nothing may be deleted at all.
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

// carryOut executes a plan.
func (a *Applier) carryOut(ctx context.Context, plan *prunePlan, options PruneOptions) (PruneReport, error) {
	again := func(o Observed) bool { return options.Keep == nil || !options.Keep(o) }
	report := PruneReport{
		Results: plan.refused, Pending: plan.pending, Remaining: plan.remaining, Unproven: plan.unproven, Unseen: plan.unseenKinds(),
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

// DeleteOptions refine [Applier.Delete] and [Applier.DeletePart].
type DeleteOptions struct {
	// Orphan, DeleteForeign and Propagation are as in [PruneOptions].
	Orphan        func(Observed) bool
	DeleteForeign bool
	Propagation   metav1.DeletionPropagation
}

// Delete deletes the objects with these IDs, and no other, under the conditions of
// [Applier.Prune]: each must be ours and the very object that the view shows, a
// Namespace stays while an object lives in it, and the order is reversed. An object
// that a complete view does not show needs no request. An object whose kind cannot be
// seen is a result with [ErrNotSynced], one that carries our labels without our fields
// a result with [ErrNotOurs].
//
// The report is valid with an error, which joins the errors of the results.
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
		Orphan: options.Orphan, DeleteForeign: options.DeleteForeign, Propagation: options.Propagation,
	}
	plan := a.planDelete(ids, views)
	a.spare(ctx, &plan, prune)
	return a.carryOut(ctx, &plan, prune)
}

// DeletePart deletes every object of a part, under the conditions of [Applier.Prune].
// It is for a parent object that is being deleted. Without an error, and with
// [PruneReport.Remaining] 0, nothing of the part is left. The report is valid with an
// error, as with Prune.
func (a *Applier) DeletePart(ctx context.Context, part string, options DeleteOptions) (PruneReport, error) {
	if err := a.prepare(); err != nil {
		return PruneReport{}, err
	}
	none, err := NewSet(a.Live.Owner, nil, SetOptions{Part: part})
	if none == nil { // an error is only about an ApplySet's parent that cannot be made
		return PruneReport{}, err
	}
	return a.Prune(ctx, none, PruneOptions{
		Complete: true, AllowEmpty: true, Approved: true,
		Orphan: options.Orphan, DeleteForeign: options.DeleteForeign, Propagation: options.Propagation,
	})
}
