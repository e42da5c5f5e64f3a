package operator

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply/readiness"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// A Job whose pod the API server refuses, for a quota, pod security or a PriorityClass that does
// not exist, says so in Events alone. They are read once a run has been without a pod for a while.
const (
	podless      = 5 * time.Second
	podlessAgain = 30 * time.Second
)

// withoutPod has since when runs are seen without a pod, by their UID. The times are of this process.
type withoutPod struct {
	mu    sync.Mutex
	since map[types.UID]time.Time
}

// seen returns for how long a run has been seen without a pod; a run with one is forgotten.
func (w *withoutPod) seen(run types.UID, without bool, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !without {
		delete(w.since, run)
		return 0
	}
	if w.since == nil || len(w.since) > 10000 { // runs that were deleted meanwhile
		w.since = map[types.UID]time.Time{}
	}
	if w.since[run].IsZero() {
		w.since[run] = now
	}
	return now.Sub(w.since[run])
}

// refusals finds out why a run under way has no pod.
func (p *pass) refusals(ctx context.Context) error {
	for _, run := range p.runs {
		without := underWay(run) && run.DeletionTimestamp == nil && run.Status.StartTime != nil && run.Status.Active == 0 &&
			len(p.podsOf(run)) == 0
		waited := p.op.withoutPod.seen(run.UID, without, p.op.now())
		if !without {
			continue
		}
		again := podless - waited
		if again <= 0 {
			var err error
			if p.refused, err = p.op.refusal(ctx, run); err != nil {
				return err
			}
			again = podlessAgain
		}
		p.again = min(cmp.Or(p.again, atRest), again)
	}
	return nil
}

// refusal returns what the controller of Jobs was answered last, the zero Cause if nothing.
func (w *operator) refusal(ctx context.Context, run *batchv1.Job) (readiness.Cause, error) {
	list, err := w.client.Resource(kube.EventsResource()).Namespace(run.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: "regarding.uid=" + string(run.UID) + ",reason=FailedCreate", Limit: 100,
	})
	if err != nil {
		return readiness.Cause{}, fmt.Errorf("read why Job %s has no pod: %w", run.Name, err)
	}
	var last *unstructured.Unstructured
	for i := range list.Items {
		if o := &list.Items[i]; last == nil || o.GetCreationTimestamp().After(last.GetCreationTimestamp().Time) {
			last = o
		}
	}
	if last == nil {
		return readiness.Cause{}, nil
	}
	note, _, _ := unstructured.NestedString(last.Object, "note")
	c := readiness.Cause{Reason: readiness.Rejected, Outlook: readiness.Transient, Message: "Job " + run.Name + ": " + note}
	if strings.Contains(note, "exceeded quota") || strings.Contains(note, "failed quota") {
		c.Reason = readiness.Quota
	}
	return c, nil
}
