package operator

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
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
			refused, err := p.op.applier.RefusedPods(ctx, run.Namespace, run.UID)
			if err != nil {
				return fmt.Errorf("read why Job %s has no pod: %w", run.Name, err)
			}
			if p.refused = refused; refused.Reason != "" {
				p.refused.Message = "Job " + run.Name + ": " + refused.Message
			}
			again = podlessAgain
		}
		p.again = min(cmp.Or(p.again, atRest), again)
	}
	return nil
}
