package view

import (
	"strings"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/apply/internal/identity"
	"github.com/seed-9e1ffd66/trueup/diff"
	"github.com/seed-9e1ffd66/trueup/internal/versions"
)

// Record is the memory of one live object, some hundred bytes. There may be a million
// of them, so each field is as small as it can be.
type Record struct {
	uid        uid
	version    uint64 // resourceVersion
	generation int64
	labels     labelSet

	observed diff.Sum // digest of our fields, as the server last sent them
	applied  diff.Sum // digest that the server answered to our last apply; zero: unknown
	hash     diff.Sum // content hash of that apply; while that is unknown, the one in the annotation

	// owned is our field set, kept only until the first comparison with the
	// desired object makes applied known. Objects of one shape share it.
	owned unique.Handle[string]

	dependsOn  unique.Handle[string] // the annotation; zero: none
	controller unique.Handle[string] // UID of its controller; zero: none
	part       *part                 // the part that lists it; nil: none
	at         int32                 // its index there

	traits  traits
	turn    uint8 // the turn that it has had; see Turns
	pruned  bool  // we have asked for its deletion
	written bool  // seen in our own write only, not yet in the watch
}

// traits are properties of an object's metadata, one bit each. A Record of 144 bytes is
// in a size class of its own, apart from the garbage of decoding. A larger one takes a
// third more memory.
type traits uint8

const (
	bare       traits = 1 << iota // it has no managedFields
	superseded                    // a superseded manager still owns fields
	inherited                     // one has applied them
	deleting                      // it has a deletionTimestamp
	strayed                       // its part label is another manager's
	putOff                        // its next turn is put off
	replaced                      // it is no record any more: see Hint
)

// newRecord reads the metadata of an object.
func newRecord(meta *metav1.PartialObjectMetadata, id *identity.Identity) *Record {
	r := &Record{
		uid:        packUID(meta.UID),
		version:    versions.Parse(meta.ResourceVersion),
		generation: meta.Generation,
		labels:     packLabels(meta.Labels, id),
		observed:   id.Digest(meta),
	}
	if len(meta.ManagedFields) == 0 {
		r.traits |= bare
	}
	if len(id.Supersedes) > 0 && id.Superseded(meta.ManagedFields) {
		r.traits |= superseded
		if id.Inherited(meta.ManagedFields) {
			r.traits |= inherited
		}
	}
	if meta.DeletionTimestamp != nil {
		r.traits |= deleting
	}
	if id.Strayed(meta) {
		r.traits |= strayed
	}
	r.controller = parentOf(meta)
	if entry := diff.Entry(meta.ManagedFields, id.Manager); entry != nil {
		r.owned = unique.Make(string(entry.FieldsV1.Raw))
	}
	if dependsOn, ok := meta.Annotations[id.DependsOnAnnotation]; ok {
		r.dependsOn = unique.Make(dependsOn)
	}
	r.hash, _ = diff.ParseSum(meta.Annotations[id.HashAnnotation])
	return r
}

// parentOf returns the UID that a controller ownerReference names, zero if none does.
func parentOf(meta metav1.Object) unique.Handle[string] {
	controller := metav1.GetControllerOfNoCopy(meta)
	if controller == nil {
		return unique.Handle[string]{}
	}
	return unique.Make(string(controller.UID))
}

// clone returns a copy that shares no text with the metadata it was read from.
func (r *Record) clone() *Record {
	c := *r
	c.labels.values = strings.Clone(r.labels.values)
	return &c
}

// succeed carries over the memory from an older record of the same object.
func (r *Record) succeed(old *Record) {
	if old == nil || old.uid != r.uid {
		return
	}
	r.pruned = old.pruned
	r.turn, r.traits = old.turn, r.traits|old.traits&putOff
	if !old.Unknown() {
		r.applied, r.hash = old.applied, old.hash
		r.owned = unique.Handle[string]{}
	}
}

// remember records the observed state as the result of our last apply.
func (r *Record) remember(hash diff.Sum) {
	r.applied, r.hash = r.observed, hash
	r.owned = unique.Handle[string]{}
}

// UID returns the UID as the server writes it.
func (r *Record) UID() string { return r.uid.String() }

// Version returns the resourceVersion as a number, 0 if it is none.
func (r *Record) Version() uint64 { return r.version }

// Generation returns metadata.generation.
func (r *Record) Generation() int64 { return r.generation }

// Observed returns the digest of the object's fields that we own, as last seen.
func (r *Record) Observed() diff.Sum { return r.observed }

// Hash returns the content hash of our last apply.
func (r *Record) Hash() diff.Sum { return r.hash }

// Unknown reports whether the result of our last apply is unknown.
func (r *Record) Unknown() bool { return r.applied == diff.Sum{} }

// Foreign reports whether another manager has changed a field that we applied.
func (r *Record) Foreign() bool { return r.observed != r.applied }

// Superseded reports whether a manager that the owner supersedes has fields of the
// object.
func (r *Record) Superseded() bool { return r.traits&superseded != 0 }

// Bare reports whether the object has no managedFields.
func (r *Record) Bare() bool { return r.traits&bare != 0 }

// Unowned reports whether managedFields have no apply of ours, nor one of a superseded
// manager.
func (r *Record) Unowned() bool {
	return r.Bare() || r.observed == diff.Sum{} && r.traits&inherited == 0
}

// Deleting reports whether the object has a deletionTimestamp.
func (r *Record) Deleting() bool { return r.traits&deleting != 0 }

// Strayed reports whether the part is unproven: another manager has set the label.
func (r *Record) Strayed() bool { return r.traits&strayed != 0 }

// Pruned reports whether we have asked for the deletion of the object.
func (r *Record) Pruned() bool { return r.pruned }

// Controller returns the UID in the controller ownerReference, empty if there is none.
func (r *Record) Controller() string { return text(r.controller) }

// DependsOn returns the annotation that names what the object depends on.
func (r *Record) DependsOn() string { return text(r.dependsOn) }

// Owned returns the JSON of our field set, empty once the result of our last apply is
// known.
func (r *Record) Owned() string { return text(r.owned) }

// Part returns the value of the part label, empty if the object lacks it.
func (r *Record) Part() string {
	if r.part == nil {
		return ""
	}
	return r.part.value.handle.Value()
}

// Label returns the value of a label, empty if the object lacks it.
func (r *Record) Label(key string, id *identity.Identity) string {
	if key == id.PartLabel {
		return r.Part()
	}
	return r.labels.value(key, id.Labels)
}

func text(h unique.Handle[string]) string {
	if h == (unique.Handle[string]{}) {
		return ""
	}
	return h.Value()
}
