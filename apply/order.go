//trueup:pure

package apply

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// order gives each item its rank and sorts the items. Items that depend on themselves,
// or on an object that the set does not state, are removed and named in the error.
func (s *Set) order() error {
	byID := make(map[ID]*item, len(s.items))
	for i := range s.items {
		byID[s.items[i].id] = &s.items[i]
	}
	o := ordering{byID: byID, stated: s.Has, visiting: map[ID]bool{}}
	var errs []error
	for i := range s.items {
		if err := o.place(&s.items[i]); err != nil {
			s.ids[s.items[i].id] = invalid
			errs = append(errs, fmt.Errorf("%s: %w", s.items[i].id, err))
		}
	}
	s.items = slices.DeleteFunc(s.items, func(it item) bool { return s.ids[it.id] != applicable })
	slices.SortFunc(s.items, func(a, b item) int {
		if c := a.rank.compare(b.rank); c != 0 {
			return c
		}
		return a.id.Compare(b.id)
	})
	return errors.Join(errs...)
}

// ordering is a walk along the dependencies.
type ordering struct {
	byID     map[ID]*item
	stated   func(ID) bool // stated, applicable or not
	visiting map[ID]bool
	path     []ID
}

func (o *ordering) place(it *item) error {
	if it.placed || len(it.after) == 0 {
		it.placed = true
		return nil
	}
	o.visiting[it.id] = true
	o.path = append(o.path, it.id)
	defer func() {
		delete(o.visiting, it.id)
		o.path = o.path[:len(o.path)-1]
	}()
	at := it.rank
	for _, id := range it.after {
		need := o.byID[id]
		switch {
		case o.visiting[id]:
			return fmt.Errorf("depends on itself: %s", o.cycle(id))
		case need == nil && o.stated(id):
			continue // stated and not applicable: the pass holds this one back
		case need == nil:
			return fmt.Errorf("depends on %s, which the set does not state", id)
		}
		if err := o.place(need); err != nil {
			return fmt.Errorf("depends on %s: %w", id, err)
		}
		switch {
		case need.rank.stage > at.stage:
			at = rank{stage: need.rank.stage, depth: need.rank.depth + 1}
		case need.rank.stage == at.stage:
			at.depth = max(at.depth, need.rank.depth+1)
		}
	}
	it.rank, it.placed = at, true
	return nil
}

func (o *ordering) cycle(id ID) string {
	var b strings.Builder
	for _, at := range o.path[slices.Index(o.path, id):] {
		b.WriteString(at.String() + " -> ")
	}
	return b.String() + id.String()
}
