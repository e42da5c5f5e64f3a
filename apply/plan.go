package apply

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
	"github.com/seed-9e1ffd66/trueup/apply/internal/wire"
	"github.com/seed-9e1ffd66/trueup/apply/internal/write"
	"github.com/seed-9e1ffd66/trueup/diff"
)

// Plan returns what Apply and then Prune would do now, and does nothing. It
// decides by the same rules as they do, so it costs requests only for objects that
// changed: one read each, for the fields, and a dry run, because only the server knows
// whether the new object is valid (an immutable field), in conflict, or would be created
// again, and up to two more for the defaults that return when the fields of a superseded
// manager are taken over; and a list of pods for each deleted object that isolates them. An object that is created is
// not tried before. Options without Complete
// plan no deletion, and the grace counts no pass.
//
// An object whose kind the server does not serve yet is planned as created if the set
// has the kind's definition.
//
// The plan is valid with an error, which names what cannot be done or cannot be
// foreseen yet, as [Report.Err] would, and why nothing is deleted.
func (a *Applier) Plan(ctx context.Context, set *Set, options PruneOptions) (diff.Plan, error) {
	found, err := a.preview(ctx, set, options)
	if err != nil {
		return diff.Plan{}, err
	}
	defer found.done()
	var plan diff.Plan
	for i := range set.items {
		if c, ok := found.changes[set.items[i].id]; ok {
			plan.Changes = append(plan.Changes, c)
		}
	}
	for o := range found.prune.all() {
		plan.Changes = append(plan.Changes, found.changes[o.ID])
	}
	return plan, errors.Join(found.pass.report.Err(), found.withheld, context.Cause(ctx))
}

// preview is the plan of a pass.
type preview struct {
	pass     *pass
	changes  map[ID]diff.Change
	prune    prunePlan
	withheld error // why some absent objects are not deleted
	done     func()
}

func (a *Applier) preview(ctx context.Context, set *Set, options PruneOptions) (*preview, error) {
	p, err := a.begin(ctx, set)
	if err != nil {
		return nil, err
	}
	found := &preview{pass: p, changes: map[ID]diff.Change{}, done: p.done}
	for items := range set.ranks() {
		found.rank(ctx, items)
	}
	switch err := options.permit(set); {
	case err != nil && options.Complete:
		found.withheld = err
	case err == nil:
		found.deletions(ctx, options)
	}
	return found, nil
}

// deletions adds the deletions of a prune.
func (f *preview) deletions(ctx context.Context, options PruneOptions) {
	a := f.pass.applier
	views, done, untraced := a.useAll(ctx)
	release := f.done
	f.done = func() { done(); release() }
	f.prune, _ = a.planPrune(f.pass.set, options, views, time.Now())
	if f.withheld = a.overtaken(f.pass.set, &f.prune); f.withheld != nil {
		f.prune = prunePlan{}
		return
	}
	a.spare(ctx, &f.prune, options)
	_, over := a.restrain(ctx, &f.prune, f.pass.set, options, views, false)
	for _, r := range f.prune.refused {
		f.pass.add(r)
	}
	f.withheld = errors.Join(untraced, over, f.prune.unseenError())
	for o := range f.prune.all() {
		action := diff.Delete
		if options.Orphan != nil && options.Orphan(*o) {
			action = diff.Release
		}
		kind := schema.GroupVersionKind{Group: o.ID.Group, Kind: o.ID.Kind}
		if mapping := a.Live.registry.view(o.ID.GroupKind()).Mapping(); mapping != nil {
			kind = mapping.GroupVersionKind
		}
		f.changes[o.ID] = diff.Change{
			Action: action, APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Namespace: o.ID.Namespace, Name: o.ID.Name,
			UID: string(o.UID), ResourceVersion: strconv.FormatUint(o.record.Version(), 10),
		}
	}
}

