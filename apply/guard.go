package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
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

// of returns how many deletions there may be of so many units: of all units, each may be
// deleted, made again, and deleted once more.
func (l Limit) of(owned int) int {
	if l.Percent >= 100 {
		return math.MaxInt
	}
	return max(0, l.Count, owned*l.Percent/100)
}

// validate returns an error that names the field. Until it is mended, nothing is deleted.
func (g *Guard) validate() error {
	if g.Window < 0 {
		return fmt.Errorf("apply: Guard.Window: is %v, must be 0 (an hour) or more", g.Window)
	}
	for name, l := range map[string]Limit{"Absent": g.Absent, "Named": g.Named} {
		if l.Percent < 0 || l.Percent > 100 {
			return fmt.Errorf("apply: Guard.%s.Percent: is %d, must be 0 to 100", name, l.Percent)
		}
	}
	return nil
}

// Held is what a [Guard] holds back.
type Held struct {
	// Units are sorted by name.
	Units []HeldUnit
	// Digest names exactly these objects, and whether each is deleted or released, and how.
	// An approval states it ([PruneOptions.Approved]). It changes when an object joins or
	// leaves the held ones, or is made again, and with nothing else, until nothing is held:
	// then an approval that was not used is void. Without a [Guard.Memory] it is another one after
	// a restart. "" if nothing is held, in a plan of what no
	// Prune has held yet, and while the Memory cannot be used.
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
	// may be, and Owned the units that exist or were deleted within the window, each once.
	Before, Limit, Owned int
	Window               time.Duration
	// Digest names everything that is held, of both causes ([Held.Digest]).
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
	text := fmt.Sprintf("%d of %d units are %s, and %d were deleted within %s; the limit is %d",
		len(e.Units), e.Owned, cause(e.Named), e.Before, e.Window, e.Limit)
	if e.Before+len(e.Units) <= e.Limit {
		text += ", which they were above when the hold began, and time releases nothing"
	}
	return text
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

func (g *Guard) window() time.Duration {
	if g.Window > 0 {
		return g.Window
	}
	return time.Hour
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
