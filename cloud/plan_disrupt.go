//trueup:pure

package cloud

import (
	"slices"
	"time"
)

// disrupt drains good machines that have pods, so that they are stopped: those that are over
// MaxRuntime, and then those whose pods fit on other Nodes, which have done so for
// ConsolidateAfter. All of them together are bounded by Disruptions. A machine with a pod that
// asks not to be disrupted runs on. A drifted machine returns to standby like others, and is
// replaced there.
func (pl *planner) disrupt() {
	memory, left := &pl.plan.Memory, max(0, pl.pool.Disruptions)
	var old, spare []Machine
	held := pl.listUntrusted || pl.want.VacateLater
	for _, m := range pl.machines {
		h := memory.Machines[m.ID]
		gaveUp := !h.GaveUp.IsZero() && !after(h.GaveUp, drainRetry, pl.now)
		// The pods of other Nodes may need the room soon, or pods do not leave.
		held = held || !h.Unready.IsZero() || gaveUp
		if m.Use == StateTerminating && (m.intent().Reason == ReasonRuntime || m.intent().Reason == ReasonUnderutilized) {
			left--
		}
		vacant := m.Use == StateRunning && m.Node != nil && m.Node.Ready && m.pods() > 0 && slices.Contains(pl.want.Vacate, m.ID)
		switch {
		case !vacant:
			h.Spare = time.Time{}
		case h.Spare.IsZero():
			h.Spare = pl.now
		}
		if _, known := memory.Machines[m.ID]; known {
			memory.Machines[m.ID] = h
		}
		if m.Use != StateRunning || m.Node == nil || pl.orders[m.ID].verb != "" || pl.candidate(m) {
			continue
		}
		ready := !m.Node.DoNotDisrupt && !gaveUp
		switch {
		case pl.overRuntime(m):
			if ready {
				old = append(old, m)
			}
		case ready && pl.pool.ConsolidateAfter > 0 && !h.Spare.IsZero():
			if since := later(h.Spare, m.Node.PodsSince); after(since, pl.pool.ConsolidateAfter, pl.now) {
				spare = append(spare, m)
			} else {
				pl.wake(since.Add(pl.pool.ConsolidateAfter))
			}
		}
	}
	slices.SortStableFunc(old, func(a, b Machine) int { return a.Node.LastStarted.Compare(b.Node.LastStarted) })
	for _, m := range old[:max(0, min(left, len(old)))] {
		pl.orders[m.ID] = order{Stop, ReasonRuntime}
		left--
	}
	if held {
		return
	}
	at := func(m Machine) int { return slices.Index(pl.want.Vacate, m.ID) }
	slices.SortStableFunc(spare, func(a, b Machine) int { return at(a) - at(b) })
	for _, m := range spare[:max(0, min(left, len(spare)))] {
		pl.orders[m.ID] = order{Stop, ReasonUnderutilized}
	}
}

// overRuntime reports whether a machine has run for MaxRuntime. Else it requests a plan for when
// it has.
func (pl *planner) overRuntime(m Machine) bool {
	if pl.pool.MaxRuntime == 0 || m.Node.LastStarted.IsZero() {
		return false
	}
	over := after(m.Node.LastStarted, pl.pool.MaxRuntime, pl.now)
	if !over {
		pl.wake(m.Node.LastStarted.Add(pl.pool.MaxRuntime))
	}
	return over
}
