package diff

import (
	"maps"
	"slices"

	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v4/value"
)

// lists compares lists that are merged by item.
func (w *walker) lists(at place, desired, live []any) {
	var ordered []int
	stated := map[*node]bool{}
	for i, element := range w.elements(at, desired, live) {
		item := at.item(element)
		if item.ours != nil {
			stated[item.ours] = true
		}
		j := at.find(live, element)
		if j < 0 {
			w.compare(item, desired[i], absent{})
			continue
		}
		ordered = append(ordered, j)
		if item.ours != nil && !item.ours.member && !item.whole {
			w.report(item, Taken, desired[i], live[j])
			continue
		}
		w.compare(w.releaseKeys(item, element, desired[i], live[j]), desired[i], live[j])
	}
	if at.ours != nil {
		left := slices.DeleteFunc(slices.Clone(at.ours.items), func(n *node) bool { return stated[n] })
		w.giveUpItems(at, live, left)
	}
	if !slices.IsSorted(ordered) {
		w.report(at, Reordered, w.itemNames(at, desired), w.itemNames(at, live))
	}
}

// releaseKeys gives up the parts of an item's key that the desired item leaves to
// their default, and returns the item's place without them: they stay with the
// item.
func (w *walker) releaseKeys(item place, element fieldpath.PathElement, desired, live any) place {
	stated, ok := desired.(map[string]any)
	have, isMap := live.(map[string]any)
	if item.ours == nil || element.Key == nil || !ok || !isMap {
		return item
	}
	left := maps.Clone(item.ours.fields)
	for _, part := range *element.Key {
		if _, ok := stated[part.Name]; !ok && left[part.Name] != nil {
			w.report(item.field(part.Name), Released, absent{}, have[part.Name])
			delete(left, part.Name)
		}
	}
	item.ours = &node{at: item.ours.at, member: item.ours.member, fields: left, items: item.ours.items}
	return item
}

// giveUpItems reports the items that we own and no longer state.
func (w *walker) giveUpItems(at place, live []any, owned []*node) {
	for _, n := range owned {
		if i := indexOf(live, n.at); i >= 0 {
			w.compare(at.item(n.at), absent{}, live[i])
		}
	}
}

// itemNames returns what identifies each item: its key or itself.
func (w *walker) itemNames(at place, items []any) any {
	found := make([]any, len(items))
	for i, element := range w.elements(at, items, nil) {
		found[i] = formatPath(fieldpath.Path{element})
	}
	return found
}

// elements returns the path element of each desired item. What an item leaves
// out of its key is found where only one live or owned item fits.
func (w *walker) elements(at place, desired, live []any) []fieldpath.PathElement {
	names := at.keyNames()
	found := make([]fieldpath.PathElement, len(desired))
	if len(names) == 0 {
		for i, item := range desired {
			v := value.NewValueInterface(item)
			found[i] = fieldpath.PathElement{Value: &v}
		}
		return found
	}
	var known []fieldpath.PathElement
	if at.ours != nil {
		for _, n := range at.ours.items {
			if n.at.Key != nil {
				known = append(known, n.at)
			}
		}
	}
	owned := len(known)
	for _, item := range live {
		known = append(known, keyOf(item, names))
	}
	taken := func(element fieldpath.PathElement) bool {
		return slices.ContainsFunc(found, func(other fieldpath.PathElement) bool { return other.Key != nil && other.Equals(element) })
	}
	for i, item := range desired {
		if element := keyOf(item, names); len(*element.Key) == len(names) {
			found[i] = element
		}
	}
	for i, item := range desired {
		if found[i].Key != nil {
			continue
		}
		found[i] = w.completeKey(keyOf(item, names), known, owned, taken)
		if len(*found[i].Key) == 0 {
			found[i] = fieldpath.PathElement{Index: &i}
		}
	}
	return found
}

// completeKey completes a partial key with its defaults. For applied items the owned
// elements show the full key; they come first in known. Otherwise, where keys have an
// IP protocol, the default is TCP, the only default of keys in Kubernetes; elsewhere it
// is the first element that fits, ours before others.
func (w *walker) completeKey(
	partial fieldpath.PathElement,
	known []fieldpath.PathElement,
	owned int,
	taken func(fieldpath.PathElement) bool,
) fieldpath.PathElement {
	fits := func(element fieldpath.PathElement) bool {
		return element.Key != nil && !taken(element) && contains(*element.Key, *partial.Key)
	}
	i := slices.IndexFunc(known, fits)
	if i < 0 {
		return partial
	}
	complete := withProtocol(partial)
	if ours := w.applied && i < owned; !ours && sameNames(*known[i].Key, *complete.Key) && transport(known) {
		return complete
	}
	return known[i]
}

