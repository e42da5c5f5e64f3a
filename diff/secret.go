package diff

import (
	"encoding/base64"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
)

// lastApplied is the annotation in which kubectl keeps a copy of the object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// confidential reports whether an annotation of a Secret tells of its data: kubectl's copy, and
// the hash that package apply keeps as <domain>/desired-hash. It has no key, so a short value can
// be found by trying all.
func confidential(annotation string) bool {
	return annotation == lastApplied || strings.HasSuffix(annotation, "/desired-hash")
}

// secret reports whether an object is a Secret.
func secret(object map[string]any) bool {
	return object["apiVersion"] == "v1" && object["kind"] == "Secret"
}

// value returns the form of a value that may be shown.
func (w *walker) value(at fieldpath.Path, v any) Value {
	if (v == absent{}) {
		return ""
	}
	if w.secret {
		v = masked(at, v)
	}
	return valueOf(v)
}

// masked hides what a Secret holds: its data, and the annotations that tell of it.
func masked(at fieldpath.Path, v any) any {
	names := make([]string, 0, len(at))
	for _, element := range at {
		if element.FieldName != nil {
			names = append(names, *element.FieldName)
		}
	}
	const hidden = "(masked)"
	switch {
	case len(names) > 0 && (names[0] == "data" || names[0] == "stringData"):
		return hidden
	case len(names) < 2 || names[0] != "metadata" || names[1] != "annotations":
		return v
	case len(names) > 2 && confidential(names[2]):
		return hidden
	}
	annotations, _ := v.(map[string]any)
	if len(names) > 2 || annotations == nil {
		return v
	}
	annotations = maps.Clone(annotations)
	for name := range annotations {
		if confidential(name) {
			annotations[name] = hidden
		}
	}
	return annotations
}

// stringData compares the stringData of a Secret with the data that the server
// makes of it. The server records that we own stringData, which is never there,
// so ownership shows nothing of what is.
func (w *walker) stringData(root place, desired, live map[string]any) {
	texts, ok := desired["stringData"].(map[string]any)
	if !ok {
		return
	}
	at, data := root.field("stringData"), root.field("data")
	held, _ := live["data"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		item := at.field(name)
		item.other = append(item.other[:len(item.other):len(item.other)], data.field(name).other...)
		have, stated := held[name]
		text, _ := texts[name].(string)
		switch {
		case !stated:
			w.report(item, Missing, texts[name], absent{})
		case have != base64.StdEncoding.EncodeToString([]byte(text)):
			w.report(item, Changed, texts[name], have)
		case !item.owned() && !w.structural:
			w.report(item, Taken, texts[name], have)
		}
	}
}

// SecretData returns a desired Secret with its stringData written as data, as
// the server does it, and any other object as it is. The given object is not
// changed; the result shares the unchanged parts with it.
//
// Apply Secrets in this form. The server counts an applied stringData as owned
// under that name, while the values are kept, and changed by others, under data:
// such a change leaves our field set as it was, so [Digest] cannot see it. And a
// key that is removed from stringData stays in data.
func SecretData(desired map[string]any) map[string]any {
	texts, ok := desired["stringData"].(map[string]any)
	if !ok || !secret(desired) {
		return desired
	}
	stated, _ := desired["data"].(map[string]any)
	data := make(map[string]any, len(stated)+len(texts))
	maps.Copy(data, stated)
	for name, v := range texts {
		text, ok := v.(string)
		if !ok {
			return desired // for the server to refuse
		}
		data[name] = base64.StdEncoding.EncodeToString([]byte(text))
	}
	desired = maps.Clone(desired)
	delete(desired, "stringData")
	desired["data"] = data
	return desired
}
