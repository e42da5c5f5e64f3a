package apply

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-9e1ffd66/trueup/apply/internal/wire"
	"github.com/seed-9e1ffd66/trueup/apply/internal/write"
	"github.com/seed-9e1ffd66/trueup/diff"
)

// Execute carries out a plan, each change only if it still holds: the object, the
// desired state and the differences are as planned. Otherwise the change fails with
// [ErrStalePlan]. Objects that are not in the plan are left alone. The report is valid
// with an error.
func (a *Applier) Execute(ctx context.Context, set *Set, options PruneOptions, plan diff.Plan) (Report, error) {
	found, err := a.preview(ctx, set, options)
	if err != nil {
		return Report{}, err
	}
	defer found.done()
	a.Live.lead(set)
	p := found.pass
	p.report, p.failed = Report{}, nil
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
		p.execute(ctx, items, approved)
	}
	for due := range found.prune.ranks() {
		results := make([]Result, len(due))
		each(len(due), a.Concurrency, func(i int) {
			if c, ok := approved[due[i].ID]; ok {
				results[i] = a.discard(ctx, &due[i], wire.Must{UID: c.UID, Version: c.ResourceVersion}, options, nil)
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

// execute makes the approved changes of one rank.
func (p *pass) execute(ctx context.Context, items []item, approved map[ID]diff.Change) {
	results := make([]Result, len(items))
	each(len(items), p.applier.Concurrency, func(i int) {
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
