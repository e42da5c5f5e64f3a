package statesync

import (
	"slices"
	"sort"
	"strings"
)

// state is the newest item of each key of one scope, in the order of versions: the
// content of a log. It is not safe for concurrent use.
type state struct {
	Position
	// slots ascend by version. A slot whose key has changed since is empty.
	slots []slot
	empty int
	keys  map[Key]*entry
	// sums has one row for each collection: the tally of a reader of some collections
	// is the sum of a few rows.
	sums map[string]*tally
}

type slot struct {
	version uint64
	entry   *entry // nil: empty
}

// entry is a stored item, shared by all readers. It is immutable.
type entry struct {
	Item
	// encoded is the item as JSON on one line, if the state encodes.
	encoded []byte
}

// tally is the count and the digest of a set of live items.
type tally struct {
	count  int
	digest Digest
}

// put adds e, whose version must be above every earlier one.
func (s *state) put(e *entry) {
	if s.keys == nil {
		s.keys, s.sums = map[Key]*entry{}, map[string]*tally{}
	}
	if old := s.keys[e.Key]; old != nil {
		s.tally(old, -1)
		s.clear(old.Version)
	}
	s.keys[e.Key] = e
	s.slots = append(s.slots, slot{e.Version, e})
	s.tally(e, +1)
	if s.empty > len(s.slots)/2 {
		s.compact()
	}
}

func (s *state) tally(e *entry, sign int) {
	if e.Deleted {
		return
	}
	row := s.sums[e.Collection]
	if row == nil {
		row = &tally{}
		// The name is kept for ever, the item is not.
		s.sums[strings.Clone(e.Collection)] = row
	}
	row.count += sign
	if sign > 0 {
		row.digest.add(e.Item)
	} else {
		row.digest.remove(e.Item)
	}
}

func (s *state) clear(version uint64) {
	if at := s.after(version - 1); at < len(s.slots) && s.slots[at].version == version {
		s.slots[at].entry = nil
		s.empty++
	}
}

func (s *state) compact() {
	s.slots = slices.DeleteFunc(s.slots, func(at slot) bool { return at.entry == nil })
	s.empty = 0
}

// forget drops the tombstones up to floor.
func (s *state) forget(floor uint64) {
	for _, at := range s.slots[:s.after(floor)] {
		if at.entry != nil && at.entry.Deleted {
			delete(s.keys, at.entry.Key)
			s.clear(at.version)
		}
	}
	s.compact()
	s.Floor = max(s.Floor, floor)
}

// after returns the index of the first slot above version.
func (s *state) after(version uint64) int {
	return sort.Search(len(s.slots), func(i int) bool { return s.slots[i].version > version })
}

// page returns the items above version that filter wants, at most limit of them
// and about size bytes, and the version up to which they are complete.
func (s *state) page(version uint64, limit, size int, want filter) (entries []*entry, through uint64, more bool) {
	for _, at := range s.slots[s.after(version):] {
		if at.entry == nil || !want.has(at.entry.Collection) {
			continue
		}
		if len(entries) == limit || size <= 0 && len(entries) > 0 {
			return entries, entries[len(entries)-1].Version, true
		}
		entries = append(entries, at.entry)
		size -= len(at.entry.Value)
	}
	return entries, s.Head, false
}

// total returns the tally of a complete reader of the requested collections.
func (s *state) total(want filter) (t tally) {
	for collection, row := range s.sums {
		if want.has(collection) {
			t.count += row.count
			t.digest.merge(row.digest)
		}
	}
	return t
}

// filter is the collections that a reader reads; none means all.
type filter []string

func (f filter) has(collection string) bool {
	return len(f) == 0 || slices.Contains(f, collection)
}
