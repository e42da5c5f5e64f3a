package kube

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// merge adds to the status after an update the generation and the conditions that
// [Status.Update] promises to set and keep. It changes only after. Both have the
// form of decoded JSON.
func (s *Status[T]) merge(before, after map[string]any, generation int64, now time.Time) {
	if generation > 0 {
		after["observedGeneration"] = number(generation)
	}
	was, _ := conditionsOf(before)
	is, ok := conditionsOf(after)
	if !ok {
		return // the field has another form and is written as it is
	}
	var list []any
	kinds := slices.AppendSeq(slices.Collect(maps.Keys(was)), maps.Keys(is))
	slices.Sort(kinds)
	for _, kind := range slices.Compact(kinds) {
		if condition := s.condition(kind, was[kind], is[kind], generation, now); condition != nil {
			list = append(list, condition)
		}
	}
	if list != nil {
		after["conditions"] = list
	} else {
		delete(after, "conditions")
	}
}

// condition returns the merged state of one condition, nil if it is removed. Either
// state may be nil.
func (s *Status[T]) condition(kind string, was, is map[string]any, generation int64, now time.Time) map[string]any {
	ours := slices.Contains(s.Conditions, kind)
	switch {
	case is == nil && ours:
		return nil
	case is == nil, s.Conditions != nil && !ours:
		return was
	}
	switch {
	case was != nil && was["status"] == is["status"]:
		is["lastTransitionTime"] = was["lastTransitionTime"]
	case is["lastTransitionTime"] == nil, was != nil && is["lastTransitionTime"] == was["lastTransitionTime"]:
		is["lastTransitionTime"] = now.UTC().Format(time.RFC3339)
	}
	if generation > 0 && (ours || !reflect.DeepEqual(was, is)) {
		is["observedGeneration"] = number(generation)
	}
	return is
}

// number returns n as decoded JSON has it.
func number(n int64) json.Number { return json.Number(strconv.FormatInt(n, 10)) }

// conditionsOf returns the conditions by type. It returns false when they are not a
// list of objects with a type.
func conditionsOf(status map[string]any) (map[string]map[string]any, bool) {
	value, ok := status["conditions"]
	if !ok || value == nil {
		return nil, true
	}
	list, ok := value.([]any)
	if !ok {
		return nil, false
	}
	conditions := make(map[string]map[string]any, len(list))
	for _, each := range list {
		condition, ok := each.(map[string]any)
		if !ok {
			return nil, false
		}
		kind, ok := condition["type"].(string)
		if !ok || strings.TrimSpace(kind) == "" {
			return nil, false
		}
		conditions[kind] = condition
	}
	return conditions, true
}
