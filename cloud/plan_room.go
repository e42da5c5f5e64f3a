//trueup:pure

package cloud

import (
	"fmt"
	"time"
)

// Room returns how many more machines the pool may launch now, for
// [demand.Supply.MaxLaunches], and the limit: the size of the pool, or a hold. If the launches
// of the plan were carried out meanwhile, the room is smaller by the machines that are
// coming.
func (p Plan) Room(pool Pool, now time.Time) (room int, limit string) {
	for _, b := range p.Holds {
		if b.Kind == HoldListFailed || b.Kind == HoldShortList {
			return 0, b.String()
		}
	}
	m, left := p.Memory, pool.Size-p.Counts.Total
	switch {
	case now.Before(m.LaunchAfter) && m.Refused.Count > 0:
		return 0, fmt.Sprintf("%s: %s", m.Refused.Kind, m.Refused.Message)
	case now.Before(m.LaunchAfter):
		return 0, fmt.Sprintf("%s: %d warm-ups failed in a row, the last one because %s", HoldWarmupFailing, m.Failures, m.FailureReason)
	case now.Before(m.ThrottledUntil):
		return 0, fmt.Sprintf("%s: the cloud asks for no calls", HoldThrottled)
	case left <= 0:
		return 0, fmt.Sprintf("%s: it has %d of %d machines", HoldPoolFull, p.Counts.Total, pool.Size)
	}
	return left, fmt.Sprintf("it has %d of %d machines", p.Counts.Total, pool.Size)
}
