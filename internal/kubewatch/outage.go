package kubewatch

import (
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// logEvery is the time between two log lines of one lasting failure.
const logEvery = 10 * time.Minute

// Outage logs failures of one kind: each reason at most every ten minutes, whether it lasts
// or comes and goes, and the end of an outage that was logged. Its method can be called concurrently.
type Outage struct {
	mu     sync.Mutex
	logged map[metav1.StatusReason]time.Time // the last line of each reason
	since  time.Time                         // of the failure that goes on, zero without one
	told   bool                              // whether that was logged
}

// Log notes a failure, or a success with nil. A nil logger logs nothing.
func (o *Outage) Log(logger *slog.Logger, name string, err error) {
	if logger == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if err == nil {
		if o.told {
			logger.Info("watch recovered", slog.String("kind", name), slog.Duration("after", now.Sub(o.since)))
		}
		o.since, o.told = time.Time{}, false
		return
	}
	if o.since.IsZero() {
		o.since = now
	}
	reason := apierrors.ReasonForError(err)
	if last, ok := o.logged[reason]; ok && now.Sub(last) < logEvery {
		return
	}
	if o.logged == nil {
		o.logged = map[metav1.StatusReason]time.Time{}
	}
	o.logged[reason], o.told = now, true
	logger.Warn("watch failed", slog.String("kind", name), slog.Any("error", err))
}
