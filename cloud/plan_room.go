//trueup:pure

package cloud

import (
	"fmt"
	"time"
)

// Full returns why no machine can be started, and none launched because the pool has as many as it
// may; empty if one can.
func (p Plan) Full(pool Pool) string {
	c := p.Counts
	if c.Total < pool.Size || c.Startable > 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d machines%s, none on standby that can be started", c.Total, pool.Size, c.lost())
}

// lost names the standby machines that have lost their Nodes.
func (c Counts) lost() string {
	if lost := c.Standby - c.Startable; lost > 0 {
		return fmt.Sprintf(", %d of them stopped and without a Node", lost)
	}
	return ""
}

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
		return 0, fmt.Sprintf("%s: it has %d of %d machines%s", HoldPoolFull, p.Counts.Total, pool.Size, p.Counts.lost())
	}
	return left, fmt.Sprintf("it has %d of %d machines", p.Counts.Total, pool.Size)
}

// count counts the listed machines and the launched machines that no list shows yet.
func (pl *planner) count() {
	c := &pl.plan.Counts
	for _, m := range pl.machines {
		if pl.seen.ListError == nil && m.State == InstanceTerminated {
			continue
		}
		c.Total++
		if pl.seen.ListError == nil && m.State == "" && pl.plan.Memory.Machines[m.ID].Listed && !pl.expected(m) {
			c.Missing++
		}
		switch m.Use {
		case StateWarmup:
			c.Warmup++
			if pl.coming(m) {
				c.Coming++
			}
		case StateStandby:
			c.Standby++
			if m.Node != nil {
				c.Startable++
			}
			if pl.counts(m) {
				c.Ready++
			}
		case StateRunning:
			c.Running++
		case StateTerminating:
			c.Terminating++
		}
	}
	for _, l := range pl.seen.Launches {
		c.Launching += pl.outstanding(l)
	}
	c.Total += c.Launching
	c.Coming += c.Launching
}

// coming reports whether a machine warms up, and will be on standby.
func (pl *planner) coming(m Machine) bool {
	return m.Use == StateWarmup && !m.State.Ending() && !pl.plan.Memory.Machines[m.ID].Failed
}

// counts reports whether a standby machine counts for MinStandby.
func (pl *planner) counts(m Machine) bool {
	return m.Use == StateStandby && m.State == InstanceStopped && m.good(!pl.pool.BestEffortImages) && !m.drifted()
}
