//trueup:pure

package cloud

import (
	"fmt"
	"slices"
	"time"
)

// The reasons of the Intent of a machine that is drained although it is good: it is over
// MaxRuntime, or its pods fit on other Nodes.
const (
	ReasonRuntime       = "it is over its runtime"
	ReasonUnderutilized = "its pods fit on other Nodes"
)

const (
	reasonDemand   = "pods need it"
	reasonBound    = "a pod is bound to its Node and waits for it"
	reasonDeleting = "the pool is being deleted"
	reasonEmpty    = "it was empty for its time"
	reasonUnready  = "its Node was ready and is not any more"
	reasonReady    = "its Node is ready again"
)

// orderStarts starts the requested standby machines, and those that bound pods wait for. The
// scheduler has placed such a pod already, so it is not part of the demand.
func (pl *planner) orderStarts() {
	for _, m := range pl.machines {
		if m.Use != StateStandby || m.Node == nil || m.Node.Waiting == 0 {
			continue
		}
		place := Placement{m.InstanceType, m.AvailabilityZone}
		if pl.plan.Memory.IsBlocked(place, pl.now) {
			pl.wake(pl.plan.Memory.Blocked[place])
			continue
		}
		pl.orders[m.ID] = order{Start, reasonBound}
	}
	for _, id := range pl.want.Start {
		i := slices.IndexFunc(pl.machines, func(m Machine) bool { return m.ID == id })
		if i >= 0 && pl.machines[i].Use == StateStandby {
			pl.orders[id] = order{Start, reasonDemand}
		}
	}
}

// shrink terminates standby machines, never running ones, while the pool has
// more machines than its size.
func (pl *planner) shrink() {
	listed := 0
	for _, m := range pl.machines {
		if m.State != "" && !m.State.Ending() && (m.Use != StateTerminating || m.intent().Verb != Terminate) {
			listed++
		}
	}
	over := listed - pl.pool.Size
	for _, m := range pl.standby() {
		if over <= 0 {
			return
		}
		over--
		pl.orders[m.ID] = order{Terminate, fmt.Sprintf("the pool has %d machines, its size is %d", listed, pl.pool.Size)}
	}
}

// dropUnattested bounds how many standby machines are kept that never attested
// their warm-up.
func (pl *planner) dropUnattested() {
	keep := max(1, pl.pool.MinStandby)
	var unattested []Machine
	for _, m := range pl.standby() {
		if !m.good(!pl.pool.BestEffortImages) {
			unattested = append(unattested, m)
		}
	}
	for i, m := range unattested {
		if len(unattested)-i > keep {
			pl.orders[m.ID] = order{Terminate, "its warm-up was never attested, and there are enough of those"}
		}
	}
}

// dropSurplus terminates standby machines above the goal, once there were too many for
// SurplusTTL.
func (pl *planner) dropSurplus() {
	at, stock := pl.stock()
	surplus := stock - pl.standbyGoal()
	memory := &pl.plan.Memory
	if pl.pool.SurplusTTL == 0 || surplus <= 0 {
		memory.SurplusSince = time.Time{}
		return
	}
	if memory.SurplusSince.IsZero() {
		memory.SurplusSince = pl.now
	}
	if !after(memory.SurplusSince, pl.pool.SurplusTTL, pl.now) {
		pl.wake(memory.SurplusSince.Add(pl.pool.SurplusTTL))
		return
	}
	bound := pl.bound()
	for _, m := range pl.standby() {
		place := Placement{m.InstanceType, m.AvailabilityZone}
		if surplus > 0 && pl.counts(m) && at[place] > bound[place] {
			surplus--
			at[place]--
			pl.orders[m.ID] = order{Terminate, fmt.Sprintf("surplus standby for %s", pl.pool.SurplusTTL)}
		}
	}
}

