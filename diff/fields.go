package diff

import (
	"errors"
	"strings"
	"time"
)

// Field is one field in which a live object differs from the desired one, or that its
// owner no longer owns.
type Field struct {
	// Path names the field as managedFields does, list items by their keys:
	// .spec.template.spec.containers[name="main"].image. An element of a set is
	// [="value"], an atomic list or map is one field. A name that is not plain
	// is in brackets and quotes: .metadata.annotations["example.com/owner"].
	Path string `json:"path"`
	// Difference is the kind of the difference.
	Difference Difference `json:"difference"`
	// Desired and Live are the two values; empty where a side has none. Both are
	// [Masked] in the data of a Secret.
	Desired Value `json:"desired,omitzero"`
	Live    Value `json:"live,omitzero"`
	// By lists the other managers that own the field, or something in it, now: the
	// latest writer first. It is empty for a field that was removed, and for one that
	// only its owner changes.
	By []Writer `json:"by,omitempty"`
	// Structural reports that the live object has no managedFields, so that this is
	// a comparison of contents, with the limits of [States].
	Structural bool `json:"structural,omitempty"`
}

// Difference is how an apply would change a field.
type Difference string

// The differences.
const (
	// Changed: both have the field, with different values; it will be set.
	Changed Difference = "changed"
	// Missing: the live object lacks the field; it will be added.
	Missing Difference = "missing"
	// Taken: the values are equal, but we do not own the field, because another
	// wrote it since, or because we have not applied it yet; we will own it.
	Taken Difference = "taken"
	// Removed: we own the field, no longer state it, and no other manager owns it; it
	// will be removed, or return to its default. Fields of others inside an item of a
	// list or map are removed with it, unless they own the item.
	Removed Difference = "removed"
	// Released: we own the field and no longer state it, but it will stay: others own
	// it too, or it is part of the key of an item, with a default.
	Released Difference = "released"
	// Reordered: the items of a list with keys stand in another order than
	// wanted. An apply restores the order; ownership does not show it.
	Reordered Difference = "reordered"
	// Added: another manager has added the item to a list of which we own others; it
	// stays. Only [AddedByOthers] returns it.
	Added Difference = "added"
)

// Writer is an entry of managedFields: the manager, the operation and the time.
type Writer struct {
	Manager string `json:"manager"`
	// Operation is Apply or Update.
	Operation   string `json:"operation"`
	Subresource string `json:"subresource,omitempty"`
	// Time is when the entry last changed, in UTC, with a resolution of one
	// second. Zero: the server did not record it.
	Time time.Time `json:"time,omitzero"`
}

// String returns the writer for people: "kubectl-edit" 2026-11-20T10:00:00Z.
func (w Writer) String() string {
	text := string(valueOf(w.Manager))
	if w.Subresource != "" {
		text += " on " + w.Subresource
	}
	if !w.Time.IsZero() {
		text += " " + w.Time.UTC().Format(time.RFC3339)
	}
	return printable(text)
}

// String returns the field for people, on one line.
func (f Field) String() string {
	var b strings.Builder
	b.WriteString(printable(f.Path) + ": ")
	who := " (by "
	switch f.Difference {
	case Taken:
		b.WriteString(f.Live.String() + ", not owned")
	case Released:
		b.WriteString(f.Live.String() + ", left")
		who = " (to "
	case Added:
		b.WriteString("added, stays")
	case Reordered:
		b.WriteString("order " + f.Live.String() + " -> " + f.Desired.String())
	default:
		b.WriteString(f.Live.String() + " -> " + f.Desired.String())
	}
	for _, w := range f.By {
		b.WriteString(who + w.String())
		who = ", "
	}
	if len(f.By) > 0 {
		b.WriteString(")")
	}
	if f.Structural {
		b.WriteString(" (by content)")
	}
	return b.String()
}

// Options select the apply for [Fields].
type Options struct {
	// Manager is the field manager that applies. Required.
	Manager string
	// Applied reports that the desired object is the one that Manager applied last:
	// its [Hash] is the one that was remembered. Then a field that Manager still
	// owns is as it was applied, however the server has written it since, and no
	// difference. Without it, values that the server rewrites are compared by meaning
	// if that is known (quantities), and may otherwise be reported.
	Applied bool
}

// Fields returns what an apply of desired by a manager would change in live, and
// which fields the manager does not own any more, sorted by path as far as names
// go. It is for people and for plans; [Digest] and [Hash] show more cheaply whether an
// apply is needed.
//
// Both are decoded JSON objects, as in unstructured.Unstructured, and are only
// read. The desired one is the object as it is sent to the server: with the annotation
// that holds the hash, if there is one. No schema is needed: which lists have keys is
// read from the field sets of all managers.
//
// Two things cannot be known without a schema. A default that the server adds to a new
// value is not foreseen. And an object that we gave up, that was empty when we applied
// it and in which others own fields since, counts as a field of a struct, which stays
// (Released); if it is an item of a map in a custom resource, an apply removes it.
//
// Values of a Secret are compared and never shown. A live object without
// managedFields is compared by content; see [Field.Structural] and [Tracked].
//
// The error names the entry of managedFields that cannot be read, or the missing
// option.
func Fields(desired, live map[string]any, options Options) ([]Field, error) {
	if options.Manager == "" {
		return nil, errors.New("diff: Options.Manager: is required")
	}
	entries, err := readEntries(live)
	if err != nil {
		return nil, err
	}
	w := newWalker(desired, live, options, entries)
	w.object(desired, live)
	return w.fields, nil
}

// Tracked reports whether the server keeps managedFields for a live object,
// which is a decoded JSON object. Where it does not, [Fields] and [States] go by
// content.
func Tracked(live map[string]any) bool {
	metadata, _ := live["metadata"].(map[string]any)
	entries, _ := metadata["managedFields"].([]any)
	return len(entries) > 0
}
