package apply

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

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
	if len(plan.due) > 0 {
		units = count()
		due = g.unitsOf(plan, units.stated, gone)
		counted := slices.DeleteFunc(slices.Clone(plan.due), func(o Observed) bool { _, counts := due[g.unitOf(o)]; return !counts })
		objects = g.objectsOf(counted, plan)
	}
	if len(due) == 0 && g.tally.idle() && (g.loaded || g.Memory == nil) {
		return Held{}, nil
	}
	counts := func(o Observed) bool { _, counts := due[g.unitOf(o)]; return counts }
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

// explain gives the units of the error its reason, and the units that only contain
// held objects theirs.
func (h *Held) explain(e *LimitError) {
	for i := range h.Units {
		u := &h.Units[i]
		if _, found := slices.BinarySearch(e.Units, u.Unit); found {
			u.Reason = e.reason()
		} else if u.Reason == "" {
			u.Reason = "it contains objects that are held"
		}
	}
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

// load takes over what another process has recorded.
func (g *Guard) load(ctx context.Context, now time.Time) error {
	if g.Memory == nil {
		return nil
	}
	data, version, err := g.Memory.Load(ctx)
	g.loaded = g.loaded || err == nil
	if err != nil || version == g.version {
		return err
	}
	var found kept
	if data != nil {
		if err := json.Unmarshal(data, &found); err != nil {
			return fmt.Errorf("it cannot be read: %w", err)
		}
	}
	g.tally = tally{holds: map[bool]bool{false: found.Absent, true: found.Named}, hold: found.Hold}
	for _, k := range found.Deleted {
		g.tally.deleted = append(g.tally.deleted, deletion{
			unit: k.Unit, objects: k.Objects, named: k.Named, approved: k.Approved, open: k.Open, at: now.Add(-time.Duration(k.Age) * time.Second),
		})
	}
	g.version = version
	return nil
}

// save records the deletions that are about to begin. Nothing is written if nothing has
// to be remembered beyond what is.
func (g *Guard) save(ctx context.Context, next tally, now time.Time) error {
	if g.Memory != nil && next.records(g.tally) {
		list := kept{Absent: next.holds[false], Named: next.holds[true], Hold: next.hold}
		for _, d := range next.deleted {
			list.Deleted = append(list.Deleted, keptDeletion{
				Unit: d.unit, Objects: d.objects, Named: d.named, Approved: d.approved, Open: d.open, Age: int64(now.Sub(d.at) / time.Second),
			})
		}
		data, err := json.Marshal(list)
		if err != nil {
			return err
		}
		version, err := g.Memory.Save(ctx, data, g.version)
		if err != nil {
			return err
		}
		g.version = version
	}
	g.tally = next
	return nil
}
