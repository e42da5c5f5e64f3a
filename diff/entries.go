package diff

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// entry is an entry of managedFields, read.
type entry struct {
	Writer
	owned *node
}

// readEntries reads the managedFields of a decoded object.
func readEntries(live map[string]any) ([]entry, error) {
	metadata, _ := live["metadata"].(map[string]any)
	raw, ok := metadata["managedFields"]
	if !ok || raw == nil {
		return nil, nil
	}
	list, ok := raw.([]any)
	if !ok {
		return nil, fmt.Errorf("managedFields: is a %T; want a list", raw)
	}
	var entries []entry
	for i, item := range list {
		e, err := readEntry(item)
		if err != nil {
			return nil, fmt.Errorf("managedFields[%d]: %w", i, err)
		}
		if e.owned != nil {
			entries = append(entries, e)
		}
	}
	// The latest first, then by name: the order of the list has no meaning.
	slices.SortStableFunc(entries, func(a, b entry) int {
		if c := b.Time.Compare(a.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Manager+"/"+a.Operation+"/"+a.Subresource, b.Manager+"/"+b.Operation+"/"+b.Subresource)
	})
	return entries, nil
}

func readEntry(item any) (entry, error) {
	fields, ok := item.(map[string]any)
	if !ok {
		return entry{}, fmt.Errorf("is a %T; want an object", item)
	}
	var e entry
	for _, part := range []struct {
		name string
		into *string
	}{{"manager", &e.Manager}, {"operation", &e.Operation}, {"subresource", &e.Subresource}} {
		v, stated := fields[part.name]
		if *part.into, ok = v.(string); stated && !ok {
			return entry{}, fmt.Errorf("%s: is a %T; want a string", part.name, v)
		}
	}
	if text, ok := fields["time"].(string); ok {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return entry{}, fmt.Errorf("time: %w", err)
		}
		e.Time = at.UTC()
	}
	if fields["fieldsV1"] == nil {
		return e, nil
	}
	data, err := json.Marshal(fields["fieldsV1"])
	if err != nil {
		return entry{}, fmt.Errorf("fieldsV1: %w", err)
	}
	set, err := Owned(&metav1.ManagedFieldsEntry{Manager: e.Manager, FieldsV1: &metav1.FieldsV1{Raw: data}})
	if err != nil {
		return entry{}, err
	}
	e.owned = tree(set)
	return e, nil
}
