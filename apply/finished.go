package apply

import (
	"encoding/json"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
	"github.com/seed-9e1ffd66/trueup/diff"
)

var jobKind = schema.GroupKind{Group: "batch", Kind: "Job"} //nolint:gochecknoglobals // constant

// finished remembers the Jobs that completed and were removed by their
// ttlSecondsAfterFinished. They are done: created again, they would run again. That a Job
// failed does not show in its metadata.
type finished struct {
	mu    sync.Mutex
	by    map[ID]ending
	swept int
}

// ending is how a completed Job was removed.
type ending struct {
	hash   diff.Sum      // of its desired state
	stayed time.Duration // from its completion to its deletion
	asked  time.Time     // when a pass last asked for it
}

// minAsked is how long an ending is remembered that no pass asks for, once there are many.
const minAsked = 7 * 24 * time.Hour

// note takes the last state of a Job that others deleted.
func (f *finished) note(m *metav1.PartialObjectMetadata, last *view.Record, now time.Time) {
	completed, ok := completionOf(m)
	if !ok || m.DeletionTimestamp == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.by == nil {
		f.by = map[ID]ending{}
	}
	if len(f.by) >= 2*f.swept+minSwept {
		for id, e := range f.by {
			if now.Sub(e.asked) >= minAsked {
				delete(f.by, id)
			}
		}
		f.swept = len(f.by)
	}
	id := ID{Group: jobKind.Group, Kind: jobKind.Kind, Namespace: m.Namespace, Name: m.Name}
	f.by[id] = ending{hash: last.Hash(), stayed: m.DeletionTimestamp.Sub(completed), asked: now}
}

// completionOf returns when a Job completed, to the second: only then its controller sets
// the field completionTime, which managedFields show.
func completionOf(m *metav1.PartialObjectMetadata) (at time.Time, ok bool) {
	for _, e := range m.ManagedFields {
		var fields struct {
			Status struct {
				CompletionTime json.RawMessage `json:"f:completionTime"`
			} `json:"f:status"`
		}
		if e.Subresource == "status" && e.FieldsV1 != nil && e.Time != nil && json.Unmarshal(e.FieldsV1.Raw, &fields) == nil &&
			fields.Status.CompletionTime != nil {
			return e.Time.Time, true
		}
	}
	return time.Time{}, false
}

// ttlSlack is how much sooner than its TTL a Job may seem to be deleted: times in
// metadata are full seconds.
const ttlSlack = 2 * time.Second

// done reports whether an absent Job has completed and its TTL has removed it, and its
// desired state is still the same.
func (f *finished) done(it *item, now time.Time) bool {
	if it.id.GroupKind() != jobKind {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	e, ok := f.by[it.id]
	if !ok {
		return false
	}
	ttl, stated, err := unstructured.NestedInt64(it.body.Decode(), "spec", "ttlSecondsAfterFinished")
	if e.hash != it.hash || !stated || err != nil || e.stayed < time.Duration(ttl)*time.Second-ttlSlack {
		delete(f.by, it.id)
		return false
	}
	e.asked = now
	f.by[it.id] = e
	return true
}