func (f *preview) rank(ctx context.Context, items []item) {
	type open struct {
		item  *item
		look  view.Look
		again bool
	}
	var due []open
	for i := range items {
		it := f.pass.item(&items[i])
		switch v := f.pass.decide(it); {
		case v.action == unchanged:
		case v.action == send:
			due = append(due, open{it, v.look, v.again})
		case v.action == Waiting && v.look.State == view.Unserved && f.pass.set.defines(it.kind.GroupKind()):
			f.changes[it.id] = creation(it) // once its definition is there
		default:
			f.pass.add(Result{it.id, v.action, v.err})
		}
	}
	changes := make([]diff.Change, len(due))
	results := make([]Result, len(due))
	f.pass.applier.each(len(due), func(i int) {
		var action Action
		var err error
		changes[i], action, err = f.pass.foresee(ctx, due[i].item, &due[i].look)
		results[i] = Result{due[i].item.id, action, err}
	})
	for i := range due {
		if due[i].again && results[i].Action == send && len(changes[i].Fields) == 0 {
			continue // an apply would change nothing
		}
		if results[i].Action == send {
			f.changes[due[i].item.id] = changes[i]
			continue
		}
		f.pass.add(results[i])
	}
}

func creation(it *item) diff.Change {
	return diff.Change{
		Action: diff.Create, APIVersion: it.kind.GroupVersion().String(), Kind: it.kind.Kind,
		Namespace: it.id.Namespace, Name: it.id.Name, Desired: it.hash,
	}
}

// foresee returns how a write would change the object. The action is send, or the one
// that the pass would report instead.
func (p *pass) foresee(ctx context.Context, it *item, look *view.Look) (diff.Change, Action, error) {
	change := creation(it)
	if err := p.selected(it); err != nil {
		return change, Refused, err
	}
	t, err := p.target(it, look)
	if err != nil {
		return change, Failed, err
	}
	w := p.applier.writer
	live, err := w.Look(ctx, t)
	if write.Gone(err) {
		return change, send, nil
	}
	if err == nil {
		err = w.Claim(t, live)
	}
	if err != nil {
		action, err := p.outcome(it, err)
		return change, action, err
	}
	if it.id == p.live.Owner.ApplySet && t.From != "" && t.From != live.GetResourceVersion() {
		p.live.parentSeen(live)
		return change, Waiting, fmt.Errorf("%w: the ApplySet's parent has changed, and may name other kinds", ErrNotSynced)
	}
	change.Action, change.UID, change.ResourceVersion = diff.Update, string(live.GetUID()), live.GetResourceVersion()
	whole, readable := live.(*unstructured.Unstructured)
	recreate, err := w.Rehearse(ctx, t, live)
	switch {
	case recreate:
		change.Action, change.Note = diff.Recreate, err.Error()
	case err != nil && !write.Immutable(err) && readable && w.Supersedes(whole):
		// It still has the fields of the other manager beside ours. They go first.
	case err != nil:
		action, err := p.outcome(it, err)
		return change, action, err
	}
	if readable {
		change, action, err := p.compare(ctx, it, t, whole, change)
		if err != nil {
			action, err = p.outcome(it, err)
		}
		return change, action, err
	}
	return change, send, nil
}

// sameChange reports whether two changes are equal, apart from the version of the
// object, which others may have changed.
func sameChange(a, b diff.Change) bool {
	a.ResourceVersion, b.ResourceVersion = "", ""
	return diff.Plan{Changes: []diff.Change{a}}.Hash() == diff.Plan{Changes: []diff.Change{b}}.Hash()
}

// stale returns an ErrStalePlan that wraps the reasons.
func stale(reasons ...error) error {
	return fmt.Errorf("%w: %w", ErrStalePlan, errors.Join(reasons...))
}

