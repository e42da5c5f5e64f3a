package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/diff"
)

// Plan returns what Apply and then Prune would do now, and does nothing. It
// decides by the same rules as they do, so it costs a request only for objects
// that are not as they were left: one read each, for the fields, and a dry run
// where only the server knows how a change would end (kinds in Recreate, and
// ReportConflicts). Options that do not state completeness plan no deletion, and
// the grace counts no pass.
//
// The plan is valid with an error, which names what cannot be done or cannot be
// told yet, as [Report.Err] would, and why nothing is deleted.
func (a *Applier) Plan(ctx context.Context, set *Set, options PruneOptions) (diff.Plan, error) {
	found, err := a.preview(ctx, set, options)
	if err != nil {
		return diff.Plan{}, err
	}
	var plan diff.Plan
	for i := range set.items {
		if c, ok := found.changes[set.items[i].id]; ok {
			plan.Changes = append(plan.Changes, c)
		}
	}
	for _, o := range found.doom.doomed {
		plan.Changes = append(plan.Changes, found.changes[o.ID])
	}
	return plan, errors.Join(found.pass.report.Err(), found.withheld, context.Cause(ctx))
}

// Execute carries out a plan, each change only if it still is what is to be done:
// the object, the wanted state and the differences are those that were planned.
// Any other change fails with [ErrStalePlan], and what is not in the plan is left.
// The report is valid with an error.
func (a *Applier) Execute(ctx context.Context, set *Set, options PruneOptions, plan diff.Plan) (Report, error) {
	found, err := a.preview(ctx, set, options)
	if err != nil {
		return Report{}, err
	}
	p := a.pass(set)
	approved := map[ID]diff.Change{}
	for _, c := range plan.Changes {
		id := idOf(c)
		now, ok := found.changes[id]
		if !ok || !sameChange(c, now) {
			p.add(Result{id, Refused, fmt.Errorf("%w: %s", ErrStalePlan, c.Action)})
			continue
		}
		approved[id] = now
	}
	for items := range set.ranks() {
		p.carryOut(ctx, items, approved)
	}
	for doomed := range found.doom.ranks() {
		results := make([]Result, len(doomed))
		each(len(doomed), a.Concurrency, func(i int) {
			if c, ok := approved[doomed[i].ID]; ok {
				results[i] = a.discard(ctx, doomed[i], precondition{c.UID, c.ResourceVersion}, options)
			}
		})
		for _, r := range results {
			if r.Action != unchanged {
				p.add(r)
			}
		}
	}
	return p.report, errors.Join(p.report.Err(), context.Cause(ctx))
}

// carryOut makes the approved changes of one rank.
func (p *pass) carryOut(ctx context.Context, items []item, approved map[ID]diff.Change) {
	results := make([]Result, len(items))
	each(len(items), p.Concurrency, func(i int) {
		it := &items[i]
		c, ok := approved[it.id]
		if !ok {
			return
		}
		action, err := Waiting, p.blocked(it)
		if err == nil {
			err = p.await(ctx, it)
		}
		if err == nil {
			action, err = p.execute(ctx, it, c)
		}
		results[i] = Result{it.id, action, err}
	})
	for _, r := range results {
		if r.Action != unchanged {
			p.add(r)
		}
	}
}

// executeTries bounds how often a change is looked at again because something
// else of the object has changed, such as its status.
const executeTries = 5

// execute makes a change in the version of the object that it was decided on.
func (p *pass) execute(ctx context.Context, it *item, c diff.Change) (Action, error) {
	v := p.Live.views[it.id.GroupKind()]
	n := name{it.id.Namespace, it.id.Name}
	v.began(n)
	defer v.ended(n, false)
	for try := 1; ; try++ {
		action, err := p.executeOnce(ctx, v, it, c)
		if !unmet(err) && !errors.Is(err, ErrStalePlan) {
			return action, err
		}
		now, foreseen, lookErr := p.foresee(ctx, it)
		if try == executeTries || lookErr != nil || foreseen != write || !sameChange(c, now) {
			return Refused, fmt.Errorf("%w: %w", ErrStalePlan, errors.Join(err, lookErr))
		}
		c = now
	}
}

func (p *pass) executeOnce(ctx context.Context, v *view, it *item, c diff.Change) (Action, error) {
	must := precondition{c.UID, c.ResourceVersion}
	switch {
	case p.upserts(it):
		return p.upsertPlanned(ctx, v, it, must)
	case c.Action == diff.Recreate:
		return p.recreate(ctx, v, it, must, errors.New(c.Note))
	default:
		return p.outcome(it, must, p.send(ctx, v, it, must, p.Conflicts == ForceConflicts))
	}
}

// preview is what is to be done, as of now.
type preview struct {
	pass     *pass
	changes  map[ID]diff.Change
	doom     doom
	withheld error // why nothing is deleted
}

func (a *Applier) preview(ctx context.Context, set *Set, options PruneOptions) (*preview, error) {
	if err := a.prepare(set); err != nil {
		return nil, err
	}
	found := &preview{pass: a.pass(set), changes: map[ID]diff.Change{}}
	for items := range set.ranks() {
		found.rank(ctx, items)
	}
	switch err := options.permit(set); {
	case err != nil && options.Complete:
		found.withheld = err
	case err == nil:
		found.doom = a.planPrune(set, options, time.Now())
		for _, r := range found.doom.refused {
			found.pass.add(r)
		}
		if found.withheld = found.doom.over(options.Limit); found.withheld != nil {
			found.doom.doomed = nil
		}
	}
	for _, o := range found.doom.doomed {
		action := diff.Delete
		if options.Orphan != nil && options.Orphan(o) {
			action = diff.Release
		}
		kind := a.Live.views[o.ID.GroupKind()].kind()
		found.changes[o.ID] = diff.Change{
			Action: action, APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Namespace: o.ID.Namespace, Name: o.ID.Name,
			UID: string(o.UID), ResourceVersion: fmt.Sprint(o.version),
		}
	}
	return found, nil
}

