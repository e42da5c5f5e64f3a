package apply

import (
	"slices"
	"strconv"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/diff"
)

// record is what is remembered of one live object: some hundred bytes.
type record struct {
	uid     string
	version uint64 // resourceVersion
	labels  []label

	observed diff.Sum // digest of what we own, as the server last told
	stated   diff.Sum // content hash in the annotation, as the server last told

	applied     diff.Sum // digest that the server answered to our last apply; zero: unknown
	appliedHash diff.Sum // content hash of that apply

	// owned is our field set, kept only until the first comparison with the
	// desired object makes applied known. Objects of one shape share it.
	owned unique.Handle[string]

	deleting bool // it has a deletionTimestamp
	pruned   bool // we have asked for its deletion
	written  bool // known from our own write alone, not yet from the watch
}

type label struct{ key, value unique.Handle[string] }

// newRecord reads what the server tells of an object.
func newRecord(meta *metav1.PartialObjectMetadata, owner *Owner) *record {
	r := &record{
		uid:      string(meta.UID),
		version:  parseVersion(meta.ResourceVersion),
		deleting: meta.DeletionTimestamp != nil,
		labels:   make([]label, 0, len(meta.Labels)),
	}
	for key, v := range meta.Labels {
		r.labels = append(r.labels, label{unique.Make(key), unique.Make(v)})
	}
	if digest, ok := diff.Digest(meta, owner.Manager); ok {
		r.observed = digest
		r.owned = unique.Make(string(diff.Entry(meta.ManagedFields, owner.Manager).FieldsV1.Raw))
	}
	r.stated, _ = diff.ParseSum(meta.Annotations[owner.hashAnnotation()])
	return r
}

// succeed carries over what we know of the object from an older record of the
// same object.
func (r *record) succeed(old *record) {
	if old == nil || old.uid != r.uid {
		return
	}
	r.applied, r.appliedHash = old.applied, old.appliedHash
	r.pruned = old.pruned
	if !r.unknown() {
		r.owned = unique.Handle[string]{}
	}
}

// unknown reports whether it is not known what we last applied.
func (r *record) unknown() bool { return r.applied == diff.Sum{} }

// foreign reports whether somebody else has changed what we applied.
func (r *record) foreign() bool { return r.observed != r.applied }

// remember takes the observed state as the answer to our last apply.
func (r *record) remember(hash diff.Sum) {
	r.applied, r.appliedHash = r.observed, hash
	r.owned = unique.Handle[string]{}
}

func (r *record) label(key string) string {
	k := unique.Make(key)
	i := slices.IndexFunc(r.labels, func(l label) bool { return l.key == k })
	if i < 0 {
		return ""
	}
	return r.labels[i].value.Value()
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
func (r *record) unowned() bool { return r.observed == diff.Sum{} }
