package servertest_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-9e1ffd66/trueup/diff"
)

// patched returns a copy of the content of live in which every difference has
// been settled: what an apply is to leave if Fields is right.
func patched(live map[string]any, fields []diff.Field) (any, error) {
	content := contentOf(live)
	for _, f := range fields {
		var desired any
		if f.Desired != "" {
			if err := json.Unmarshal([]byte(f.Desired), &desired); err != nil {
				return nil, err
			}
		}
		switch f.Difference {
		case diff.Changed, diff.Missing, diff.Taken:
			path := steps(f.Path)
			if last := &path[len(path)-1]; f.Difference == diff.Missing && last.item != nil {
				last.item = map[string]any{"": "no such item: added"}
			}
			content = edit(content, path, func(any, bool) (any, bool) { return desired, true })
		case diff.Released, diff.Reordered, diff.Added:
		case diff.Removed:
			content = edit(content, steps(f.Path), func(any, bool) (any, bool) { return nil, false })
		}
	}
	return content, nil
}

var stepPattern = regexp.MustCompile(
	`^(?:\.([A-Za-z0-9_$-]+)|\[("(?:[^"\\]|\\.)*")\]|\[=("(?:[^"\\]|\\.)*"|[^\]]*)\]|\[((?:[^"\]]|"(?:[^"\\]|\\.)*")*)\])`,
)

// step is one element of a path: the name of a field, or what an item contains
// or is.
type step struct {
	name string
	item any // map[string]any of its keys, or the value itself
}

func steps(path string) []step {
	var found []step
	for path != "" {
		m := stepPattern.FindStringSubmatch(path)
		if m == nil {
			panic("path " + path)
		}
		path = path[len(m[0]):]
		var s step
		switch {
		case m[1] != "":
			s.name = m[1]
		case m[2] != "":
			mustDecode(m[2], &s.name)
		case m[3] != "":
			mustDecode(m[3], &s.item)
		default:
			keys := map[string]any{}
			mustDecode("{"+regexp.MustCompile(`(^|,)([A-Za-z0-9_$-]+)=`).ReplaceAllString(m[4], `$1"$2":`)+"}", &keys)
			s.item = keys
		}
		found = append(found, s)
	}
	return found
}

func mustDecode(text string, into any) {
	if err := json.Unmarshal([]byte(text), into); err != nil {
		panic(fmt.Sprintf("%s: %v", text, err))
	}
}

func edit(v any, path []step, change func(any, bool) (any, bool)) any {
	at := path[0]
	next := func(old any, there bool) (any, bool) {
		if len(path) == 1 {
			return change(old, there)
		}
		return edit(old, path[1:], change), true
	}
	if at.item == nil {
		m, _ := v.(map[string]any)
		m = maps.Clone(m)
		if m == nil {
			m = map[string]any{}
		}
		old, there := m[at.name]
		if changed, keep := next(old, there); keep {
			m[at.name] = changed
		} else {
			delete(m, at.name)
		}
		return m
	}
	list, _ := v.([]any)
	list = slices.Clone(list)
	i := slices.IndexFunc(list, func(item any) bool { return is(item, at.item) })
	if i < 0 {
		if changed, keep := next(nil, false); keep {
			list = append(list, changed)
		}
		return list
	}
	if changed, keep := next(list[i], true); keep {
		list[i] = changed
		return list
	}
	return slices.Delete(list, i, i+1)
}

func is(item, want any) bool {
	keys, ok := want.(map[string]any)
	if !ok {
		return text(item) == text(want)
	}
	fields, _ := item.(map[string]any)
	for name, v := range keys {
		if text(fields[name]) != text(v) {
			return false
		}
	}
	return true
}

// contentOf returns a copy of an object, as encoding/json decodes it, without what
// every write changes.
func contentOf(object map[string]any) any {
	var copied map[string]any
	mustDecode(text(object), &copied)
	metadata, _ := copied["metadata"].(map[string]any)
	for _, name := range []string{"managedFields", "resourceVersion", "generation"} {
		delete(metadata, name)
	}
	return copied
}

func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// unordered returns a value with its lists sorted, without empty maps, lists and
// nulls, and with the one default that the schemas have, which the server gives
// to what is added.
func unordered(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := map[string]any{}
		if v["port"] != nil && v["protocol"] == nil {
			m["protocol"] = "TCP"
		}
		for key, child := range v {
			if c := unordered(child); c != nil {
				m[key] = c
			}
		}
		if len(m) == 0 {
			return nil
		}
		return m
	case []any:
		l := []any{}
		for _, item := range v {
			l = append(l, unordered(item))
		}
		slices.SortFunc(l, func(a, b any) int { return strings.Compare(text(a), text(b)) })
		if len(l) == 0 {
			return nil
		}
		return l
	}
	return v
}

func sorted[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