// rotate terminates one drifted standby machine at a time, once there are enough good
// ones, or no room to launch a replacement first.
func (pl *planner) rotate() {
	c := pl.plan.Counts
	if c.Warmup+c.Launching > 0 || c.Ready < pl.standbyGoal() && c.Total < pl.pool.Size {
		return // its replacement is under way, or is launched now
	}
	for _, m := range pl.machines {
		if m.Use == StateTerminating && m.intent().Verb == Terminate || m.State == InstanceShuttingDown {
			return
		}
	}
	for _, m := range pl.standby() {
		if m.drifted() {
			pl.orders[m.ID] = order{Terminate, "it was made from an older template"}
			return
		}
	}
}

// scaleDown stops machines that were empty for EmptyTTL.
func (pl *planner) scaleDown() {
	for _, m := range pl.machines {
		if m.Use != StateRunning || !pl.candidate(m) {
			continue
		}
		if after(m.Node.EmptySince, pl.pool.EmptyTTL, pl.now) {
			pl.orders[m.ID] = order{Stop, reasonEmpty}
		} else {
			pl.wake(m.Node.EmptySince.Add(pl.pool.EmptyTTL))
		}
	}
}

// candidate reports whether a machine is marked as empty, and still is.
func (pl *planner) candidate(m Machine) bool {
	return !pl.pool.KeepEmpty && m.Node != nil && m.pods() == 0 && !pl.seen.Reserved[m.ID] && !m.Node.EmptySince.IsZero()
}

func (pl *planner) machine(id string) Machine {
	i := slices.IndexFunc(pl.machines, func(m Machine) bool { return m.ID == id })
	if i < 0 {
		return Machine{}
	}
	return pl.machines[i]
}

// wakeFor requests a plan at the end of a waiting machine's guard.
func (pl *planner) wakeFor(s sight, r rule) {
	if r.verb == GiveUp {
		seen := pl.plan.Memory.Machines[s.ID]
		seen.GaveUp = pl.now
		pl.plan.Memory.Machines[s.ID] = seen
	}
	if r.verb != "" && r.verb != Drain {
		return
	}
	switch {
	case s.State == "":
		pl.wake(s.seen.Add(absenceAge))
	case s.State == InstanceStopping:
		pl.wake(s.seen.Add(s.pool.StopTimeout))
	case s.Use == StateWarmup:
		pl.wake(s.LaunchTime.Add(s.pool.WarmupTimeout))
	case (s.Use == StateRunning || s.Use == StateStandby) && s.Node == nil:
		pl.wake(s.noNode.Add(s.pool.StartTimeout))
	case s.Use == StateTerminating && s.Node != nil:
		pl.wake(s.intent().Since.Add(s.pool.DrainTimeout))
	case s.Use == StateRunning && s.Node.Starting && !s.Node.Ready && !s.Node.LastStarted.IsZero():
		pl.wake(s.Node.LastStarted.Add(s.startTimeout()))
	}
}

// expected reports whether the pool itself has deleted the machine, which the cloud may
// then forget at once, or may have done so before this process began: that it is missing says
// nothing against the list.
func (pl *planner) expected(m Machine) bool {
	h := pl.plan.Memory.Machines[m.ID]
	return h.Ending || h.Recalled || m.Use == StateTerminating && m.intent().Verb == Terminate
}

// forgetWithinBudget lets a list that is not trusted remove at most the budget, once in
// budgetWindow.
func (pl *planner) forgetWithinBudget() {
	if !pl.listUntrusted {
		return
	}
	memory := &pl.plan.Memory
	if after(memory.Braked, budgetWindow, pl.now) || memory.Braked.IsZero() {
		memory.Braked, memory.Spent = pl.now, 0
	}
	left := pl.pool.budget(len(pl.machines)) - memory.Spent
	free := map[string]bool{}
	for _, m := range pl.machines {
		free[m.ID] = m.State != "" || pl.expected(m)
	}
	pl.plan.Actions = slices.DeleteFunc(pl.plan.Actions, func(a Action) bool {
		if a.Verb != Forget || free[a.Machine] {
			return false
		}
		left--
		if left < 0 {
			return true
		}
		memory.Spent++
		return false
	})
}

func (pl *planner) orderAll(v Verb, reason string) {
	for _, m := range pl.machines {
		pl.orders[m.ID] = order{v, reason}
	}
}
