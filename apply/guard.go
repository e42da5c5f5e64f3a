package apply

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
)

// Guard bounds deletions of objects that have left the desired state. It counts units
// as a person would: a service with all its objects is one. It counts them over a
// window, which catches a slow loss as well as a sudden one.
//
// There are three causes. A unit of which the set still states an object has shrunk: it
// is still desired and does not count. A unit whose objects are all named as deleted
// ([PruneOptions.Gone]) is named. Any other is absent.
//
// Once the units of a cause exceed its limit, no further unit of that cause is deleted,
// however much time passes: until a person approves exactly the held set
// ([PruneOptions.Approved]), or until no unit of that cause is due or in its grace.
//
// The zero value is ready to use, by one owner, from any number of goroutines: each
// object is a unit, and at most 5 units or 10 percent, if that is more, are deleted in
// an hour.
type Guard struct {
	// Unit returns the unit that an object belongs to. Nil or "": the object is a unit
	// by itself.
	Unit func(Observed) string
	// Absent bounds the absent units. Its zero value means 5 units or 10 percent.
	Absent Limit
	// Named bounds the named units. Its zero value means no limit.
	Named Limit
	// Window is how long a deletion counts. Zero: an hour.
	Window time.Duration
	// Memory stores the counted deletions, and that the guard holds, across restarts,
	// and shares them between programs that run at once. While it cannot be read or
	// written, nothing that counts is deleted. Nil: they are kept in the process.
	Memory GuardMemory

	mu      sync.Mutex
	tally   tally
	loaded  bool
	version string // of the Memory, as tally was read or written
}

// Limit is the greater of a number of units and a share of all units at the start of
// the window. A negative Count with no Percent allows no deletion, 100 percent allows
// each.
type Limit struct {
	Count   int
	Percent int
}

func (l Limit) of(owned int) int { return max(0, l.Count, owned*l.Percent/100) }

// Held is what a [Guard] holds back.
type Held struct {
	// Units are sorted by name.
	Units []HeldUnit
	// Digest names exactly these objects. An approval states it
	// ([PruneOptions.Approved]). It changes when an object joins or leaves the held
	// ones, or is made again, and with nothing else. "" if nothing is held.
	Digest string
}

// HeldUnit is one unit that is held, or objects of a unit that contain held objects.
type HeldUnit struct {
	Unit string
	// IDs are the objects that would be deleted, sorted.
	IDs []ID
	// Reason is why they are not, for a person.
	Reason string
}

// IDs returns the objects of all units, in no order.
func (h Held) IDs() []ID {
	var ids []ID
	for _, u := range h.Units {
		ids = append(ids, u.IDs...)
	}
	return ids
}

// LimitError reports units of which nothing was deleted, because deleting them would
// exceed what a [Guard] allows within the window, or because it holds already.
type LimitError struct {
	// Units are the units held back, sorted.
	Units []string
	// Named is whether the desired state names them as deleted; otherwise they are
	// absent from it.
	Named bool
	// Before counts the units of this cause deleted within the window, Limit how many
	// may be, and Owned the units that exist or were deleted within the window.
	Before, Limit, Owned int
	Window               time.Duration
	// Digest is that of all that is held ([Held.Digest]).
	Digest string
	// Refused is a digest that was approved, and that names another set. "" if there is
	// none.
	Refused string
}

func (e *LimitError) Error() string {
	const most = 5
	units := strings.Join(e.Units[:min(most, len(e.Units))], ", ")
	if more := len(e.Units) - most; more > 0 {
		units += fmt.Sprintf(" and %d more", more)
	}
	text := fmt.Sprintf("%s, so these are held: %s", e.reason(), units)
	if e.Refused != "" {
		text += fmt.Sprintf("; the approved digest is %q, must be %q: the held set has changed", e.Refused, e.Digest)
	}
	return text
}

// reason is why each unit of the error is held.
func (e *LimitError) reason() string {
	return fmt.Sprintf("%d of %d units are %s, and %d were deleted within %s; the limit is %d",
		len(e.Units), e.Owned, cause(e.Named), e.Before, e.Window, e.Limit)
}

func cause(named bool) string {
	if named {
		return "named as deleted"
	}
	return "absent"
}

// unitOf returns the unit of an object.
func (g *Guard) unitOf(o Observed) string {
	if g.Unit != nil {
		if unit := g.Unit(o); unit != "" {
			return unit
		}
	}
	return o.ID.String()
}