func (f *preview) rank(ctx context.Context, items []item) {
	var open []*item
	for i := range items {
		switch action, _, err := f.pass.decide(&items[i]); action {
		case unchanged:
		case write:
			open = append(open, &items[i])
		default:
			f.pass.add(Result{items[i].id, action, err})
		}
	}
	changes := make([]diff.Change, len(open))
	results := make([]Result, len(open))
	each(len(open), f.pass.Concurrency, func(i int) {
		var action Action
		var err error
		changes[i], action, err = f.pass.foresee(ctx, open[i])
		results[i] = Result{open[i].id, action, err}
	})
	for i, it := range open {
		if results[i].Action == write {
			f.changes[it.id] = changes[i]
			continue
		}
		f.pass.add(results[i])
	}
}

// foresee says how a write would change the object. The action is write, or what
// the pass would report instead.
func (p *pass) foresee(ctx context.Context, it *item) (diff.Change, Action, error) {
	change := diff.Change{
		Action: diff.Create, APIVersion: it.kind.GroupVersion().String(), Kind: it.kind.Kind,
		Namespace: it.id.Namespace, Name: it.id.Name, Desired: it.hash,
	}
	if err := p.selected(it); err != nil {
		return change, Refused, err
	}
	v := p.Live.views[it.id.GroupKind()]
	live, err := p.look(ctx, v, it)
	if apierrors.IsNotFound(err) {
		return change, write, nil
	}
	if err == nil {
		err = p.claim(live)
	}
	if err != nil {
		action, err := p.outcome(it, precondition{}, err)
		return change, action, err
	}
	change.Action, change.UID, change.ResourceVersion = diff.Update, string(live.GetUID()), live.GetResourceVersion()
	must := precondition{uid: change.UID}
	if p.recreatable(it.id.GroupKind()) || p.Conflicts == ReportConflicts && !p.upserts(it) {
		switch err := p.rehearse(ctx, v, it, must, live); {
		case p.recreatable(it.id.GroupKind()) && immutable(err):
			change.Action, change.Note = diff.Recreate, err.Error()
		case err != nil:
			action, err := p.outcome(it, must, err)
			return change, action, err
		}
	}
	if whole, ok := live.(*unstructured.Unstructured); ok {
		if change.Fields, err = p.fields(it, whole); err != nil {
			change.Note = err.Error() // a record that cannot be read is replaced
		}
		if p.upserts(it) && diff.States(whole.Object, p.stated(it)) && len(change.Fields) == 0 {
			return change, unchanged, nil
		}
	}
	return change, write, nil
}

// look reads the live object, whole if that is possible.
func (p *pass) look(ctx context.Context, v *view, it *item) (metav1.Object, error) {
	if p.Objects == nil {
		return p.resource(v, it.id).Get(ctx, it.id.Name, metav1.GetOptions{})
	}
	return p.object(v, it.id).Get(ctx, it.id.Name, metav1.GetOptions{})
}

func (p *pass) fields(it *item, live *unstructured.Unstructured) ([]diff.Field, error) {
	return diff.Fields(p.stated(it), live.Object, diff.Options{
		Manager: p.Live.Owner.Manager, Applied: p.hashOf(live) == it.hash.String(),
	})
}

// stated decodes the wanted object, which NewSet has encoded.
func (p *pass) stated(it *item) map[string]any {
	desired, err := it.desired()
	if err != nil {
		return nil
	}
	return desired
}

// rehearse sends the write as a dry run.
func (p *pass) rehearse(ctx context.Context, v *view, it *item, must precondition, live metav1.Object) error {
	if whole, ok := live.(*unstructured.Unstructured); ok && p.upserts(it) {
		return p.rehearseReplacement(ctx, v, it, whole)
	}
	body, err := it.under(must)
	if err != nil {
		return err
	}
	force := p.Conflicts == ForceConflicts
	_, err = p.resource(v, it.id).Patch(ctx, it.id.Name, applyPatch, body,
		metav1.PatchOptions{FieldManager: p.Live.Owner.Manager, Force: &force, DryRun: []string{metav1.DryRunAll}})
	if conflict := conflictOf(err); conflict != nil {
		return conflict
	}
	return err
}

// rehearseReplacement is rehearse for what is replaced, in the version that was
// read or, if others overtake, in a later one.
func (p *pass) rehearseReplacement(ctx context.Context, v *view, it *item, live *unstructured.Unstructured) error {
	for try := 1; ; try++ {
		_, err := p.object(v, it.id).Update(ctx, &unstructured.Unstructured{Object: p.overlay(live.Object, p.stated(it))},
			metav1.UpdateOptions{FieldManager: p.Live.Owner.Manager, DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsConflict(err) || try == upsertTries {
			return err
		}
		if live, err = p.object(v, it.id).Get(ctx, it.id.Name, metav1.GetOptions{}); err != nil {
			return err
		}
	}
}

func idOf(c diff.Change) ID {
	kind := schema.FromAPIVersionAndKind(c.APIVersion, c.Kind)
	return ID{Group: kind.Group, Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}
}

// sameChange reports whether two changes are one, in whatever version of the
// object that others may have given it.
func sameChange(a, b diff.Change) bool {
	a.ResourceVersion, b.ResourceVersion = "", ""
	return diff.Plan{Changes: []diff.Change{a}}.Hash() == diff.Plan{Changes: []diff.Change{b}}.Hash()
}
