package apply

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
)

// hold removes from the plan what exceeds the limits, unless approved is the digest of
// it. If note is set, the rest counts as deleted.
func (g *Guard) hold(
	ctx context.Context, plan *prunePlan, count func() census, gone func(Observed) bool, approved string, note bool,
) (Held, error) {
	if err := g.validate(); err != nil {
		return g.take(plan, func(Observed) bool { return true }, err.Error(), ""), err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	var units census
	due, objects := map[string]bool{}, map[string][]string{}
	counts := func(o Observed) bool { _, counts := due[g.unitOf(o)]; return counts }
	if len(plan.due) > 0 {
		units = count()
		due = g.unitsOf(plan, units.stated, gone)
		objects = g.objectsOf(slices.DeleteFunc(slices.Clone(plan.due), func(o Observed) bool { return !counts(o) }), plan)
	}
	if len(due) == 0 && g.tally.idle() && (g.loaded || g.Memory == nil) {
		return Held{}, nil
	}
	if err := g.load(ctx, now); err != nil {
		if len(due) == 0 {
			return Held{}, nil // nothing is to be held, and nothing has to be remembered
		}
		err = fmt.Errorf("earlier deletions: %w", err)
		return g.take(plan, counts, err.Error(), ""), fmt.Errorf("deletions are held: %w", err)
	}
	if plan.orphan != nil {
		units.objects = nil // of an object that is in its grace it is not known whether it is released
	}
	next := g.tally.at(now, g.window(), objects, g.objectsOf(plan.waiting, plan))
	over := map[bool]*LimitError{}
	for _, named := range []bool{false, true} {
		if e := g.over(next, next.fresh(due, objects, named), named, &units); e != nil {
			over[named] = e
		}
	}
	if len(over) > 0 && next.hold == "" && note {
		next.hold = rand.Text()
	}
	before, staying := slices.Clone(plan.due), slices.Clone(plan.staying)
	held := g.take(plan, func(o Observed) bool {
		named, counts := due[g.unitOf(o)]
		return counts && over[named] != nil && !next.begun(g.unitOf(o), plan.mark(o))
	}, "", next.hold)
	agreed := approved != "" && approved == held.Digest
	if agreed {
		plan.due, plan.staying, held = before, staying, Held{}
	}
	for _, named := range []bool{false, true} {
		// What is still in its grace is absent: the guard goes on holding for it.
		waits := !named && next.holds[named] && plan.pending > 0 && len(next.fresh(due, objects, named)) == 0
		next.holds[named] = (over[named] != nil || waits) && !agreed
		if !next.holds[named] {
			next.add(next.fresh(due, objects, named), objects, units.objects, named, agreed && over[named] != nil, now)
		}
	}
	if !next.holds[false] && !next.holds[true] {
		next.hold = ""
	}
	if note {
		if err := g.save(ctx, next, now); err != nil && len(due) > 0 {
			err = fmt.Errorf("they cannot be recorded: %w", err)
			rest := g.take(plan, func(o Observed) bool { return counts(o) && !g.tally.begun(g.unitOf(o), plan.mark(o)) }, err.Error(), "")
			held.Units = append(held.Units, rest.Units...)
			held.Digest = ""
			return held, fmt.Errorf("deletions are held: %w", err)
		}
	}
	var errs []error
	for _, named := range []bool{false, true} {
		e := over[named]
		if e == nil || agreed {
			continue
		}
		e.Digest = held.Digest
		if approved != held.Digest {
			e.Refused = approved
		}
		errs = append(errs, e)
		held.explain(e)
	}
	return held, errors.Join(errs...)
}

// digestText makes digests that a person can select with two clicks, and that no command takes for a
// flag.
var digestText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding) //nolint:gochecknoglobals // constant

// take removes from the plan what stops selects, and what contains it. Without the name of
// a hold there is no digest.
func (g *Guard) take(plan *prunePlan, stops func(Observed) bool, reason, hold string) Held {
	byUnit := map[string]*HeldUnit{}
	sum := sha256.New()
	_, _ = fmt.Fprintln(sum, hold, plan.propagation)
	for _, o := range plan.hold(stops) {
		unit := g.unitOf(o)
		if byUnit[unit] == nil {
			byUnit[unit] = &HeldUnit{Unit: unit, Reason: reason}
		}
		byUnit[unit].IDs = append(byUnit[unit].IDs, o.ID)
		_, _ = fmt.Fprintf(sum, "%s %s %s\n", o.ID, o.UID, plan.mark(o))
	}
	var held Held
	for _, unit := range slices.Sorted(maps.Keys(byUnit)) {
		held.Units = append(held.Units, *byUnit[unit])
	}
	if len(held.Units) > 0 && hold != "" {
		held.Digest = digestText.EncodeToString(sum.Sum(nil)[:12])
	}
	return held
}

