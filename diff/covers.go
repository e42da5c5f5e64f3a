package diff

import (
	"bytes"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v4/value"
)

// Owned parses the field set of a managedFields entry.
func Owned(entry *metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	set := &fieldpath.Set{}
	if err := set.FromJSON(bytes.NewReader(entry.FieldsV1.Raw)); err != nil {
		return nil, fmt.Errorf("managedFields of %q: %w", entry.Manager, err)
	}
	return set, nil
}

// Covers reports whether a manager owns exactly the fields that a desired object
// states: every stated field, and no other.
//
// The desired object is a decoded JSON object, as in unstructured.Unstructured.
// No schema is needed, because the owned set shows how each list is merged:
// elements k:{...} mean a list with those keys, v: a set of values, and a list
// that is itself a member is atomic. A key field that the desired item leaves
// out (a defaulted protocol) matches if one candidate only is left.
//
// A field that the server ignores in an apply, such as status where it is a
// subresource, is not owned, so Covers is never true for an object that states one.
// (Fields that the schema does not know are refused.)
func Covers(owned *fieldpath.Set, desired map[string]any) bool {
	root := tree(owned)
	c := coverage{}
	for key, v := range desired {
		switch key {
		case "apiVersion", "kind":
		case "metadata":
			metadata, ok := v.(map[string]any)
			if !ok || !c.metadata(root.fields[key], metadata) {
				return false
			}
		default:
			if !c.element(root.fields[key], v) {
				return false
			}
		}
	}
	return c.members == owned.Size()
}

// node is one element of an owned set, indexed for lookups.
type node struct {
	at     fieldpath.PathElement
	member bool
	fields map[string]*node
	items  []*node
}

func tree(owned *fieldpath.Set) *node {
	root := &node{}
	owned.Iterate(func(path fieldpath.Path) {
		n := root
		for _, at := range path {
			n = n.child(at)
		}
		n.member = true
	})
	return root
}

func (n *node) child(at fieldpath.PathElement) *node {
	if at.FieldName != nil {
		child := n.fields[*at.FieldName]
		if child == nil {
			child = &node{at: at}
			if n.fields == nil {
				n.fields = map[string]*node{}
			}
			n.fields[*at.FieldName] = child
		}
		return child
	}
	// The iteration is depth first: an element's paths follow each other.
	for _, item := range slices.Backward(n.items) {
		if item.at.Equals(at) {
			return item
		}
	}
	child := &node{at: at}
	n.items = append(n.items, child)
	return child
}

// coverage walks a desired object along an owned set and counts the members
// that it meets. Owned members that are not stated are missing from the count.
type coverage struct{ members int }

// metadata leaves out the fields that the server never counts as owned.
func (c *coverage) metadata(owned *node, metadata map[string]any) bool {
	for key, v := range metadata {
		if !unowned(key) && (owned == nil || !c.element(owned.fields[key], v)) {
			return false
		}
	}
	return true
}

// element looks at one field or list item that the desired object states.
func (c *coverage) element(owned *node, v any) bool {
	if owned == nil {
		return statesNothing(v)
	}
	if owned.member {
		c.members++
	}
	if len(owned.fields) == 0 && len(owned.items) == 0 {
		return owned.member || statesNothing(v)
	}
	switch v := v.(type) {
	case map[string]any:
		for key, child := range v {
			if !c.element(owned.fields[key], child) {
				return false
			}
		}
		return true
	case []any:
		return c.list(owned.items, v)
	default:
		return false
	}
}

// list finds the owned element of each item: first those that an item names in
// full, then, for items that leave a key field to its default, the only one left
// that fits.
func (c *coverage) list(owned []*node, items []any) bool {
	if len(owned) != len(items) {
		return false
	}
	left := slices.Clone(owned)
	var partial []any
	for _, item := range items {
		i := slices.IndexFunc(left, func(n *node) bool { return n.member && names(n.at, item) == exactly })
		if i < 0 {
			partial = append(partial, item)
			continue
		}
		if !c.element(left[i], item) {
			return false
		}
		left = slices.Delete(left, i, i+1)
	}
	for _, item := range partial {
		fits := func(n *node) bool { return n.member && names(n.at, item) == partly }
		i := slices.IndexFunc(left, fits)
		if i < 0 || slices.ContainsFunc(left[i+1:], fits) || !c.element(left[i], item) {
			return false
		}
		left = slices.Delete(left, i, i+1)
	}
	return true
}

// match returns how well a path element names a list item.
type match int

const (
	not match = iota
	partly
	exactly
)

// names compares a list item with a path element. Partly means that the item
// leaves out a key field, whose default is not known here.
func names(at fieldpath.PathElement, item any) match {
	switch {
	case at.Value != nil && value.Equals(*at.Value, value.NewValueInterface(item)):
		return exactly
	case at.Key != nil:
		return namesKey(*at.Key, item)
	default:
		return not
	}
}

func namesKey(key value.FieldList, item any) match {
	fields, ok := item.(map[string]any)
	if !ok {
		return not
	}
	found := exactly
	for _, part := range key {
		v, stated := fields[part.Name]
		switch {
		case !stated:
			found = partly
		case !value.Equals(part.Value, value.NewValueInterface(v)):
			return not
		}
	}
	return found
}

// statesNothing reports whether a value contains no field that a server could
// count as owned: an empty list, or a map of such.
func statesNothing(v any) bool {
	switch v := v.(type) {
	case []any:
		return len(v) == 0
	case map[string]any:
		if len(v) == 0 {
			return false // an empty map is a member of the set
		}
		for _, child := range v {
			if !statesNothing(child) {
				return false
			}
		}
		return true
	default:
		return false
	}
}
