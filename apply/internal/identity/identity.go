// Package identity recognises the objects of an owner: by the labels that all
// of them carry, and by the fields that its manager has written.
//
//trueup:pure
package identity

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/seed-9e1ffd66/trueup/diff"
)

// Identity is an owner of objects. It is immutable.
type Identity struct {
	Manager    string
	Labels     map[string]string
	PartLabel  string   // key of the label that divides the objects; empty: they are not divided
	Supersedes []string // field managers whose fields become ours
	// The annotations that hold the content hash of the desired object and what
	// the object depends on.
	HashAnnotation, DependsOnAnnotation string
}

// Selector selects the objects that carry all the labels.
func (id *Identity) Selector() string {
	return labels.SelectorFromSet(id.Labels).String()
}

// Standing is how an object's labels relate to the owner's.
type Standing int

// The standings.
const (
	Unlabelled Standing = iota // it lacks one of the owner's labels
	Labelled                   // it carries all of them
	Others                     // it carries one of them with another value
)

// Standing compares the labels of an object with the owner's.
func (id *Identity) Standing(have map[string]string) Standing {
	found := Labelled
	for key, want := range id.Labels {
		switch v, ok := have[key]; {
		case !ok:
			found = Unlabelled
		case v != want:
			return Others
		}
	}
	return found
}

// Digest returns the digest of the object's fields that the owner's writes own, by
// applies and, in upsert mode, by updates. It is zero when they own none. The hash in the
// annotation is part of it: an older replica of the program has the same manager, and
// its write within the second of ours leaves our entry as it was. Where the server keeps
// no managedFields, it is a digest of the object's version, which changes with every
// write.
func (id *Identity) Digest(m metav1.Object) diff.Sum {
	entries := m.GetManagedFields()
	if len(entries) == 0 {
		return Sum(string(m.GetUID()), m.GetResourceVersion())
	}
	applied, ours := diff.Digest(m, id.Manager)
	parts := []string{applied.String(), m.GetAnnotations()[id.HashAnnotation]}
	for i := range entries {
		e := &entries[i]
		if e.Manager == id.Manager && updates(e) {
			parts, ours = append(parts, fmt.Sprint(e.Time), string(e.FieldsV1.Raw)), true
			break
		}
	}
	if !ours {
		return diff.Sum{}
	}
	return Sum(parts...)
}

// Wrote reports whether fields of the object are the owner's.
func (id *Identity) Wrote(m metav1.Object) bool {
	return len(m.GetManagedFields()) > 0 && id.Digest(m) != diff.Sum{}
}

// Superseded reports whether a manager that the owner supersedes still has fields
// of the object.
func (id *Identity) Superseded(entries []metav1.ManagedFieldsEntry) bool {
	return slices.ContainsFunc(entries, id.Supersede)
}

// Supersede reports whether the owner supersedes the entry.
func (id *Identity) Supersede(e metav1.ManagedFieldsEntry) bool {
	return e.Subresource == "" && e.FieldsV1 != nil && slices.Contains(id.Supersedes, e.Manager)
}

// Inherited reports whether a superseded manager has applied fields of the object. That
// is the owner under an earlier name; an update may be of a copy of our object.
func (id *Identity) Inherited(entries []metav1.ManagedFieldsEntry) bool {
	return slices.ContainsFunc(entries, func(e metav1.ManagedFieldsEntry) bool {
		return id.Supersede(e) && e.Operation == metav1.ManagedFieldsOperationApply
	})
}

// Predecessor reports whether managers that the owner supersedes made the object: all its
// fields outside of the metadata and the subresources are theirs, or the owner's.
func (id *Identity) Predecessor(entries []metav1.ManagedFieldsEntry) bool {
	made := false
	for _, e := range entries {
		if e.Subresource != "" || e.FieldsV1 == nil {
			continue
		}
		var fields map[string]json.RawMessage
		if json.Unmarshal(e.FieldsV1.Raw, &fields) != nil {
			return false
		}
		delete(fields, "f:metadata")
		switch {
		case len(fields) == 0:
		case slices.Contains(id.Supersedes, e.Manager):
			made = true
		case e.Manager != id.Manager:
			return false
		}
	}
	return made
}

// Strayed reports whether the part label of an object is another manager's: then it does
// not show to which part the object belongs.
func (id *Identity) Strayed(m metav1.Object) bool {
	if id.PartLabel == "" || m.GetLabels()[id.PartLabel] == "" {
		return false
	}
	field := "f:" + id.PartLabel
	strayed := false
	for _, e := range m.GetManagedFields() {
		var fields struct {
			Metadata struct {
				Labels map[string]json.RawMessage `json:"f:labels"`
			} `json:"f:metadata"`
		}
		if e.FieldsV1 == nil || !bytes.Contains(e.FieldsV1.Raw, []byte(field)) || json.Unmarshal(e.FieldsV1.Raw, &fields) != nil {
			continue
		}
		if _, ok := fields.Metadata.Labels[field]; !ok {
			continue
		}
		if e.Manager == id.Manager || slices.Contains(id.Supersedes, e.Manager) {
			return false
		}
		strayed = true
	}
	return strayed
}

// Annotated reports whether the value of an annotation is the owner's: no other manager has
// changed it since.
func (id *Identity) Annotated(m metav1.Object, annotation string) bool {
	field := "f:" + annotation
	return slices.ContainsFunc(m.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		var fields struct {
			Metadata struct {
				Annotations map[string]json.RawMessage `json:"f:annotations"`
			} `json:"f:metadata"`
		}
		if e.FieldsV1 == nil || e.Manager != id.Manager && !slices.Contains(id.Supersedes, e.Manager) {
			return false
		}
		if json.Unmarshal(e.FieldsV1.Raw, &fields) != nil {
			return false
		}
		_, ok := fields.Metadata.Annotations[field]
		return ok
	})
}

func updates(e *metav1.ManagedFieldsEntry) bool {
	return e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == "" && e.FieldsV1 != nil
}

// Sum hashes parts. Two lists of parts never collide by joining.
func Sum(parts ...string) diff.Sum {
	h := sha256.New()
	for _, part := range parts {
		h.Write(binary.AppendUvarint(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	return diff.Sum(h.Sum(nil)[:len(diff.Sum{})])
}
