package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
)

// Prune deletes the objects of the owner, or of the set's part, that the set does
// not state. An object is deleted only if it carries all the owner's labels and
// fields that our manager applied, if the view of its kind is complete, if no desired
// or kept object lives in it or is defined by it, nor might one of a kind whose view is
// incomplete, and if it is still the object that the view shows: the request carries
// its UID and resourceVersion, and Prune decides again if another change came first. A
// Namespace or definition is deleted only if no foreign object is deleted with it
// ([PruneOptions.DeleteForeign]). Deletion is in reverse order, and a failed one stops
// no other, except of what an object that stays needs: its namespace, its definition and what it
// depends on; a workload also what isolates and configures it. A workload stays while it is in its
// grace, held by the guard or refused by the server.
//
// What isolates pods (a NetworkPolicy, its definition) goes after them. If it goes without its namespace,
// the workloads beside it are deleted in the foreground, unless the options state a propagation: they exist
// until their pods are gone, and a call after that deletes it. Otherwise the deletion of the namespace
// has it, in which pods go first (Kubernetes 1.33). It stays while a kind that has pods cannot be seen. What
// isolates pods of one namespace is also kept while the server shows a pod that it selects and whose workload is being
// deleted or gone (a deletion by a person, a rollout whose history is full), or that has none and is being deleted: so do
// pods that an operator makes for a custom resource. That needs the right to list pods and the workloads that own them;
// without it, or without an answer in time, its result is [Waiting] with [ErrNotSynced]. A pod of a workload that stays
// keeps nothing. The server is asked right before each deletion, and again if another change came first.
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
	if err := a.overtaken(set, &plan); err != nil {
		return PruneReport{}, err
	}
	a.Live.absences.set(set.Part(), absences)
	a.spare(ctx, &plan, options)
	held, over := a.restrain(ctx, &plan, set, options, views, true)
	report, err := a.carryOut(ctx, &plan, options)
	report.Held, err = held, errors.Join(untraced, over, err)
	if set.empty && err == nil {
		a.Live.registry.dropPart(set.Part())
	}
	return report, err
}

// useAll is useAll of the Live for a call that concludes from what is not there.
func (a *Applier) useAll(ctx context.Context) (views []*view.Kind, done func(), untraced error) {
	views, done = a.Live.registry.useAll(ctx)
	if untraced = a.Live.trace(ctx); len(a.Live.registry.views()) > len(views) { // kinds that it has found
		done()
		views, done = a.Live.registry.useAll(ctx)
	}
	if untraced == nil && len(views) == 0 {
		untraced = fmt.Errorf("%w: no kind is watched, so no object can be seen: Live.Kinds or Owner.ApplySet names them", ErrNotSynced)
	}
	return views, done, untraced
}

// carryOut executes a plan.
func (a *Applier) carryOut(ctx context.Context, plan *prunePlan, options PruneOptions) (PruneReport, error) {
	again := func(o Observed) bool { return options.Keep == nil || !options.Keep(o) }
	report := PruneReport{
		Results: plan.refused, Waiting: plan.waits, Pending: plan.pending, Remaining: plan.remaining,
		Unproven: plan.unproven, Unseen: plan.unseenKinds(),
	}
	discard := func(o *Observed, pods *inquiry) Result {
		return a.discard(ctx, o, o.must(), options, plan, pods, again)
	}
	for _, r := range a.retire(plan, discard) {
		if kind := r.ID.GroupKind(); errors.Is(r.Err, ErrNeeded) && !isNamespace(kind) && !isDefinition(kind) {
			report.Waiting = append(report.Waiting, r)
			report.Pending++
			continue
		}
		report.Results = append(report.Results, r)
		if r.Action == Deleted {
			report.Remaining++
		}
	}
	report.Remaining += report.Pending
	return report, errors.Join(plan.unseenError(), Report{Results: report.Results}.Err(), context.Cause(ctx))
}

// retire deletes the objects of a plan with discard, which returns the result of one, and asks for pods as of its rank. What
// an object needs that was not deleted stays, and its result is ErrNeeded.
func (a *Applier) retire(plan *prunePlan, discard func(*Observed, *inquiry) Result) (results []Result) {
	if len(plan.due) == 0 {
		return nil
	}
	s := plan.standing(a.Live.registry.plural)
	needed := func(id, by ID) Result { return Result{id, Refused, neededBy(by)} }
	for due := range plan.ranks() {
		pods := a.Live.inquire(a.Objects, plan.podsOf)
		done := make([]Result, len(due))
		a.each(len(due), func(i int) {
			if by, ok := s.needing(&due[i]); ok {
				done[i] = needed(due[i].ID, by)
			} else {
				done[i] = discard(&due[i], pods)
			}
		})
		for i, r := range done {
			if r.Action != Deleted && r.Action != Released {
				s.add(&due[i], plan.after[due[i].ID])
			}
			results = append(results, r)
			for _, inside := range plan.inside(&due[i]) {
				if r.Action == Deleted {
					results = append(results, Result{ID: inside.ID, Action: Deleted})
				} else {
					results = append(results, needed(inside.ID, due[i].ID))
				}
			}
		}
	}
	return results
}

// Delete deletes the objects with these IDs, and no other, under the conditions of
// [Applier.Prune]: each must be ours and the very object that the view shows, a
// Namespace stays while an object lives in it, and the order is reversed. An object
// that a complete view does not show needs no request. An object whose kind cannot be
// seen is a result with [ErrNotSynced], one that carries our labels without our fields
// a result with [ErrNotOurs]. What isolates pods also waits for workloads beside it that are not among
// the IDs and whose deletion has not ended.
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
	views, done := a.Live.registry.useAll(ctx, kinds...)
	defer done()
	prune := options.prune()
	plan := a.planDelete(ids, views)
	a.spare(ctx, &plan, prune)
	held, over := a.restrain(ctx, &plan, nil, prune, views, true)
	report, err := a.carryOut(ctx, &plan, prune)
	report.Held = held
	return report, errors.Join(over, err)
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
	return a.Prune(ctx, none, options.prune())
}