// hold removes from the plan what exceeds the limits, unless approved is the digest of
// it. If note is set, the rest counts as deleted.
func (g *Guard) hold(
	ctx context.Context, plan *prunePlan, count func() census, gone func(Observed) bool, approved string, note bool,
) (Held, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	var units census
	due := map[string]bool{}
	if len(plan.due) > 0 {
		units = count()
		due = g.unitsOf(plan, units.stated, gone)
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
		return g.take(plan, counts, err.Error()), fmt.Errorf("deletions are held: %w", err)
	}
	next := g.tally.at(now, g.window(), due)
	over := map[bool]*LimitError{}
	for _, named := range []bool{false, true} {
		if e := g.over(next, next.fresh(due, named), named, units.number); e != nil {
			over[named] = e
		}
	}
	before := slices.Clone(plan.due)
	held := g.take(plan, func(o Observed) bool {
		named, counts := due[g.unitOf(o)]
		return counts && over[named] != nil && !next.begun(g.unitOf(o))
	}, "")
	agreed := approved != "" && approved == held.Digest
	if agreed {
		plan.due, held = before, Held{}
	}
	for _, named := range []bool{false, true} {
		// What is still in its grace is absent: the guard goes on holding for it.
		waits := !named && next.holds[named] && plan.pending > 0 && len(next.fresh(due, named)) == 0
		next.holds[named] = (over[named] != nil || waits) && !agreed
		if !next.holds[named] {
			next.add(next.fresh(due, named), named, agreed && over[named] != nil, now)
		}
	}
	if note {
		if err := g.save(ctx, next, now); err != nil && len(due) > 0 {
			err = fmt.Errorf("they cannot be recorded: %w", err)
			rest := g.take(plan, func(o Observed) bool { return counts(o) && !g.tally.begun(g.unitOf(o)) }, err.Error())
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

// take removes from the plan what stops selects, and what contains it.
func (g *Guard) take(plan *prunePlan, stops func(Observed) bool, reason string) Held {
	byUnit := map[string]*HeldUnit{}
	sum := sha256.New()
	for _, o := range plan.hold(stops) {
		unit := g.unitOf(o)
		if byUnit[unit] == nil {
			byUnit[unit] = &HeldUnit{Unit: unit, Reason: reason}
		}
		byUnit[unit].IDs = append(byUnit[unit].IDs, o.ID)
		fmt.Fprintf(sum, "%s %s\n", o.ID, o.UID)
	}
	var held Held
	for _, unit := range slices.Sorted(maps.Keys(byUnit)) {
		held.Units = append(held.Units, *byUnit[unit])
	}
	if len(held.Units) > 0 {
		held.Digest = base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:12])
	}
	return held
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

// over returns a LimitError if the units of a cause are more than its limit allows, or
// the guard holds that cause already.
func (g *Guard) over(t tally, fresh []string, named bool, owned int) *LimitError {
	limit := g.Absent
	switch {
	case len(fresh) == 0 || named && g.Named == Limit{}:
		return nil
	case named:
		limit = g.Named
	case limit == Limit{}:
		limit = Limit{Count: 5, Percent: 10}
	}
	e := &LimitError{Units: fresh, Named: named, Window: g.window(), Owned: owned}
	for _, d := range t.deleted {
		if !d.open {
			e.Owned++
		}
		if d.named == named && !d.approved {
			e.Before++
		}
	}
	if e.Limit = limit.of(e.Owned); e.Before+len(fresh) <= e.Limit && !t.holds[named] {
		return nil
	}
	return e
}

func (g *Guard) window() time.Duration {
	if g.Window > 0 {
		return g.Window
	}
	return time.Hour
}

// census counts what a guard compares deletions with.
type census struct {
	stated map[string]bool // units of which an object exists that the set states
	number int             // of all units
}

// census counts the units of the owner, or of the set's part. Set is nil for a deletion
// by name: it states nothing.
func (a *Applier) census(g *Guard, set *Set, views []*view.Kind) census {
	all, stated := map[string]bool{}, map[string]bool{}
	for _, v := range views {
		kind := v.GroupKind()
		group := -1
		if set != nil {
			group = slices.Index(set.kinds, kind)
		}
		take := func(n view.Name, r *view.Record) bool {
			if r.Pruned() || r.Deleting() || r.Unowned() {
				return true
			}
			unit := g.unitOf(observe(kind, n, r, a.Live.identity))
			all[unit] = true
			if set != nil && set.hasItem(group, n) {
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
	return census{stated, len(all)}
}
