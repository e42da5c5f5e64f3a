package apply

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
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
	// Memory stores the counted deletions across restarts, and shares them between
	// programs that run at once. While it cannot be read or written, nothing that
	// counts is deleted. Nil: they are kept in the process.
	Memory GuardMemory

	mu      sync.Mutex
	deleted []deletion // within the window
	version string     // of the Memory, as deleted was read or written
}

// Limit is the greater of a number of units and a share of all units at the start of
// the window. A negative Count with no Percent allows no deletion.
type Limit struct {
	Count   int
	Percent int
}

func (l Limit) of(owned int) int { return max(0, l.Count, owned*l.Percent/100) }

// GuardMemory stores a few kilobytes. [ConfigMapMemory] is one. It is used by one
// goroutine at a time.
type GuardMemory interface {
	// Load returns the data of the last Save and its version, nil if nothing was saved.
	Load(ctx context.Context) (data []byte, version string, err error)
	// Save replaces the data of this version and returns the new version. Version ""
	// requires that nothing is saved yet. It fails if there is another version.
	Save(ctx context.Context, data []byte, version string) (saved string, err error)
}

// LimitError reports units of which nothing was deleted, because deleting them would
// exceed what a [Guard] allows within the window.
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
}

func (e *LimitError) Error() string {
	cause := "absent"
	if e.Named {
		cause = "named as deleted"
	}
	const most = 5
	units := strings.Join(e.Units[:min(most, len(e.Units))], ", ")
	if more := len(e.Units) - most; more > 0 {
		units += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%d of %d units are %s, and %d were deleted within %s; the limit is %d, so these are held: %s",
		len(e.Units), e.Owned, cause, e.Before, e.Window, e.Limit, units)
}

