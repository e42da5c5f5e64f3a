package operator

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/readiness"
)

// endingLong is how long the deletion of children may take before the status says what it waits for.
const endingLong = 5 * time.Second

// ending is since when children of objects are being deleted, as this process has seen it. It is safe
// for concurrent use.
type ending struct {
	mu    sync.Mutex
	since map[types.NamespacedName]time.Time
}

// takes reports whether the deletion takes long by now.
func (e *ending) takes(key types.NamespacedName) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.since == nil {
		e.since = map[types.NamespacedName]time.Time{}
	}
	if e.since[key].IsZero() {
		e.since[key] = time.Now()
	}
	return time.Since(e.since[key]) >= endingLong
}

func (e *ending) forget(key types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.since, key)
}

// held is the outcome of a deletion that waits for children: for their finalizers, or for what needs them.
func (w *work[T]) held(object T, left apply.PruneReport) outcome {
	o := outcomeOf(nil, left.Waiting, nil, nil)
	for child := range w.live.Part(string(object.GetUID())) {
		if child.Deleting && !child.Gone {
			o.causes = append(o.causes, readiness.Cause{
				Reason: apply.ReasonTerminating, Outlook: readiness.Waiting,
				Message: fmt.Sprintf("%s: is being deleted, and its finalizers hold it", child.ID),
			})
		}
	}
	return o
}
