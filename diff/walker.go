package diff

import (
	"maps"
	"slices"
)

// walker goes through the desired object, the live one and the owned sets side
// by side.
type walker struct {
	applied    bool
	structural bool
	builtin    bool // the server knows the kind's Go types: it rewrites values and drops empty ones
	secret     bool
	ours       *node
	others     []entry
	fields     []Field
}

// absent is the value of a missing field; nil is null.
type absent struct{}

func newWalker(desired, live map[string]any, options Options, entries []entry) *walker {
	w := &walker{
		applied:    options.Applied,
		structural: !Tracked(live),
		builtin:    builtin(desired),
		secret:     secret(desired) || secret(live),
	}
	for _, e := range entries {
		if w.ours == nil && e.Manager == options.Manager && e.Operation == "Apply" && e.Subresource == "" {
			w.ours = e.owned
			continue
		}
		w.others = append(w.others, e)
	}
	return w
}

// object compares everything except fields that the server never counts as owned.
func (w *walker) object(desired, live map[string]any) {
	root := w.root()
	for _, name := range w.names(root, desired) {
		at := root.field(name)
		switch {
		case name == "apiVersion" || name == "kind":
		case name == "status" && at.statusOnly():
		case name == "stringData" && w.secret:
			w.stringData(root, desired, live)
		case name == "metadata":
			d, _ := desired[name].(map[string]any)
			l, _ := live[name].(map[string]any)
			for _, name := range w.names(at, d) {
				if !unowned(name) {
					w.compare(at.field(name), lookup(d, name), lookup(l, name))
				}
			}
		default:
			w.compare(at, lookup(desired, name), lookup(live, name))
		}
	}
}

// root returns the place of the object itself.
func (w *walker) root() place {
	root := place{ours: w.ours}
	for i := range w.others {
		root.other = append(root.other, claim{&w.others[i].Writer, w.others[i].owned})
	}
	return root
}

// unowned reports whether a field of metadata is one that the server never
// counts as owned.
func unowned(name string) bool {
	switch name {
	case "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink":
		return true
	}
	return false
}

// names returns the fields that the desired object states or that we own, in
// order.
func (w *walker) names(at place, desired map[string]any) []string {
	names := slices.Collect(maps.Keys(desired))
	if at.ours != nil {
		for name := range at.ours.fields {
			if _, stated := desired[name]; !stated {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

func lookup(object map[string]any, name string) any {
	if v, ok := object[name]; ok {
		return v
	}
	return absent{}
}

// compare looks at one place. Either value may be absent.
func (w *walker) compare(at place, desired, live any) {
	switch {
	case desired == absent{} && live == absent{}:
	case desired == absent{}:
		w.giveUp(at, live)
	case live == absent{}:
		if !w.void(at, desired) {
			w.report(at, Missing, desired, live)
		}
	default:
		w.both(at, desired, live)
	}
}

func (w *walker) both(at place, desired, live any) {
	kind := at.kind()
	switch d := desired.(type) {
	case map[string]any:
		if l, ok := live.(map[string]any); ok && kind != atomic {
			w.maps(at, d, l)
			return
		}
	case []any:
		l, ok := live.([]any)
		if ok && len(d) == 0 && len(l) == 0 && !at.appliedWhole() && (w.applied || kind == unknown) {
			return // of a list that is merged by item an apply owns the items alone
		}
		if ok && (kind == keyed || kind == set) {
			w.lists(at, d, l)
			return
		}
		if ok && w.structural {
			w.contents(at, d, l)
			return
		}
	}
	switch owned := at.owned(); {
	case owned && w.applied && !w.lacks(live, desired):
	case (owned && w.builtin || w.structural) && empty(desired) && empty(live):
	case !w.equal(at.path, desired, live):
		w.report(at, Changed, desired, live)
	case !owned && !w.structural && !statesLists(desired):
		w.report(at, Taken, desired, live)
	}
}

// statesLists reports whether a map states empty lists and nothing else: another
// owner of such a map, if it is a struct, owns it as an empty one, and an apply
// nothing of it.
func statesLists(v any) bool {
	_, ok := v.(map[string]any)
	return ok && statesNothing(v)
}

// lacks reports whether a map has lost what it was applied with. Of a map that we
// own as a whole nothing is lost, however the server writes it; but a map that
// is merged by field looks the same once others have taken all its fields.
func (w *walker) lacks(live, desired any) bool {
	d, _ := desired.(map[string]any)
	l, _ := live.(map[string]any)
	for name, v := range d {
		if _, ok := l[name]; !ok && v != nil && (!w.builtin || !empty(v)) {
			return true
		}
	}
	return false
}

func (w *walker) maps(at place, desired, live map[string]any) {
	if len(desired) == 0 && len(live) == 0 && !at.owned() && !w.structural {
		w.report(at, Taken, desired, live)
		return
	}
	for _, name := range w.names(at, desired) {
		w.compare(at.field(name), lookup(desired, name), lookup(live, name))
	}
}

// giveUp reports a value that we may own and no longer state.
func (w *walker) giveUp(at place, live any) {
	switch {
	case at.ours == nil:
	case at.ours.member && !at.kept():
		w.report(at, Removed, absent{}, live)
	case at.ours.leaf():
		w.report(at, Released, absent{}, live)
	default:
		switch live := live.(type) {
		case map[string]any:
			for _, name := range w.names(at, nil) {
				w.compare(at.field(name), absent{}, lookup(live, name))
			}
		case []any:
			w.giveUpItems(at, live, at.ours.items)
		}
	}
}

// void reports whether the server keeps no trace of a value that we have
// applied: so that the live object may well lack it.
func (w *walker) void(at place, desired any) bool {
	owned := at.owned()
	switch d := desired.(type) {
	case nil:
		return true
	case []any:
		if len(d) == 0 {
			return owned || w.builtin || w.structural
		}
	case map[string]any:
		for name, v := range d {
			if !w.void(at.field(name), v) {
				return owned && w.applied
			}
		}
		return len(d) > 0 || owned && (w.builtin || w.applied) || w.structural
	default:
		if empty(d) && (owned && w.builtin || w.structural) {
			return true
		}
	}
	return owned && w.applied
}

// report adds a field.
func (w *walker) report(at place, difference Difference, desired, live any) {
	f := Field{
		Path: formatPath(at.path), Difference: difference, Structural: w.structural,
		Desired: w.value(at.path, desired), Live: w.value(at.path, live),
	}
	if difference != Missing && difference != Reordered {
		for _, c := range at.other {
			f.By = append(f.By, *c.by)
		}
	}
	w.fields = append(w.fields, f)
}