// Execute carries out a plan, each change only if it still holds: the object, the
// desired state and the differences are as planned. Otherwise the change fails with
// [ErrStalePlan]. A change whose object is [Waiting] in the report, for what it depends on
// or its definition, can be executed by a plan with these changes. Objects that are not in the plan are left alone, and what they
// need is refused with [ErrNeeded]. The report is valid with an error.
func (a *Applier) Execute(ctx context.Context, set *Set, options PruneOptions, plan diff.Plan) (Report, error) {
	found, err := a.preview(ctx, set, options)
	if err != nil {
		return Report{}, err
	}
	defer found.done()
	a.lead(set)
	p := found.pass
	waiting := map[ID]Result{}
	for _, r := range p.report.Results {
		if r.Action == Waiting {
			waiting[r.ID] = r
		}
	}
	p.report, p.failed = Report{}, nil
	approved := map[ID]diff.Change{}
	for _, c := range plan.Changes {
		id := idOf(c)
		now, ok := found.changes[id]
		if r, waits := waiting[id]; waits {
			p.add(r)
			continue
		}
		if !ok || !sameChange(c, now) {
			p.add(Result{id, Refused, fmt.Errorf("%w: %s", ErrStalePlan, c.Action)})
			continue
		}
		approved[id] = now
	}
	for items := range set.ranks() {
		p.execute(ctx, items, approved)
	}
	results := a.retire(&found.prune, func(o *Observed, pods *inquiry) Result {
		c, ok := approved[o.ID]
		if !ok {
			return Result{}
		}
		for _, inside := range found.prune.inside(o) {
			if _, ok := approved[inside.ID]; !ok {
				return Result{o.ID, Refused, fmt.Errorf("%w: %s must stay", ErrNeeded, inside.ID)}
			}
		}
		return a.discard(ctx, o, wire.Must{UID: c.UID, Version: c.ResourceVersion}, options, &found.prune, pods, nil)
	})
	for _, r := range results {
		if _, ok := approved[r.ID]; ok {
			p.add(r)
		}
	}
	return p.report, errors.Join(p.report.Err(), context.Cause(ctx))
}

// execute makes the approved changes of one rank.
func (p *pass) execute(ctx context.Context, items []item, approved map[ID]diff.Change) {
	results := make([]Result, len(items))
	p.applier.each(len(items), func(i int) {
		it := p.item(&items[i])
		c, ok := approved[it.id]
		if !ok {
			return
		}
		action, err := Waiting, p.blocked(it)
		if err == nil {
			err = p.await(ctx, it)
		}
		if err == nil {
			action, err = p.change(ctx, it, c)
		}
		results[i] = Result{it.id, action, err}
	})
	for _, r := range results {
		if r.Action != unchanged {
			p.add(r)
		}
	}
}

// executeTries bounds how often a change is checked again because another part of the
// object, such as its status, has changed.
const executeTries = 5

// change carries out a change on the version of the object for which it was decided.
func (p *pass) change(ctx context.Context, it *item, c diff.Change) (Action, error) {
	k := p.kinds[it.group]
	end, err := k.Begin(ctx, it.at)
	if err != nil {
		return Failed, err
	}
	defer end(false)
	for try := 1; ; try++ {
		look := k.Look(it.at)
		if look.State != view.Served {
			return Waiting, errors.Join(ErrNotSynced, look.Err)
		}
		t, err := p.target(it, &look)
		if err != nil {
			return Failed, err
		}
		action, err := p.changeOnce(ctx, it, t, c)
		if !write.Unmet(err) {
			return action, err
		}
		now, foreseen, lookErr := p.foresee(ctx, it, &look)
		if try == executeTries || lookErr != nil || foreseen != send || !sameChange(c, now) {
			return Refused, stale(err, lookErr)
		}
		c = now
	}
}

func (p *pass) changeOnce(ctx context.Context, it *item, t *write.Target, c diff.Change) (Action, error) {
	w := p.applier.writer
	if c.Action == diff.Recreate {
		done, answer, err := w.Recreate(ctx, t, c.UID, errors.New(c.Note))
		return p.took(it, done, answer, err)
	}
	t.UID = c.UID
	done, answer, err := w.WriteIn(ctx, t, wire.Must{UID: c.UID, Version: c.ResourceVersion})
	if write.Unmet(err) {
		return Refused, err
	}
	return p.took(it, done, answer, err)
}