// withProtocol adds the protocol TCP to a key.
func withProtocol(partial fieldpath.PathElement) fieldpath.PathElement {
	key := append(slices.Clone(*partial.Key), value.Field{Name: "protocol", Value: value.NewValueInterface("TCP")})
	key.Sort()
	return fieldpath.PathElement{Key: &key}
}

// sameNames reports whether keys, which are sorted, have the same fields.
func sameNames(a, b value.FieldList) bool {
	return slices.EqualFunc(a, b, func(x, y value.Field) bool { return x.Name == y.Name })
}

// transport reports whether elements have a protocol in their key that is one of
// those that ports have.
func transport(elements []fieldpath.PathElement) bool {
	for _, element := range elements {
		for _, part := range *element.Key {
			if part.Name != "protocol" {
				continue
			}
			switch part.Value.Unstructured() {
			case "TCP", "UDP", "SCTP":
			default:
				return false
			}
		}
	}
	return true
}

// contains reports whether a key has all fields of another.
func contains(key, part value.FieldList) bool {
	for _, want := range part {
		if !slices.ContainsFunc(key, func(have value.Field) bool {
			return have.Name == want.Name && value.Equals(have.Value, want.Value)
		}) {
			return false
		}
	}
	return true
}

// keyNames returns the names of the key fields of the list at a place, nil when
// it has none.
func (at place) keyNames() []string {
	find := func(n *node) []string {
		if n == nil || len(n.items) == 0 || n.items[0].at.Key == nil {
			return nil
		}
		var names []string
		for _, part := range *n.items[0].at.Key {
			names = append(names, part.Name)
		}
		return names
	}
	if names := find(at.ours); names != nil {
		return names
	}
	for _, c := range at.other {
		if names := find(c.node); names != nil {
			return names
		}
	}
	return nil
}

// keyOf returns the key of a list item, as far as the item states it.
func keyOf(item any, names []string) fieldpath.PathElement {
	key := value.FieldList{}
	fields, _ := item.(map[string]any)
	for _, name := range names {
		if v, ok := fields[name]; ok {
			key = append(key, value.Field{Name: name, Value: value.NewValueInterface(v)})
		}
	}
	key.Sort()
	return fieldpath.PathElement{Key: &key}
}

// indexOf returns the index of the item that a path element names, -1 if there
// is none.
func indexOf(items []any, element fieldpath.PathElement) int {
	return slices.IndexFunc(items, func(item any) bool { return names(element, item) == exactly })
}

// find returns the index of the live item that a desired one is, -1 if there is
// none: so for one that leaves out a part of its key which nothing completes.
func (at place) find(live []any, element fieldpath.PathElement) int {
	if element.Key != nil && len(*element.Key) < len(at.keyNames()) {
		return -1
	}
	return indexOf(live, element)
}

// contents compares lists without known keys: by the names of their items if all have
// one, else by index, else as a whole.
func (w *walker) contents(at place, desired, live []any) {
	element := func(i int) fieldpath.PathElement { return fieldpath.PathElement{Index: &i} }
	index := func(i int) int { return i }
	switch named := namedItems(live); {
	case named != nil && namedItems(desired) != nil:
		element = func(i int) fieldpath.PathElement { return keyOf(desired[i], []string{"name"}) }
		index = func(i int) int {
			name, _ := desired[i].(map[string]any)["name"].(string)
			if j, ok := named[name]; ok {
				return j
			}
			return -1
		}
	case len(desired) != len(live):
		w.report(at, Changed, desired, live)
		return
	}
	for i, item := range desired {
		if j := index(i); j >= 0 {
			w.compare(at.item(element(i)), item, live[j])
		} else {
			w.compare(at.item(element(i)), item, absent{})
		}
	}
}

// namedItems returns the index of each item by its name, nil unless all have one
// of their own.
func namedItems(items []any) map[string]int {
	if len(items) == 0 {
		return nil
	}
	found := make(map[string]int, len(items))
	for i, item := range items {
		fields, _ := item.(map[string]any)
		name, ok := fields["name"].(string)
		if _, twice := found[name]; !ok || twice {
			return nil
		}
		found[name] = i
	}
	return found
}
