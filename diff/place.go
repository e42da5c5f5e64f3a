package diff

import (
	"slices"

	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
)

// place is one place in the desired object, the live one and the owned sets.
type place struct {
	path  fieldpath.Path
	ours  *node   // what we own at or below it
	whole bool    // we own an atomic value around it
	other []claim // other owners at, below or around it
	up    *place  // around it; nil for the object itself
}

// claim is what one of the other entries owns at or below a place. The node is
// nil where the entry owns an atomic value around it.
type claim struct {
	by   *Writer
	node *node
}

// field returns the place of a map's field.
func (at place) field(name string) place {
	return at.step(fieldpath.PathElement{FieldName: &name}, func(n *node) *node { return n.fields[name] })
}

// item returns the place of a list's item.
func (at place) item(element fieldpath.PathElement) place {
	return at.step(element, func(n *node) *node {
		if i := slices.IndexFunc(n.items, func(item *node) bool { return item.at.Equals(element) }); i >= 0 {
			return n.items[i]
		}
		return nil
	})
}

func (at place) step(element fieldpath.PathElement, child func(*node) *node) place {
	// Full slices: the places below one share what is before them.
	next := place{path: append(at.path[:len(at.path):len(at.path)], element), whole: at.whole, up: &at}
	// The owner of an empty map or list does not own what others put into it.
	around := at.kind() == atomic
	if at.ours != nil {
		next.ours = child(at.ours)
		next.whole = at.whole || around && at.ours.leaf()
	}
	for _, c := range at.other {
		if c.node == nil || around && c.node.leaf() {
			next.other = append(next.other, claim{by: c.by})
		} else if n := child(c.node); n != nil {
			next.other = append(next.other, claim{c.by, n})
		}
	}
	return next
}

// owned reports whether we own the value at the place itself.
func (at place) owned() bool {
	return at.whole || at.ours != nil && at.ours.member
}

// statusOnly reports whether status is a subresource that others write and we
// do not: the server ignores it in an apply.
func (at place) statusOnly() bool {
	return at.ours == nil && slices.ContainsFunc(at.other, func(c claim) bool { return c.by.Subresource == "status" })
}

// structure returns how the value at a place is merged.
type structure int

const (
	unknown  structure = iota
	atomic             // as a whole
	granular           // by field
	keyed              // a list, by the keys of its items
	set                // a list, by the values of its items
)

// kind reads from the owned sets how the value at a place is merged.
func (at place) kind() structure {
	found := unknown
	look := func(n *node) {
		switch {
		case n == nil:
			found = max(found, atomic)
		case len(n.fields) > 0:
			found = granular
		case len(n.items) > 0 && n.items[0].at.Key != nil:
			found = keyed
		case len(n.items) > 0 && n.items[0].at.Value != nil:
			found = set
		case n.member:
			found = max(found, atomic)
		}
	}
	if at.whole {
		look(nil)
	}
	if at.ours != nil {
		look(at.ours)
	}
	for _, c := range at.other {
		look(c.node)
	}
	return found
}

// appliedWhole reports whether an apply owns the value as a whole, or one around
// it.
func (at place) appliedWhole() bool {
	return at.owned() || slices.ContainsFunc(at.other, func(c claim) bool {
		return c.by.Operation == "Apply" && (c.node == nil || c.node.leaf())
	})
}

// leaf reports whether an owned value is owned as a whole.
func (n *node) leaf() bool {
	return n.member && len(n.fields) == 0 && len(n.items) == 0
}

// kept reports whether another owner keeps a value that we give up. An item of a
// list or of a map goes with all that is in it unless a manager owns the item
// itself; a field of a struct stays for what is in it.
func (at place) kept() bool {
	item := at.path[len(at.path)-1].FieldName == nil || !at.ours.leaf() || at.up.mapped()
	return slices.ContainsFunc(at.other, func(c claim) bool { return c.node == nil || c.node.member || !item })
}

// mapped reports whether the value at a place is seen to be a map, not a struct:
// an apply owns an item of a map beside what is in it, a field of a struct only
// when it is empty. (An update may own both.)
func (at place) mapped() bool {
	has := func(n *node) bool {
		for _, child := range n.fields {
			if child.member && !child.leaf() {
				return true
			}
		}
		return false
	}
	return at.ours != nil && has(at.ours) || slices.ContainsFunc(at.other, func(c claim) bool {
		return c.node != nil && c.by.Operation == "Apply" && has(c.node)
	})
}
