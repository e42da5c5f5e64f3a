package apply

import (
	"strconv"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/diff"
)

// record is what is remembered of one live object: some hundred bytes. There may
// be 100,000 of them, so each field is as small as it can be.
type record struct {
	uid     uid
	version uint64 // resourceVersion
	labels  labelSet

	observed diff.Sum // digest of what we own, as the server last told
	applied  diff.Sum // digest that the server answered to our last apply; zero: unknown
	hash     diff.Sum // content hash of that apply; while that is unknown, the one in the annotation

	// owned is our field set, kept only until the first comparison with the
	// desired object makes applied known. Objects of one shape share it.
	owned unique.Handle[string]

	after    unique.Handle[string] // what it depends on, as annotated; zero: nothing
	bare     bool                  // it has no managedFields
	made     bool                  // a controller made it for another object
	deleting bool                  // it has a deletionTimestamp
	pruned   bool                  // we have asked for its deletion
	written  bool                  // known from our own write alone, not yet from the watch
}

// newRecord reads what the server tells of an object.
func newRecord(meta *metav1.PartialObjectMetadata, owner *Owner) *record {
	r := &record{
		uid:      packUID(meta.UID),
		version:  parseVersion(meta.ResourceVersion),
		deleting: meta.DeletionTimestamp != nil,
		labels:   packLabels(meta.Labels, owner.Labels),
	}
	r.made = metav1.GetControllerOfNoCopy(meta) != nil
	r.observed, r.bare = owner.digest(meta), len(meta.ManagedFields) == 0
	if entry := diff.Entry(meta.ManagedFields, owner.Manager); entry != nil {
		r.owned = unique.Make(string(entry.FieldsV1.Raw))
	}
	if after, ok := meta.Annotations[owner.dependsOnAnnotation()]; ok {
		r.after = unique.Make(after)
	}
	r.hash, _ = diff.ParseSum(meta.Annotations[owner.hashAnnotation()])
	return r
}

// succeed carries over what we know of the object from an older record of the
// same object.
func (r *record) succeed(old *record) {
	if old == nil || old.uid != r.uid {
		return
	}
	r.pruned = old.pruned
	if !old.unknown() {
		r.applied, r.hash = old.applied, old.hash
		r.owned = unique.Handle[string]{}
	}
}

// unknown reports whether it is not known what we last applied.
func (r *record) unknown() bool { return r.applied == diff.Sum{} }

// foreign reports whether somebody else has changed what we applied.
func (r *record) foreign() bool { return r.observed != r.applied }

// remember takes the observed state as the answer to our last apply.
func (r *record) remember(hash diff.Sum) {
	r.applied, r.hash = r.observed, hash
	r.owned = unique.Handle[string]{}
}

// parseVersion reads a resourceVersion. Kubernetes promises that those of one
// resource are decimal numbers that grow; one that is not gives 0, and then the
// newest word of the server counts.
func parseVersion(version string) uint64 {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// unowned reports whether the server knows nothing that we apply to the object.
func (r *record) unowned() bool { return r.bare || r.observed == diff.Sum{} }
