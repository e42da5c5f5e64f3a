//trueup:pure

package cloud

import (
	"context"
	"slices"
)

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

// A Notices is a queue of what a cloud announces. It is safe for concurrent use.
type Notices interface {
	// Receive waits for messages, for some seconds at most, and returns none if there are none.
	// A message that is not deleted is returned again after a while. It is one of a queue that
	// other programs write to: what cannot be read has an Err, and no notices.
	Receive(ctx context.Context) ([]Message, error)

	// Delete removes messages for good.
	Delete(ctx context.Context, messages []Message) error
}

// A Message is one message of [Notices].
type Message struct {
	// Receipt is what the queue needs to delete the message.
	Receipt string
	// Notices are what the message announces; none if it is of no interest.
	Notices []Notice
	// Err is why the message cannot be read.
	Err error
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
