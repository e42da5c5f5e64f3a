package diff

import (
	"maps"
	"slices"

	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
)

// Authors returns the fields of a live object that managers own, sorted by path, each with
// its value and its owners. It is for people: it shows which program wrote which field, and
// when. Live is a decoded JSON object, as in unstructured.Unstructured, and is only read.
// Difference and Desired of a [Field] are empty. A map or list that has owned parts is not a
// field of its own. A value of a Secret is [Masked].
//
// The error names the entry of managedFields that cannot be read.
func Authors(live map[string]any) ([]Field, error) {
	entries, err := readEntries(live)
	if err != nil {
		return nil, err
	}
	w := &walker{secret: secret(live)}
	found := map[string]*Field{}
	for i := range entries {
		entries[i].owned.leaves(nil, func(path fieldpath.Path) {
			name := formatPath(path)
			f := found[name]
			if f == nil {
				f = &Field{Path: name, Live: w.value(path, at(path, live))}
				found[name] = f
			}
			f.By = append(f.By, entries[i].Writer)
		})
	}
	fields := make([]Field, 0, len(found))
	for _, name := range slices.Sorted(maps.Keys(found)) {
		fields = append(fields, *found[name])
	}
	return fields, nil
}

// leaves calls visit with each owned path that has no owned path below it.
func (n *node) leaves(path fieldpath.Path, visit func(fieldpath.Path)) {
	if n.leaf() {
		visit(path)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(n.fields)) {
		n.fields[name].leaves(append(path[:len(path):len(path)], fieldpath.PathElement{FieldName: &name}), visit)
	}
	for _, item := range n.items {
		item.leaves(append(path[:len(path):len(path)], item.at), visit)
	}
}

// at returns the value at the path of a decoded JSON value, absent{} if there is none.
func at(path fieldpath.Path, value any) any {
	for _, element := range path {
		value = child(element, value)
	}
	return value
}

func child(element fieldpath.PathElement, value any) any {
	if element.FieldName != nil {
		object, _ := value.(map[string]any)
		return lookup(object, *element.FieldName)
	}
	list, _ := value.([]any)
	if i := indexOf(list, element); i >= 0 {
		return list[i]
	}
	return absent{}
}
