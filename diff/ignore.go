package diff

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
)

// Rule leaves fields of some objects to others: the replicas of a Deployment to
// an autoscaler. An object must meet all conditions; an empty one is met by
// every object.
type Rule struct {
	// Kind is a kind with its group, whatever the version: Deployment.apps, or
	// ConfigMap for one of the core group.
	Kind string `json:"kind,omitempty"`
	// Namespace and Name are exact.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Selector is a label selector: app=web,tier notin (test).
	Selector string `json:"selector,omitempty"`
	// Paths are the fields, with all that is below them, in the form of
	// [Field.Path]; [*] stands for every item of a list:
	// .spec.template.spec.containers[*].image. A part of a key stands for all
	// items that have it: .spec.ports[port=53]. At least one is required.
	Paths []string `json:"paths"`
}

// Ignore is a list of rules, ready for use. The zero Ignore ignores nothing. It
// may be copied, and used concurrently.
type Ignore struct{ rules []rule }

type rule struct {
	Rule
	selector labels.Selector
	paths    []fieldpath.Path
}

// NewIgnore reads rules. The error joins one for every mistake, each with the
// index of its rule.
func NewIgnore(rules ...Rule) (Ignore, error) {
	var compiled []rule
	var mistakes []error
	for i, r := range rules {
		c, wrong := compile(r)
		for _, err := range wrong {
			mistakes = append(mistakes, fmt.Errorf("ignore rule %d: %w", i, err))
		}
		compiled = append(compiled, c)
	}
	if err := errors.Join(mistakes...); err != nil {
		return Ignore{}, err
	}
	return Ignore{compiled}, nil
}

func compile(r Rule) (c rule, mistakes []error) {
	c.Rule = r
	if strings.Contains(r.Kind, "/") {
		mistakes = append(mistakes, fmt.Errorf("kind %q: want Kind.group, such as Deployment.apps", r.Kind))
	}
	var err error
	if c.selector, err = labels.Parse(r.Selector); err != nil {
		mistakes = append(mistakes, fmt.Errorf("selector %q: %w", r.Selector, err))
	}
	if len(r.Paths) == 0 {
		mistakes = append(mistakes, errors.New("paths: want at least one, such as .spec.replicas"))
	}
	for _, text := range r.Paths {
		path, err := parsePath(text)
		if err == nil {
			err = ignorable(path)
		}
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("path %q: %w", text, err))
		}
		c.paths = append(c.paths, path)
	}
	return c, mistakes
}

// ignorable refuses fields that identify an object.
func ignorable(path fieldpath.Path) error {
	first := func(i int) string {
		if i < len(path) && path[i].FieldName != nil {
			return *path[i].FieldName
		}
		return ""
	}
	switch {
	case len(path) == 1 && (first(0) == "apiVersion" || first(0) == "kind" || first(0) == "metadata"),
		first(0) == "metadata" && (first(1) == "name" || first(1) == "namespace"):
		return errors.New("identifies the object; want a field below .spec, .data, .metadata.labels or the like")
	}
	return nil
}

// Also returns the rules of both.
func (g Ignore) Also(more Ignore) Ignore { return Ignore{slices.Concat(g.rules, more.rules)} }

// Strip returns the desired object without the ignored fields, so that an apply
// neither sets nor owns them. Maps that are empty then are left out, too. The
// desired object stays as it is; the result shares with it what has not changed,
// and is the object itself where nothing is ignored.
//
// If we own a field already and strip it from now on, the next apply removes it unless
// another manager owns it by then.
func (g Ignore) Strip(desired map[string]any) map[string]any {
	for _, path := range g.paths(desired) {
		if stripped, ok := strip(desired, path); ok {
			desired, _ = stripped.(map[string]any)
		}
	}
	return desired
}

// Filter returns the fields of an object without those that lie at or below an
// ignored path. The object, live or desired, supplies the kind, name and labels.
// Removed and Released fields stay: they are parts of an ignored field that we still
// own and that the next apply gives up. The given slice stays as it is.
func (g Ignore) Filter(object map[string]any, fields []Field) []Field {
	paths := g.paths(object)
	if len(paths) == 0 {
		return fields
	}
	return slices.DeleteFunc(slices.Clone(fields), func(f Field) bool {
		if f.Difference == Removed || f.Difference == Released {
			return false
		}
		at, err := parsePath(f.Path)
		return err == nil && slices.ContainsFunc(paths, func(path fieldpath.Path) bool { return covers(path, at) })
	})
}

