//trueup:pure

package cloud

import (
	"slices"
	"time"
)

// repair drains, and later terminates, running machines whose Nodes were ready and
// have not been so for UnreadyTimeout. It drains at most one budget in budgetWindow:
// if many lose readiness together, the likely cause is the network or the API server,
// not the machines.
func (pl *planner) repair() {
	var unready []Machine
	running, draining := 0, 0
	memory := &pl.plan.Memory
	since := func(m Machine) time.Time { return memory.Machines[m.ID].Unready }
	for _, m := range pl.machines {
		switch {
		case m.Use == StateTerminating && m.intent().Reason == reasonUnready:
			draining++
		case m.Use != StateRunning || m.State != InstanceRunning:
		case pl.orders[m.ID].verb != "" || since(m).IsZero():
			running++
		default:
			running++
			if after(since(m), pl.pool.UnreadyTimeout, pl.now) {
				unready = append(unready, m)
			} else {
				pl.wake(since(m).Add(pl.pool.UnreadyTimeout))
			}
		}
	}
	pl.reportMissing(running)
	if after(memory.Repaired, budgetWindow, pl.now) {
		memory.Repaired, memory.Repairs = time.Time{}, 0
	}
	if len(unready) == 0 || pl.listUntrusted || pl.throttled() {
		return
	}
	budget := pl.pool.budget(running + draining)
	left := max(0, budget-max(draining, memory.Repairs))
	slices.SortStableFunc(unready, func(a, b Machine) int { return since(a).Compare(since(b)) })
	for i, m := range unready {
		if i == left {
			pl.hold(
				HoldNodesNotReady,
				"the Nodes of %d of %d running machines were ready and have not been so for %s: at most %d is drained in %s",
				len(unready)-i,
				running,
				pl.pool.UnreadyTimeout,
				budget,
				budgetWindow,
			)
			pl.wake(memory.Repaired.Add(budgetWindow))
			return
		}
		pl.orders[m.ID] = order{Terminate, reasonUnready}
		if memory.Repaired.IsZero() {
			memory.Repaired = pl.now
		}
		memory.Repairs++
	}
}

// missingPatience is how long a running machine may be without a Node before the plan says
// so: a Node that was deleted by mistake registers again.
const missingPatience = time.Minute

// reportMissing names running machines whose Nodes were deleted, which are stopped after
// StartTimeout, and standby machines without Nodes where they take the room of others.
func (pl *planner) reportMissing(running int) {
	if c := pl.plan.Counts; c.Startable < c.Standby && c.Total >= pl.pool.Size {
		pl.hold(
			HoldNodeMissing,
			"%d of %d standby machines have no Node, so that no pod starts them, and the pool has no room for others: "+
				"each is terminated %s after its Node went",
			c.Standby-c.Startable,
			c.Standby,
			pl.pool.StartTimeout,
		)
	}
	missing := 0
	for _, m := range pl.machines {
		h := pl.plan.Memory.Machines[m.ID]
		since := h.NoNode
		if m.Use != StateRunning || m.State != InstanceRunning || since.IsZero() {
			continue
		}
		if h.Nodeless || after(since, missingPatience, pl.now) {
			missing++
		} else {
			pl.wake(since.Add(missingPatience))
		}
	}
	if missing > 0 {
		pl.hold(
			HoldNodeMissing,
			"%d of %d running machines have no Node: each is stopped %s after its Node went",
			missing,
			running,
			pl.pool.StartTimeout,
		)
	}
}
