package apply

import (
	"sync"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
)

// hints are where the records of a set's items were found last, in the views of its kinds.
type hints struct {
	once  sync.Once
	kinds []*view.Kind // by item.group, of the first use
	items []view.Hint
}

// run is items of one kind that follow each other.
type run struct{ group, begin, end int }

// newHints has room for all hints at once. What is made during a pass lies among the garbage of
// comparing, and would keep the memory around it.
func newHints(kinds, items int) *hints {
	return &hints{kinds: make([]*view.Kind, kinds), items: make([]view.Hint, items)}
}