// unitsOf returns the units of a plan that count, and whether each is named.
func (g *Guard) unitsOf(plan *prunePlan, stated map[string]bool, gone func(Observed) bool) map[string]bool {
	due := map[string]bool{}
	for i := range plan.due {
		o := plan.due[i]
		unit := g.unitOf(o)
		if stated[unit] {
			continue
		}
		named, seen := due[unit]
		due[unit] = gone != nil && gone(o) && (named || !seen)
	}
	return due
}

// mark is a short hash of a UID, as a tally has it.
func mark(uid types.UID) string { return hashOf(string(uid))[:8] }

// mark returns the mark of an object. A release has another mark than a deletion, so that the
// approval of one does not approve the other.
func (p *prunePlan) mark(o Observed) string {
	if p.orphan != nil && p.orphan(o) {
		return mark(o.UID + " released")
	}
	return mark(o.UID)
}

// objectsOf returns the marks of objects of a plan by their unit.
func (g *Guard) objectsOf(list []Observed, plan *prunePlan) map[string][]string {
	objects := map[string][]string{}
	for i := range list {
		unit := g.unitOf(list[i])
		objects[unit] = append(objects[unit], plan.mark(list[i]))
	}
	return objects
}

// over returns a LimitError if the units of a cause are more than its limit allows, or
// the guard holds that cause already.
func (g *Guard) over(t tally, fresh []string, named bool, units *census) *LimitError {
	limit := g.Absent
	switch {
	case len(fresh) == 0 || named && g.Named == Limit{}:
		return nil
	case named:
		limit = g.Named
	case limit == Limit{}:
		limit = Limit{Count: 5, Percent: 10}
	}
	e := &LimitError{Units: fresh, Named: named, Window: g.window(), Owned: units.number + t.gone(units.names)}
	for _, d := range t.deleted {
		if d.named == named && !d.approved {
			e.Before++
		}
	}
	if e.Limit = limit.of(e.Owned); e.Before+len(fresh) <= e.Limit && !t.holds[named] {
		return nil
	}
	return e
}

// census counts what a guard compares deletions with.
type census struct {
	stated map[string]bool  // units of which an object exists that the set states
	number int              // of all units
	names  iter.Seq[string] // of all units
	// objects has the marks of the objects of each unit that has more than the one it is named after.
	objects map[string][]string
}

// census counts the units of the owner, or of the set's part. Set is nil for a deletion
// by name: it states nothing.
func (a *Applier) census(g *Guard, plan *prunePlan, set *Set, views []*view.Kind) census {
	if g.Unit == nil && set != nil && a.Live.Owner.PartLabel == "" {
		// Each object is a unit: the plan has counted them, and those that it deletes are not stated.
		return census{number: plan.owned, names: a.names(views)}
	}
	all, stated := map[string][]string{}, map[string]bool{}
	for _, v := range views {
		kind := v.GroupKind()
		take := func(n view.Name, r *view.Record) bool {
			if r.Pruned() || r.Deleting() || r.Unowned() {
				return true
			}
			o := observe(kind, n, r, a.Live.identity)
			unit := g.unitOf(o)
			all[unit] = append(all[unit], mark(o.UID))
			if set != nil && set.Has(o.ID) {
				stated[unit] = true
			}
			return true
		}
		if set != nil && a.Live.Owner.PartLabel != "" {
			v.EachOf(set.part, take)
		} else {
			v.Each(take)
		}
	}
	return census{stated, len(all), maps.Keys(all), all}
}

// names yields the objects that an owner without parts has, as units.
func (a *Applier) names(views []*view.Kind) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, v := range views {
			kind := v.GroupKind()
			if !v.Each(func(n view.Name, r *view.Record) bool {
				return r.Pruned() || r.Deleting() || r.Unowned() ||
					yield(ID{Group: kind.Group, Kind: kind.Kind, Namespace: n.Namespace(), Name: n.Name()}.String())
			}) {
				return
			}
		}
	}
}