// deletion is one unit that was deleted, or is about to be.
type deletion struct {
	unit  string // a hash
	named bool
	at    time.Time
	open  bool // some of its objects may still exist
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

// hold removes from the plan what exceeds the limits. If note is set, the rest counts
// as deleted.
func (g *Guard) hold(
	ctx context.Context,
	plan *prunePlan,
	census func() census,
	gone func(Observed) bool,
	note bool,
) (held []ID, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if len(plan.due) == 0 {
		for i := range g.deleted {
			g.deleted[i].open = false // a new object of the name is a new unit
		}
		return nil, nil
	}
	units := census()
	due := g.unitsOf(plan, units.stated, gone)
	if len(due) == 0 {
		return nil, nil
	}
	if err := g.load(ctx, now); err != nil {
		return plan.hold(func(o Observed) bool { _, counts := due[g.unitOf(o)]; return counts }),
			fmt.Errorf("deletions are held: earlier deletions: %w", err)
	}
	g.expire(due, now)
	begun := map[string]bool{}
	for _, d := range g.deleted {
		if d.open {
			begun[d.unit] = true
		}
	}
	stopped := map[string]bool{}
	next := slices.Clone(g.deleted)
	var errs []error
	for _, named := range []bool{false, true} {
		fresh := g.fresh(due, begun, named)
		over := g.over(fresh, named, units.number)
		if over != nil {
			errs = append(errs, over)
		}
		for _, unit := range fresh {
			if over != nil {
				stopped[unit] = true
			} else {
				next = append(next, deletion{unit: hashOf(unit), named: named, at: now, open: true})
			}
		}
	}
	if note && len(next) > len(g.deleted) {
		if err := g.save(ctx, next, now); err != nil {
			return plan.hold(func(o Observed) bool { _, counts := due[g.unitOf(o)]; return counts && !begun[hashOf(g.unitOf(o))] }),
				errors.Join(append(errs, fmt.Errorf("deletions are held: they cannot be recorded: %w", err))...)
		}
	}
	return plan.hold(func(o Observed) bool { return stopped[g.unitOf(o)] }), errors.Join(errs...)
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

// fresh returns the units of a cause whose deletion has not begun, sorted.
func (g *Guard) fresh(due, begun map[string]bool, named bool) []string {
	var fresh []string
	for _, unit := range slices.Sorted(maps.Keys(due)) {
		if due[unit] == named && !begun[hashOf(unit)] {
			fresh = append(fresh, unit)
		}
	}
	return fresh
}

// over returns a LimitError if the units are more than their limit allows.
func (g *Guard) over(fresh []string, named bool, owned int) error {
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
	for _, d := range g.deleted {
		if !d.open {
			e.Owned++
		}
		if d.named == named {
			e.Before++
		}
	}
	if e.Limit = limit.of(e.Owned); e.Before+len(fresh) <= e.Limit {
		return nil
	}
	return e
}

// expire drops deletions that lie before the window, and closes those that are
// complete.
func (g *Guard) expire(due map[string]bool, now time.Time) {
	still := make(map[string]bool, len(due))
	for unit := range due {
		still[hashOf(unit)] = true
	}
	g.deleted = slices.DeleteFunc(g.deleted, func(d deletion) bool { return now.Sub(d.at) >= g.window() })
	for i := range g.deleted {
		g.deleted[i].open = g.deleted[i].open && still[g.deleted[i].unit]
	}
}

func (g *Guard) window() time.Duration {
	if g.Window > 0 {
		return g.Window
	}
	return time.Hour
}

// kept is a deletion as a Memory stores it. Its age is counted at the time of saving:
// no two clocks are compared, and a deletion never counts for less than the window.
type kept struct {
	Unit  string `json:"unit"`
	Named bool   `json:"named,omitempty"`
	Age   int64  `json:"ageSeconds"`
}

// load takes over the deletions that another process has recorded.
func (g *Guard) load(ctx context.Context, now time.Time) error {
	if g.Memory == nil {
		return nil
	}
	data, version, err := g.Memory.Load(ctx)
	if err != nil || version == g.version {
		return err
	}
	var list []kept
	if data != nil {
		if err := json.Unmarshal(data, &list); err != nil {
			return fmt.Errorf("it cannot be read: %w", err)
		}
	}
	known := map[string]bool{}
	for _, d := range g.deleted {
		known[d.unit] = true
	}
	for _, k := range list {
		if !known[k.Unit] {
			g.deleted = append(g.deleted, deletion{unit: k.Unit, named: k.Named, at: now.Add(-time.Duration(k.Age) * time.Second), open: true})
		}
	}
	g.version = version
	return nil
}

// save records the deletions that are about to begin.
func (g *Guard) save(ctx context.Context, next []deletion, now time.Time) error {
	if g.Memory != nil {
		list := make([]kept, 0, len(next))
		for _, d := range next {
			list = append(list, kept{Unit: d.unit, Named: d.named, Age: int64(now.Sub(d.at) / time.Second)})
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
	g.deleted = next
	return nil
}

// hashOf shortens the name of a unit, and keeps it out of the memory.
func hashOf(unit string) string {
	sum := sha256.Sum256([]byte(unit))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// census counts what a guard compares deletions with.
type census struct {
	stated map[string]bool // units of which an object exists that the set states
	number int             // of all units
}

// census counts the units of the owner, or of the set's part.
func (a *Applier) census(g *Guard, set *Set, views []*view.Kind) census {
	all, stated := map[string]bool{}, map[string]bool{}
	for _, v := range views {
		kind := v.GroupKind()
		group := slices.Index(set.kinds, kind)
		take := func(n view.Name, r *view.Record) bool {
			if r.Pruned() || r.Deleting() || r.Unowned() {
				return true
			}
			unit := g.unitOf(observe(kind, n, r, a.Live.identity))
			all[unit] = true
			if set.hasItem(group, n) {
				stated[unit] = true
			}
			return true
		}
		if a.Live.Owner.PartLabel != "" {
			v.EachOf(set.part, take)
		} else {
			v.Each(take)
		}
	}
	return census{stated, len(all)}
}