// Covered returns the fields of a set, such as [Owned] gives, that lie at or below
// an ignored path. The object, live or desired, supplies the kind, name and labels.
func (g Ignore) Covered(object map[string]any, owned *fieldpath.Set) *fieldpath.Set {
	found := &fieldpath.Set{}
	paths := g.paths(object)
	if len(paths) == 0 {
		return found
	}
	owned.Iterate(func(at fieldpath.Path) {
		if slices.ContainsFunc(paths, func(path fieldpath.Path) bool { return covers(path, at) }) {
			found.Insert(at.Copy())
		}
	})
	return found
}

// paths returns the paths to ignore of an object.
func (g Ignore) paths(object map[string]any) []fieldpath.Path {
	var found []fieldpath.Path
	for _, r := range g.rules {
		if r.matches(object) {
			found = append(found, r.paths...)
		}
	}
	return found
}

func (r rule) matches(object map[string]any) bool {
	metadata, _ := object["metadata"].(map[string]any)
	text := func(from map[string]any, name string) string {
		v, _ := from[name].(string)
		return v
	}
	if r.Kind != "" {
		gv, err := schema.ParseGroupVersion(text(object, "apiVersion"))
		if err != nil || gv.WithKind(text(object, "kind")).GroupKind() != schema.ParseGroupKind(r.Kind) {
			return false
		}
	}
	if r.Namespace != "" && r.Namespace != text(metadata, "namespace") || r.Name != "" && r.Name != text(metadata, "name") {
		return false
	}
	set := labels.Set{}
	stated, _ := metadata["labels"].(map[string]any)
	for name := range stated {
		set[name] = text(stated, name)
	}
	return r.selector.Matches(set)
}

// covers reports whether a path is at or above another.
func covers(path, at fieldpath.Path) bool {
	if len(path) > len(at) {
		return false
	}
	for i, element := range path {
		if !element.Equals(at[i]) && !selects(element, at[i]) {
			return false
		}
	}
	return true
}

// selects reports whether an element of a rule stands for an item among others.
func selects(element, item fieldpath.PathElement) bool {
	if wildcard(element) {
		return item.FieldName == nil
	}
	return element.Key != nil && item.Key != nil && contains(*item.Key, *element.Key)
}

func wildcard(element fieldpath.PathElement) bool {
	return element == fieldpath.PathElement{}
}

// strip returns a value without the part at a path; false if there is none.
func strip(v any, path fieldpath.Path) (any, bool) {
	at, rest := path[0], path[1:]
	switch v := v.(type) {
	case map[string]any:
		if at.FieldName == nil {
			return v, false
		}
		child, stated := v[*at.FieldName]
		if !stated {
			return v, false
		}
		if len(rest) > 0 {
			stripped, ok := strip(child, rest)
			if !ok {
				return v, false
			}
			child = stripped
		}
		without := maps.Clone(v)
		if emptied, ok := child.(map[string]any); len(rest) == 0 || ok && len(emptied) == 0 {
			delete(without, *at.FieldName)
		} else {
			without[*at.FieldName] = child
		}
		return without, true
	case []any:
		return stripItems(v, at, rest)
	}
	return v, false
}

func stripItems(items []any, at fieldpath.PathElement, rest fieldpath.Path) (any, bool) {
	var without []any
	changed := false
	for i, item := range items {
		switch {
		case !wildcard(at) && (at.Index == nil || *at.Index != i) && names(at, item) != exactly && !byDefault(at, item):
		case len(rest) == 0:
			changed = true
			continue
		default:
			if stripped, ok := strip(item, rest); ok {
				item, changed = stripped, true
			}
		}
		without = append(without, item)
	}
	if !changed {
		return items, false
	}
	if without == nil {
		without = []any{}
	}
	return without, true
}

// byDefault reports whether an element names an item that leaves its protocol to
// the default.
func byDefault(at fieldpath.PathElement, item any) bool {
	fields, ok := item.(map[string]any)
	if _, stated := fields["protocol"]; !ok || stated || at.Key == nil {
		return false
	}
	fields = maps.Clone(fields)
	fields["protocol"] = "TCP"
	return names(at, fields) == exactly
}
