package simtest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// selector is which objects a list or a watch is about.
type selector struct {
	group, resource, namespace string
	fields, labels             []requirement
}

// requirement is one term of a label or field selector.
type requirement struct {
	name, operator string // operator is in, notin, exists, !exists, < or >
	values         []string
	path           []string // of a field
}

func (r requirement) holds(value string, set bool) bool {
	switch r.operator {
	case "in":
		return set && slices.Contains(r.values, value)
	case "notin":
		return !set || !slices.Contains(r.values, value)
	case "exists":
		return set
	case "<", ">":
		is, err := strconv.ParseInt(value, 10, 64)
		limit, failed := strconv.ParseInt(r.values[0], 10, 64)
		return set && err == nil && failed == nil && (r.operator == "<" && is < limit || r.operator == ">" && is > limit)
	default:
		return !set
	}
}

// selector reads the selectors of a request.
func (c call) selector() (selector, error) {
	found := selector{group: storedGroup(c.Group, c.Resource), resource: c.Resource, namespace: c.Namespace}
	if c.Name != "" && c.Verb == "watch" { // a watch of one object by its path
		found.fields = append(found.fields, requirement{"metadata.name", "in", []string{c.Name}, []string{"metadata", "name"}})
	}
	var err error
	if found.labels, err = labelTerms(c.option("labelSelector")); err != nil {
		return selector{}, err
	}
	fields, err := fieldTerms(c.option("fieldSelector"))
	if err != nil {
		return selector{}, err
	}
	for i, r := range fields {
		path, ok := c.kind.fieldPath(r.name)
		if !ok {
			return selector{}, fmt.Errorf("field label not supported: %s", r.name)
		}
		fields[i].path = path
	}
	found.fields = append(found.fields, fields...)
	return found, nil
}

func fieldTerms(text string) ([]requirement, error) {
	var all []requirement
	for term := range strings.SplitSeq(text, ",") {
		if term == "" {
			continue
		}
		name, value, ok := strings.Cut(term, "=")
		if !ok {
			return nil, fmt.Errorf("invalid selector: '%s'; can't understand '%s'", text, term)
		}
		operator := "in"
		if strings.HasSuffix(name, "!") {
			name, operator = name[:len(name)-1], "notin"
		}
		all = append(all, requirement{name: name, operator: operator, values: []string{strings.TrimPrefix(value, "=")}})
	}
	return all, nil
}

// labelTerms reads a label selector: terms of =, ==, !=, in, notin, name and !name.
func labelTerms(text string) ([]requirement, error) {
	var all []requirement
	rest := strings.TrimSpace(text)
	for rest != "" {
		r, after, err := labelTerm(rest)
		if err != nil {
			return nil, fmt.Errorf("unable to parse requirement: %w", err)
		}
		all = append(all, r)
		switch {
		case after == "":
			return all, nil
		case after[0] != ',':
			return nil, fmt.Errorf("unable to parse requirement: found '%s', expected: ',' or 'end of string'", after)
		}
		rest = strings.TrimSpace(after[1:])
		if rest == "" {
			return nil, errors.New("unable to parse requirement: found '', expected: identifier after ','")
		}
	}
	return all, nil
}

// labelTerm reads one term, and returns the text after it.
func labelTerm(text string) (requirement, string, error) {
	if text[0] == '!' {
		name, rest := word(text[1:])
		if err := labelName(name); err != nil {
			return requirement{}, "", err
		}
		return requirement{name: name, operator: "!exists"}, rest, nil
	}
	name, rest := word(text)
	if err := labelName(name); err != nil {
		return requirement{}, "", err
	}
	if rest == "" || rest[0] == ',' {
		return requirement{name: name, operator: "exists"}, rest, nil
	}
	if rest[0] == '<' || rest[0] == '>' {
		value, after := word(rest[1:])
		if _, err := strconv.ParseInt(value, 10, 64); err != nil {
			return requirement{}, "", fmt.Errorf("for 'Gt', 'Lt' operators, the value must be an integer: %q", value)
		}
		return requirement{name: name, operator: rest[:1], values: []string{value}}, after, nil
	}
	for _, sign := range []string{"!=", "==", "="} {
		if after, ok := strings.CutPrefix(rest, sign); ok {
			value, rest := word(after)
			r := requirement{name: name, operator: "in", values: []string{value}}
			if sign == "!=" {
				r.operator = "notin"
			}
			return r, rest, labelValue(value)
		}
	}
	operator, rest := word(rest)
	if operator != "in" && operator != "notin" || !strings.HasPrefix(rest, "(") {
		return requirement{}, "", fmt.Errorf("found '%s', expected: in, notin, =, ==, !=", operator+rest)
	}
	inner, after, closed := strings.Cut(rest[1:], ")")
	if !closed {
		return requirement{}, "", errors.New("found '', expected: ',', ')' or identifier")
	}
	r := requirement{name: name, operator: operator}
	for value := range strings.SplitSeq(inner, ",") {
		value = strings.TrimSpace(value)
		if err := labelValue(value); err != nil {
			return requirement{}, "", err
		}
		r.values = append(r.values, value)
	}
	return r, strings.TrimSpace(after), nil
}

// word returns the first word of a selector, and the text after it.
func word(text string) (found, rest string) {
	text = strings.TrimSpace(text)
	end := strings.IndexAny(text, " !=,()<>")
	if end < 0 {
		return text, ""
	}
	return text[:end], strings.TrimSpace(text[end:])
}

// prefix is what a real server reads of its storage to find what is selected: one
// object by its name, or all.
func (s selector) prefix() selector {
	all := selector{group: s.group, resource: s.resource, namespace: s.namespace}
	for _, r := range s.fields {
		if r.name == "metadata.name" && r.operator == "in" {
			all.fields = append(all.fields, r)
		}
	}
	return all
}

func (s selector) matches(k key, o Object) bool {
	if o == nil || k.group != storedGroup(s.group, s.resource) || k.resource != s.resource || s.namespace != "" && k.namespace != s.namespace {
		return false
	}
	for _, r := range s.fields {
		if !r.holds(fieldText(o, r.path, Kind{Group: s.group}.custom()), true) {
			return false
		}
	}
	for _, r := range s.labels {
		value, set := o.Field("metadata", "labels", r.name).(string)
		if !r.holds(value, set) {
			return false
		}
	}
	return true
}

// fieldText is the value of a field as a selector compares it.
func fieldText(o Object, path []string, custom bool) string {
	switch value := o.Field(path...).(type) {
	case nil:
		if custom {
			return ""
		}
		switch path[len(path)-1] {
		case "unschedulable", "hostNetwork":
			return "false"
		case "replicas", "succeeded":
			return "0"
		}
		return ""
	case string:
		return value
	default:
		return fmt.Sprint(value)
	}
}
