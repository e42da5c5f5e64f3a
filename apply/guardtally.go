package apply

import (
	"iter"
	"maps"
	"slices"
	"time"
)

// tally is what a guard remembers: the deletions of its window, and for which causes it
// holds.
type tally struct {
	deleted []deletion
	holds   map[bool]bool // by cause: named or absent
	// hold is a random name of the time in which it holds without a break, "" if it does
	// not: an approval is no approval when the same objects are held once more.
	hold string
}

// deletion is one unit that was deleted, or is about to be.
type deletion struct {
	unit string // a hash
	// objects are hashes of the UIDs that the unit had then: the deletion goes on for these,
	// and not for an object that was made since.
	objects  []string
	named    bool
	approved bool // by a person: it does not count
	at       time.Time
	open     bool // some of its objects may still exist
}

// idle reports whether there is nothing to close and nothing to release.
func (t tally) idle() bool {
	return !t.holds[false] && !t.holds[true] && !slices.ContainsFunc(t.deleted, func(d deletion) bool { return d.open })
}

// at returns the tally as of now: the deletions of whose objects none is due any more are
// complete, and those before the window are dropped, unless they go on. due has the objects of
// each unit that is due, and waiting those that will be: that keeps a deletion open within the window, and an approved
// one, which counts for nothing, as long as it takes.
func (t tally) at(now time.Time, window time.Duration, due, waiting map[string][]string) tally {
	byHash := func(objects map[string][]string) map[string][]string {
		hashed := make(map[string][]string, len(objects))
		for unit := range objects {
			hashed[hashOf(unit)] = objects[unit]
		}
		return hashed
	}
	still, later := byHash(due), byHash(waiting)
	next := tally{deleted: slices.Clone(t.deleted), holds: maps.Clone(t.holds), hold: t.hold}
	if next.holds == nil {
		next.holds = map[bool]bool{}
	}
	for i := range next.deleted {
		d := &next.deleted[i]
		mine := func(o string) bool { return slices.Contains(d.objects, o) }
		d.open = d.open && (slices.ContainsFunc(still[d.unit], mine) ||
			(d.approved || now.Sub(d.at) < window) && slices.ContainsFunc(later[d.unit], mine))
	}
	next.deleted = slices.DeleteFunc(next.deleted, func(d deletion) bool { return !d.open && now.Sub(d.at) >= window })
	return next
}

// gone counts the units that were deleted, each once, however often it was made again, and
// that are not among those that exist.
func (t tally) gone(existing iter.Seq[string]) int {
	gone := make(map[string]bool, len(t.deleted))
	for _, d := range t.deleted {
		gone[d.unit] = true
	}
	if existing == nil || len(gone) == 0 {
		return len(gone)
	}
	for unit := range existing {
		if delete(gone, hashOf(unit)); len(gone) == 0 {
			break
		}
	}
	return len(gone)
}

// begun reports whether the deletion of an object of the unit goes on.
func (t tally) begun(unit, object string) bool {
	hash := hashOf(unit)
	return slices.ContainsFunc(t.deleted, func(d deletion) bool {
		return d.open && d.unit == hash && slices.Contains(d.objects, object)
	})
}

// fresh returns the units of a cause with an object whose deletion has not begun, sorted.
func (t tally) fresh(causes map[string]bool, due map[string][]string, named bool) []string {
	var fresh []string
	for _, unit := range slices.Sorted(maps.Keys(causes)) {
		isNew := func(object string) bool { return !t.begun(unit, object) }
		if causes[unit] == named && slices.ContainsFunc(due[unit], isNew) {
			fresh = append(fresh, unit)
		}
	}
	return fresh
}

// add notes the deletion of units with all their objects: those that are due, and the others.
func (t *tally) add(units []string, due, all map[string][]string, named, approved bool, now time.Time) {
	for _, unit := range units {
		objects := slices.Concat(due[unit], all[unit])
		slices.Sort(objects)
		t.deleted = append(t.deleted, deletion{
			unit: hashOf(unit), objects: slices.Compact(objects), named: named, approved: approved, at: now, open: true,
		})
	}
}

// records reports whether t says something that a later process must know. That a
// deletion has ended is not worth a write: it is recorded with the next one. A unit that
// came back since, and is lost again after a restart, is then not counted twice.
func (t tally) records(before tally) bool {
	return t.holds[false] != before.holds[false] || t.holds[true] != before.holds[true] ||
		slices.ContainsFunc(t.deleted, func(d deletion) bool {
			return !slices.ContainsFunc(before.deleted, func(b deletion) bool { return b.unit == d.unit && b.at.Equal(d.at) })
		})
}

// kept is a tally as a Memory stores it. Ages are counted at the time of saving: no two
// clocks are compared, and a deletion never counts for less than the window.
type kept struct {
	Deleted []keptDeletion `json:"deleted,omitempty"`
	Absent  bool           `json:"holdsAbsent,omitempty"`
	Named   bool           `json:"holdsNamed,omitempty"`
	Hold    string         `json:"hold,omitempty"`
}

type keptDeletion struct {
	Unit     string   `json:"unit"`
	Objects  []string `json:"objects,omitempty"`
	Named    bool     `json:"named,omitempty"`
	Approved bool     `json:"approved,omitempty"`
	Open     bool     `json:"open,omitempty"`
	Age      int64    `json:"ageSeconds"`
}
