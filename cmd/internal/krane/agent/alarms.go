package agent

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/stream"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// Why the control plane says nothing about what is wanted here. Nothing is deleted
// meanwhile, and somebody should look.
const (
	unknownRegion = "unknown_region"
	regionClaimed = "region_claimed"
)

// alarms are the refusals of each collection's last stream, until one says
// something again. They are raised as deletions_held.
type alarms struct {
	held *prometheus.GaugeVec

	mu      sync.Mutex
	reasons map[string]string
}

func newAlarms(held *prometheus.GaugeVec) *alarms {
	a := &alarms{held: held, reasons: map[string]string{}}
	a.publish()
	return a
}

// set notes why a collection is refused, "" for one that is not.
func (a *alarms) set(collection, reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reasons[collection] != reason {
		a.reasons[collection] = reason
		a.publish()
	}
}

func (a *alarms) publish() {
	for _, reason := range []string{unknownRegion, regionClaimed} {
		raised := 0.0
		for _, r := range a.reasons {
			if r == reason {
				raised = 1
			}
		}
		a.held.WithLabelValues(reason).Set(raised)
	}
}

// heard is a source that knows when the stream was opened that it reads, and
// whether the server has said anything on it: a resumed one begins before that.
type heard struct {
	*stream.Source
	opened  time.Time
	message bool
}

// Watch implements statesync.Source.
func (h *heard) Watch(ctx context.Context, w statesync.Watch, receive func(statesync.Frame) error) error {
	h.opened, h.message = time.Now(), false
	return h.Source.Watch(ctx, w, receive)
}
