//trueup:pure

package cloud

import "slices"

// A Notice is what a cloud announces about a machine before it happens.
type Notice struct {
	// Machine is the instance id.
	Machine string
	// Reason is for people, such as "its spot capacity is taken back".
	Reason string
	// Ends reports that the cloud takes the machine away. Otherwise the machine has to be
	// stopped once, such as to start on other hardware.
	Ends bool
}

// heed orders what the cloud has announced: a running machine is drained, and terminated or
// stopped; one that has no pods is terminated if it ends. These machines go whatever the pool
// does, so neither Disruptions nor a pod that asks not to be disrupted hold them.
func (pl *planner) heed() {
	for _, m := range pl.machines {
		notice, some := pl.seen.Notices[m.ID]
		if !some || m.State == InstanceTerminated {
			continue
		}
		reason := "the cloud announces that " + notice.Reason
		gaveUp := pl.plan.Memory.Machines[m.ID].GaveUp
		switch {
		case notice.Ends && slices.Contains([]State{StateWarmup, StateStandby, StateRunning}, m.Use):
			pl.orders[m.ID] = order{Terminate, reason}
		case !notice.Ends && m.Use == StateRunning && m.Node != nil && (gaveUp.IsZero() || after(gaveUp, drainRetry, pl.now)):
			pl.orders[m.ID] = order{Stop, reason}
		}
	}
}
