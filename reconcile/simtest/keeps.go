package simtest

import (
	"fmt"
	"slices"
	"strings"
)

// KeepsOthers is a Scenario.Check: no write of the program takes from an object of a resource what
// another client or an actor has added to its labels, annotations, data or spec, and the program has
// never stated. It has stated what its own writes have added and, where there are managedFields, what
// its managers own, and all that it applies. It may delete the object. The check keeps what it has
// seen, so make it for each world.
func KeepsOthers(resource string) func(*World, Change) error {
	seen := map[string]*authors{}
	return func(w *World, c Change) error {
		o := c.After
		if o == nil {
			delete(seen, c.Before.UID())
			return nil
		}
		if k, err := w.server.keyOf(o); err != nil || qualified(k.resource, k.group) != resource {
			return err
		}
		a := seen[o.UID()]
		if a == nil {
			a = &authors{program: map[string]bool{}, others: map[string]bool{}, names: map[string]bool{}}
			seen[o.UID()] = a
		}
		if lost := a.learn(c); len(lost) > 0 && !o.Deleting() {
			return fmt.Errorf("%s: it takes away %s, which another client has added", c.Request, lost[0])
		}
		return nil
	}
}

// authors records which fields of an object the program and other clients have added, and the
// names of these clients.
type authors struct{ program, others, names map[string]bool }

// learn takes a change into account, and returns what it takes from others.
func (a *authors) learn(c Change) []string {
	before, after := fieldsOf(c.Before), fieldsOf(c.After)
	if c.By == byProgram {
		var lost []string
		for field := range a.others {
			if before[field] && !after[field] {
				delete(a.others, field)
				if !a.owned(c.Before, field, "") && !a.owned(c.After, field, "Apply") {
					lost = append(lost, readable(field))
				}
			}
		}
		for field := range after {
			if !before[field] {
				a.program[field] = true
				delete(a.others, field)
			}
		}
		slices.Sort(lost)
		return lost
	}
	if c.Before == nil || slices.Contains([]string{"user", collector, backup}, c.By) {
		return nil
	}
	a.names[c.By] = true
	for field := range after {
		if !before[field] && !a.program[field] {
			a.others[field] = true
		}
	}
	return nil
}

// owned reports whether managedFields say that the program owns a field, by an operation or, if
// that is empty, by any.
func (a *authors) owned(o Object, field, operation string) bool {
	return slices.ContainsFunc(o.maps("metadata", "managedFields"), func(entry Object) bool {
		if a.names[entry.text("manager")] || operation != "" && entry["operation"] != operation {
			return false
		}
		inner, _ := entry["fieldsV1"].(map[string]any)
		for element := range strings.SplitSeq(field, separator) {
			next, ok := inner[element].(map[string]any)
			if !ok {
				return false
			}
			if len(next) == 0 { // the field, or one that is owned as a whole
				return true
			}
			inner = next
		}
		return inner["."] != nil
	})
}

// separator is between the elements of a path, which are those of managedFields.
const separator = "\x00"

// fieldsOf returns the paths of what others may add to an object, and each item of a list that has
// a name.
func fieldsOf(o Object) map[string]bool {
	all := map[string]bool{}
	for _, path := range [][]string{{"metadata", "labels"}, {"metadata", "annotations"}, {"data"}, {"spec"}} {
		if value := o.Field(path...); value != nil {
			walk(value, "f:"+strings.Join(path, separator+"f:"), all)
		}
	}
	return all
}

func walk(value any, path string, all map[string]bool) {
	switch v := value.(type) {
	case map[string]any:
		for name, each := range v {
			walk(each, path+separator+"f:"+name, all)
		}
		return
	case []any:
		items := Object{"items": v}.maps("items")
		nameless := func(o Object) bool { return o.text("name") == "" }
		if len(v) == 0 || len(items) < len(v) || slices.ContainsFunc(items, nameless) {
			break
		}
		for _, o := range items {
			item := fmt.Sprintf(`%s%sk:{"name":%q}`, path, separator, o.text("name"))
			all[item] = true
			walk(map[string]any(o), item, all)
		}
		return
	}
	all[path] = true
}

// readable is a path as a person writes it.
func readable(field string) string {
	field = strings.TrimPrefix(strings.ReplaceAll(field, separator, "."), "f:")
	return strings.NewReplacer(".f:", ".", `.k:{"name":"`, "[", `"}`, "]").Replace(field)
}
