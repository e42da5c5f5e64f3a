package simtest

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// selector is which objects a list or a watch is about.
type selector struct {
	group, resource, namespace string
	fields, labels             []requirement
}

// requirement is one term of a label or field selector.
type requirement struct {
	name, operator, value string // operator is =, !=, exists or !exists
}

func (r requirement) holds(value string, set bool) bool {
	switch r.operator {
	case "=":
		return set && value == r.value
	case "!=":
		return !set || value != r.value
	case "exists":
		return set
	default:
		return !set
	}
}

// selector reads the selectors of a request. Set-based terms are an error.
func (c call) selector() (selector, error) {
	found := selector{group: c.Group, resource: c.Resource, namespace: c.Namespace}
	if c.Name != "" { // a watch of one object by its path
		found.fields = append(found.fields, requirement{"metadata.name", "=", c.Name})
	}
	var err error
	if found.labels, err = requirements(c.option("labelSelector")); err != nil {
		return selector{}, err
	}
	fields, err := requirements(c.option("fieldSelector"))
	found.fields = append(found.fields, fields...)
	for _, r := range fields {
		if r.name != "metadata.name" && r.name != "metadata.namespace" {
			return selector{}, fmt.Errorf("field label not supported: %s", r.name)
		}
	}
	return found, err
}

func requirements(text string) ([]requirement, error) {
	var all []requirement
	if text == "" {
		return nil, nil
	}
	if strings.ContainsAny(text, "() <>") {
		return nil, fmt.Errorf("the selector %q is not served: want terms of =, ==, !=, name and !name", text)
	}
	for term := range strings.SplitSeq(text, ",") {
		switch {
		case strings.Contains(term, "!="):
			name, value, _ := strings.Cut(term, "!=")
			all = append(all, requirement{name, "!=", value})
		case strings.Contains(term, "="):
			name, value, _ := strings.Cut(term, "=")
			all = append(all, requirement{name, "=", strings.TrimPrefix(value, "=")})
		case strings.HasPrefix(term, "!"):
			all = append(all, requirement{term[1:], "!exists", ""})
		default:
			all = append(all, requirement{term, "exists", ""})
		}
	}
	return all, nil
}

func (s selector) matches(k key, o Object) bool {
	if o == nil || k.group != s.group || k.resource != s.resource || s.namespace != "" && k.namespace != s.namespace {
		return false
	}
	for _, r := range s.fields {
		if !r.holds(o.text(strings.Split(r.name, ".")...), true) {
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

// at returns all objects as they were at a version. The lock is held.
func (s *Server) at(version int64) map[key]Object {
	if version >= s.version {
		return s.objects
	}
	past := maps.Clone(s.objects)
	for _, e := range slices.Backward(s.history) {
		if e.version <= version {
			break
		}
		if e.before == nil {
			delete(past, e.key)
		} else {
			past[e.key] = e.before
		}
	}
	return past
}

// keys returns the selected ones in the order of a list.
func (s *Server) keys(objects map[key]Object, selected selector) []key {
	var all []key
	for k, o := range objects {
		if selected.matches(k, o) {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, compareKeys)
	return all
}

// readAt is the version that a read is served at. A read of any state may be
// served an old one; all others see the newest.
func (s *Server) readAt(c call) int64 {
	version := s.version
	if c.option("resourceVersion") != "0" || s.stale == nil {
		return version
	}
	then := time.Now().Add(-s.stale(c.Request))
	for _, e := range slices.Backward(s.history) {
		if !e.at.After(then) {
			break
		}
		version = e.version - 1
	}
	return max(version, s.compacted)
}

func (s *Server) get(c call) *answer {
	o := s.at(s.readAt(c))[c.key()]
	if o == nil {
		return notFound(c)
	}
	return success(c, http.StatusOK, o)
}

func (s *Server) list(c call) *answer {
	selected, err := c.selector()
	if err != nil {
		return badRequest(c, err.Error())
	}
	version := s.readAt(c)
	if match := c.option("resourceVersionMatch"); match == "Exact" {
		if version, err = strconv.ParseInt(c.option("resourceVersion"), 10, 64); err != nil || version < s.compacted {
			return errorStatus(http.StatusGone, "Expired", "the resource version is too old", c)
		}
	}
	objects := s.at(version)
	items := []any{}
	for _, k := range s.keys(objects, selected) {
		items = append(items, map[string]any(c.shape(objects[k])))
	}
	list := Object{"kind": c.kind.Kind + "List", "apiVersion": c.kind.apiVersion()}
	if c.metadataOnly() {
		list = Object{"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
	}
	list["metadata"], list["items"] = map[string]any{"resourceVersion": strconv.FormatInt(version, 10)}, items
	return &answer{http.StatusOK, list}
}
