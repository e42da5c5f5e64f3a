package agent

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Why the control plane refuses the region. No object is deleted meanwhile, and an
// operator has to act.
const (
	unknownRegion = "unknown_region"
	regionClaimed = "region_claimed"
)

// alarms are the refusals of each collection's last stream, until the next message.
// They are raised as deletions_held.
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

// set notes why a collection is refused, "" if it is not.
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