// restrain removes from the plan what a guard holds, what an object needs that stays, and what waits for pods. If note is
// set, the rest counts as deleted. A unit of which everything waits does not. Set is nil for a deletion by name.
func (a *Applier) restrain(
	ctx context.Context,
	plan *prunePlan,
	set *Set,
	options PruneOptions,
	views []*view.Kind,
	note bool,
) (held Held, err error) {
	plan.orphan, plan.podsOf = options.Orphan, options.podsOf
	guard := options.Guard
	if guard == nil && !options.meant && set.Part() == "" {
		guard = &a.Live.guard
	}
	if guard != nil {
		plan.unit = guard.unitOf
		if options.Propagation != metav1.DeletePropagationBackground {
			plan.propagation = options.Propagation
		}
	}
	hold := func(plan *prunePlan, note bool) (held Held, err error) {
		if guard != nil {
			held, err = guard.hold(ctx, plan, func() census { return a.census(guard, plan, set, views) }, options.Gone, options.Approved, note)
		}
		a.settle(plan, options)
		return held, err
	}
	waits, idle := a.waitForPods(ctx, plan, options, func(trial *prunePlan) error {
		_, err := hold(trial, false) // which comes again
		return err
	})
	plan.waiting = plan.hold(idle)
	held, err = hold(plan, note)
	plan.waiting = append(plan.waiting, plan.hold(func(o Observed) bool { _, waits := waits[o.ID]; return waits })...)
	for i := range plan.waiting {
		switch id := plan.waiting[i].ID; {
		case waits[id] == nil: // it contains what waits
			plan.wait(id, errPodsEnd)
		case errors.Is(waits[id], ErrNeeded):
			plan.wait(id, waits[id])
		default:
			plan.refuse(Result{id, Waiting, waits[id]})
		}
	}
	return held, err
}

func (a *Applier) settle(plan *prunePlan, options PruneOptions) {
	if len(plan.due) > 0 {
		plan.settle(plan.standing(a.Live.registry.plural), options, a.Live.registry.closing)
	}
}

// waitForPods returns what of a plan isolates pods of its namespace that end, and thus stays for now: with [ErrNeeded], or
// with [ErrNotSynced] if they cannot be seen. It asks the server: a pod may have no owner any more, and its workload be gone. Idle
// selects what of it the guard need not know of: everything that is due of its unit waits. Rest takes out of a plan what
// stays anyhow, which is not asked for.
func (a *Applier) waitForPods(
	ctx context.Context, plan *prunePlan, options PruneOptions, rest func(*prunePlan) error,
) (waits map[ID]error, idle func(Observed) bool) {
	none := func(Observed) bool { return false }
	if !slices.ContainsFunc(plan.due, plan.awaits) {
		return nil, none
	}
	free, trial := plan.clone(), plan.clone()
	a.settle(&free, options) // as if the guard held nothing
	err := rest(&trial)
	waits = map[ID]error{}
	for _, r := range free.postponed {
		waits[r.ID] = r.Err
	}
	due, limited := trial.due, isLimit(err)
	if limited {
		due = plan.alone(due) // there may be fewer units than the guard has counted
	}
	due = slices.DeleteFunc(due, func(o Observed) bool {
		_, known := waits[o.ID]
		return known || !plan.awaits(o)
	})
	why, ask := make([]error, len(due)), a.Live.inquire(a.Objects, options.podsOf)
	a.each(len(due), func(i int) { why[i] = ask.mayGo(ctx, &due[i]) })
	for i := range due {
		if why[i] != nil {
			waits[due[i].ID] = why[i]
		}
	}
	idle = plan.idle(waits)
	if limited {
		trial = plan.clone()
		trial.waiting = trial.hold(idle)
		limited = isLimit(rest(&trial))
	}
	if limited || options.Approved != "" && err == nil {
		idle = none // all that is due is held, or approved, together
	}
	return waits, idle
}

func isLimit(err error) bool {
	_, limited := errors.AsType[*LimitError](err)
	return limited
}

// idle selects the units of which everything waits.
func (p *prunePlan) idle(waits map[ID]error) func(Observed) bool {
	unitOf := p.unit
	if unitOf == nil {
		unitOf = func(o Observed) string { return o.ID.String() }
	}
	moves := map[string]bool{}
	for _, o := range p.due {
		if _, waits := waits[o.ID]; !waits {
			moves[unitOf(o)] = true
		}
	}
	return func(o Observed) bool {
		_, waits := waits[o.ID]
		return waits && !moves[unitOf(o)]
	}
}

// clone returns a copy of a plan to try on it what would be taken out.
func (p *prunePlan) clone() prunePlan {
	c := *p
	c.due, c.staying, c.foreground = slices.Clone(p.due), slices.Clone(p.staying), maps.Clone(p.foreground)
	return c
}

// alone adds to list what awaits pods and whose unit has nothing else that is due.
func (p *prunePlan) alone(list []Observed) []Observed {
	known, others := map[ID]bool{}, map[ID]error{}
	for i := range list {
		known[list[i].ID] = true
	}
	for i := range p.due {
		if p.awaits(p.due[i]) {
			others[p.due[i].ID] = nil
		}
	}
	alone := p.idle(others)
	for _, o := range p.due {
		if alone(o) && !known[o.ID] {
			list = append(list, o)
		}
	}
	return list
}
