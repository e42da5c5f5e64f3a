package simtest

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// at returns all objects as they were at a version. The lock is held.
func (s *Server) at(version int64) map[key]Object {
	if version >= s.version {
		return s.objects
	}
	later := s.since(version)
	if len(later) == 0 {
		return s.objects
	}
	past := maps.Clone(s.objects)
	for _, e := range slices.Backward(later) {
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

// since returns the events after a version. The lock is held.
func (s *Server) since(version int64) []event {
	i, _ := slices.BinarySearchFunc(s.history, version+1, func(e event, v int64) int { return cmp.Compare(e.version, v) })
	return s.history[i:]
}

func (s *Server) get(c call) *answer {
	if text := c.option("resourceVersion"); text != "" {
		version, err := strconv.ParseInt(text, 10, 64)
		switch {
		case err != nil || version < 0:
			return failure(c, http.StatusInternalServerError, fmt.Sprintf("resourceVersion: Invalid value: %q", text))
		case version > s.version:
			return s.tooLarge(c, version)
		}
	}
	o := s.at(s.readAt(c))[c.key()]
	if o == nil {
		return notFound(c)
	}
	return success(c, http.StatusOK, o)
}

func (s *Server) tooLarge(c call, version int64) *answer {
	a := errorStatus(
		http.StatusGatewayTimeout,
		"Timeout",
		fmt.Sprintf("Timeout: Too large resource version: %d, current: %d", version, s.version),
		c,
	)
	return a.about(Object{
		"causes":            []any{map[string]any{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}},
		"retryAfterSeconds": float64(1),
	})
}

// list answers a list, one page of it if the client wants pages.
func (s *Server) list(c call) *answer {
	selected, err := c.selector()
	if err != nil {
		return badRequest(c, err.Error())
	}
	p, refusal := s.page(c)
	if refusal != nil {
		return refusal
	}
	objects := s.at(p.version)
	keys := s.keys(objects, selected.prefix())
	keys = keys[p.start(keys):]
	about := map[string]any{"resourceVersion": strconv.FormatInt(p.version, 10)}
	var items []Object
	for i, k := range keys {
		if !selected.matches(k, objects[k]) {
			continue
		}
		items = append(items, objects[k])
		if len(items) != p.limit {
			continue
		}
		if left := len(keys) - i - 1; left > 0 { // selected or not
			about["continue"] = token{Version: "meta.k8s.io/v1", At: p.version, Start: c.within(k) + "\x00"}.String()
			if len(selected.labels)+len(selected.fields) == 0 {
				about["remainingItemCount"] = left
			}
		}
		break
	}
	if c.as("Table") {
		return &answer{code: http.StatusOK, body: c.table(items, about)}
	}
	list := Object{"kind": c.kind.Kind + "List", "apiVersion": c.kind.apiVersion()}
	if c.as("PartialObjectMetadata") {
		list = Object{"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
	}
	list["metadata"], list["items"] = about, c.items(items)
	return &answer{code: http.StatusOK, body: list}
}

// items are the objects of a list. Those of built-in kinds do not say what they are.
func (c call) items(objects []Object) []any {
	if len(objects) == 0 && c.as("PartialObjectMetadata") {
		return nil
	}
	all := make([]any, 0, len(objects))
	for _, o := range objects {
		o = c.shape(o)
		if !c.kind.custom() && !c.as("PartialObjectMetadata") {
			o = shallow(o)
			delete(o, "apiVersion")
			delete(o, "kind")
		}
		all = append(all, map[string]any(o))
	}
	return all
}
