package diff

import (
	"cmp"
	"maps"
	"slices"

	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
)

// AddedByOthers returns the items that other managers have added to lists of a live object in which
// manager owns an item, such as a container that an injector puts beside ours, sorted by
// path. An apply leaves them where they are, so [Fields] does not return them. Lists of the
// metadata and of the status are left out: other managers are meant to add to these.
//
// Live is a decoded JSON object, and is only read. Its metadata is enough, as in a
// PartialObjectMetadata: then no field has a value. A value of a Secret is [Masked].
//
// The error names the entry of managedFields that cannot be read.
func AddedByOthers(live map[string]any, manager string) ([]Field, error) {
	entries, err := readEntries(live)
	if err != nil {
		return nil, err
	}
	w := newWalker(nil, live, Options{Manager: manager}, entries)
	root := w.root()
	if root.ours == nil {
		return nil, nil
	}
	for _, name := range slices.Sorted(maps.Keys(root.ours.fields)) {
		if name != "metadata" && name != "status" {
			w.added(root.field(name), lookup(live, name))
		}
	}
	slices.SortFunc(w.fields, func(a, b Field) int { return cmp.Compare(a.Path, b.Path) })
	return w.fields, nil
}

// added reports the items of others in lists at or below a place in which we own something.
func (w *walker) added(at place, live any) {
	for _, name := range slices.Sorted(maps.Keys(at.ours.fields)) {
		w.added(at.field(name), child(fieldpath.PathElement{FieldName: &name}, live))
	}
	for _, item := range at.ours.items {
		w.added(at.item(item.at), child(item.at, live))
	}
	if len(at.ours.items) == 0 {
		return
	}
	var seen fieldpath.PathElementSet
	for _, c := range at.other {
		if c.node == nil {
			continue
		}
		for _, item := range c.node.items {
			if next := at.item(item.at); next.ours == nil && !seen.Has(item.at) {
				seen.Insert(item.at)
				w.report(next, Added, absent{}, child(item.at, live))
			}
		}
	}
}
