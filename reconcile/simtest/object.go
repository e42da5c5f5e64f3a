package simtest

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
)

// Object is a Kubernetes object as JSON decodes it: maps, slices, strings,
// float64, bool and nil. An unstructured.Unstructured holds the same type.
type Object map[string]any

// Name returns metadata.name.
func (o Object) Name() string { return o.text("metadata", "name") }

// Namespace returns metadata.namespace, empty for an object without one.
func (o Object) Namespace() string { return o.text("metadata", "namespace") }

// UID returns metadata.uid.
func (o Object) UID() string { return o.text("metadata", "uid") }

// ResourceVersion returns metadata.resourceVersion.
func (o Object) ResourceVersion() string { return o.text("metadata", "resourceVersion") }

// Deleting reports whether the object has a deletionTimestamp.
func (o Object) Deleting() bool { return o.text("metadata", "deletionTimestamp") != "" }

// Label returns the value of a label, empty if it is not set.
func (o Object) Label(name string) string { return o.text("metadata", "labels", name) }

// Owner returns the UID of the ownerReference with controller: true, empty if
// there is none.
func (o Object) Owner() string {
	for _, r := range o.owners() {
		if r.Field("controller") == true {
			return r.text("uid")
		}
	}
	return ""
}

// Field returns the value at a path of field names, nil if there is none.
func (o Object) Field(path ...string) any {
	var value any = map[string]any(o)
	for _, name := range path {
		inner, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = inner[name]
	}
	return value
}

// Set sets the value at a path of field names. It makes the maps on the way, in
// place of values that are no maps.
func (o Object) Set(value any, path ...string) {
	inner := map[string]any(o)
	for _, name := range path[:len(path)-1] {
		next, ok := inner[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			inner[name] = next
		}
		inner = next
	}
	inner[path[len(path)-1]] = value
}

func (o Object) text(path ...string) string {
	s, _ := o.Field(path...).(string)
	return s
}

func (o Object) list(path ...string) []any {
	l, _ := o.Field(path...).([]any)
	return l
}

func (o Object) number(path ...string) float64 {
	n, _ := o.Field(path...).(float64)
	return n
}

func (o Object) owners() []Object {
	var all []Object
	for _, each := range o.list("metadata", "ownerReferences") {
		if r, ok := each.(map[string]any); ok {
			all = append(all, r)
		}
	}
	return all
}

// drop removes the field at a path.
func (o Object) drop(path ...string) {
	if inner, ok := o.Field(path[:len(path)-1]...).(map[string]any); ok {
		delete(inner, path[len(path)-1])
	}
}

// keep makes the field at a path what it is in another object.
func (o Object) keep(from Object, path ...string) {
	if value := from.Field(path...); value != nil {
		o.Set(value, path...)
		return
	}
	o.drop(path...)
}

// tidy drops what no stored object has: nulls, empty maps and empty lists of the
// metadata, and of a built-in kind those of the data.
func (k Kind) tidy(o Object) {
	about, _ := o["metadata"].(map[string]any)
	maps.DeleteFunc(about, func(_ string, value any) bool { return empty(value) })
	if k.custom() {
		return
	}
	maps.DeleteFunc(o, func(name string, value any) bool {
		return value == nil || (name == "data" || name == "binaryData") && empty(value)
	})
}

// read returns a copy of a stored object as a server reads it: without the empty maps that an
// apply may leave in the metadata of a custom resource.
func (k Kind) read(o Object) Object {
	read := clone(o)
	if read != nil {
		k.tidy(read)
	}
	return read
}

// copy returns a copy as JSON would decode it.
func (o Object) copy() (Object, error) {
	data, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	return decode(data)
}

func encode(o Object) ([]byte, error) { return json.Marshal(o) }

func decode(data []byte) (Object, error) {
	var o Object
	err := json.NewDecoder(bytes.NewReader(data)).Decode(&o)
	return o, err
}

// clone copies what JSON has decoded.
func clone[T any](value T) T {
	copied, _ := cloneValue(value).(T)
	return copied
}

func cloneValue(value any) any {
	switch v := value.(type) {
	case Object:
		return Object(cloneMap(v))
	case map[string]any:
		return cloneMap(v)
	case []any:
		all := slices.Clone(v)
		for i := range all {
			all[i] = cloneValue(all[i])
		}
		return all
	default:
		return v
	}
}

func cloneMap(m map[string]any) map[string]any {
	all := maps.Clone(m)
	for name := range all {
		all[name] = cloneValue(all[name])
	}
	return all
}

// equal compares without the fields that each write changes.
func equal(a, b Object) bool {
	a, b = clone(a), clone(b)
	for _, o := range []Object{a, b} {
		o.drop("metadata", "resourceVersion")
		for _, each := range o.list("metadata", "managedFields") {
			if entry, ok := each.(map[string]any); ok {
				delete(entry, "time")
			}
		}
	}
	return reflect.DeepEqual(a, b)
}

// movesAlone reports whether a write changed managedFields and no other value.
func (c Change) movesAlone() bool {
	if c.Before == nil || c.After == nil {
		return false
	}
	before, after := clone(c.Before), clone(c.After)
	for _, o := range []Object{before, after} {
		o.drop("metadata", "managedFields")
	}
	return equal(before, after)
}

// same reports whether two values of JSON are equal. No value, an empty map and an
// empty list are the same.
func same(a, b any) bool {
	if empty(a) && empty(b) {
		return true
	}
	return reflect.DeepEqual(a, b)
}

func empty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	default:
		return false
	}
}

// shallow copies the outermost map alone.
func shallow(o Object) Object { return maps.Clone(o) }

// merge applies a JSON merge patch (RFC 7386) to object, in place.
func merge(object, patch map[string]any) map[string]any {
	if object == nil {
		object = map[string]any{}
	}
	for name, value := range patch {
		switch v := value.(type) {
		case nil:
			delete(object, name)
		case map[string]any:
			inner, _ := object[name].(map[string]any)
			object[name] = merge(inner, v)
		default:
			object[name] = value
		}
	}
	return object
}
