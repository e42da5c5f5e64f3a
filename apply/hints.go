package apply

import (
	"slices"
	"sync"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
)

// hints are where the records of a set's items were found last, in the views of its kinds.
type hints struct {
	once  sync.Once
	kinds []*view.Kind // by item.group, of the first use
	items []view.Hint
}

// newHints has room for all hints at once. What is made during a pass lies among the garbage of
// comparing, and would keep the memory around it.
func (s *Set) newHints() *hints {
	return &hints{kinds: make([]*view.Kind, len(s.kinds)), items: make([]view.Hint, len(s.items))}
}

// hintsOf returns the hints for these views of the set's kinds. The items of a set lie one after the
// other, and so do their records: with hints a pass over a million objects reads memory in order.
func (s *Set) hintsOf(kinds []*view.Kind) []view.Hint {
	found := s.hints.Load()
	for {
		found.once.Do(func() { copy(found.kinds, kinds) })
		if slices.Equal(found.kinds, kinds) {
			return found.items
		}
		found = s.newHints() // those before are of another Live
		s.hints.Store(found)
	}
}

// hint returns the hint of an item, nil if it is none of the set's.
func (p *pass) hint(it *item) *view.Hint {
	if it.number == 0 {
		return nil
	}
	return &p.hints[it.number-1]
}

// run is items of one kind that follow each other.
type run struct{ group, begin, end int }

// statement yields the items of one kind of a set, with their hints. A prune has one for all kinds.
type statement struct {
	set     *Set
	hints   []view.Hint
	group   int
	run, at int
}

// of begins with the items of another kind.
func (s *statement) of(group int) { s.group, s.run, s.at = group, 0, 0 }

// next returns the next item of the kind; false: there is none.
func (s *statement) next() (view.Name, *view.Hint, bool) {
	for ; s.run < len(s.set.runs); s.run++ {
		run := s.set.runs[s.run]
		s.at = max(s.at, run.begin)
		if i := s.at; run.group == s.group && i < run.end {
			s.at++
			return s.set.items[i].at, &s.hints[i], true
		}
	}
	return view.Name{}, nil, false
}

// kindsOf returns the views of the set's kinds, nil for one that is not among all.
func (s *Set) kindsOf(all []*view.Kind) []*view.Kind {
	kinds := make([]*view.Kind, len(s.kinds))
	for i, kind := range s.kinds {
		if at := slices.IndexFunc(all, func(v *view.Kind) bool { return v.GroupKind() == kind }); at >= 0 {
			kinds[i] = all[at]
		}
	}
	return kinds
}
