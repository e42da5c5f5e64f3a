package apply

import (
	"slices"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
)

// hints are where the records of a set's items were found last, in the views of its kinds.
type hints struct {
	kinds []*view.Kind // by item.group
	items []view.Hint
}

// hintsOf returns the hints for these views of the set's kinds. The items of a set lie one after the
// other, and so do their records: with hints a pass over a million objects reads memory in order.
func (s *Set) hintsOf(kinds []*view.Kind) []view.Hint {
	found := s.hints.Load()
	if found == nil || !slices.Equal(found.kinds, kinds) { // none yet, or those of another Live
		found = &hints{kinds, make([]view.Hint, len(s.items))}
		s.hints.Store(found)
	}
	return found.items
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
