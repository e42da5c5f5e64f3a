package diff

import (
	"slices"

	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
)

// Stated returns the fields of a set, such as [Owned] gives, that an object states,
// with whatever value: a decoded JSON object, of which null states nothing. Lists
// are read as [Covers] reads them.
func Stated(object map[string]any, owned *fieldpath.Set) *fieldpath.Set {
	s := statement{&fieldpath.Set{}}
	s.element(tree(owned), nil, object)
	return s.found
}

// statement walks an object along an owned set and collects the members that it
// meets.
type statement struct{ found *fieldpath.Set }

func (s statement) element(owned *node, at fieldpath.Path, v any) {
	if owned == nil || v == nil {
		return
	}
	if owned.member {
		s.found.Insert(at.Copy())
	}
	switch v := v.(type) {
	case map[string]any:
		for key, child := range v {
			s.element(owned.fields[key], append(at, fieldpath.PathElement{FieldName: &key}), child)
		}
	case []any:
		s.list(owned.items, at, v)
	}
}

// list takes, for each item, the element that it names in full, or else the only one
// left that fits.
func (s statement) list(owned []*node, at fieldpath.Path, items []any) {
	left := slices.Clone(owned)
	take := func(i int, item any) {
		s.element(left[i], append(at, left[i].at), item)
		left = slices.Delete(left, i, i+1)
	}
	var partial []any
	for _, item := range items {
		if i := slices.IndexFunc(left, func(n *node) bool { return names(n.at, item) == exactly }); i >= 0 {
			take(i, item)
			continue
		}
		partial = append(partial, item)
	}
	for _, item := range partial {
		fits := func(n *node) bool { return names(n.at, item) == partly }
		if i := slices.IndexFunc(left, fits); i >= 0 && !slices.ContainsFunc(left[i+1:], fits) {
			take(i, item)
		}
	}
}
