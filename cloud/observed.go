//trueup:pure

package cloud

import "time"

// Observed is the actual state of a pool.
type Observed struct {
	// Instances is the answer of ListInstances for the tags of the pool. It is used
	// only if ListError is nil.
	Instances []Instance
	// Listed is when that list was requested. Several plans from one list count it
	// once.
	Listed time.Time
	// ListError is why there is no list. Without a list the number of machines is
	// unknown: nothing is launched, stopped or terminated.
	ListError error

	// Nodes are the Nodes of the pool and of its machines.
	Nodes []NodeStatus

	// Launches are the recorded intents.
	Launches []LaunchIntent
	// LastOrdinal is the highest ordinal ever recorded.
	LastOrdinal int64

	// Reserved has the ids of machines that are reserved for pods.
	Reserved map[string]bool

	// Notices are what the cloud has announced of machines, by id.
	Notices map[string]Notice

	// Memory is the memory of the last Plan. It may be lost at any time: that costs
	// time, never a machine.
	Memory Memory
}

// Want is the demand of pods beyond the machines that run or start.
type Want struct {
	// Start are standby machines to start, most wanted first.
	Start []string
	// Launch is how many machines of each template are needed beyond those.
	Launch map[string]int
	// Standby is how many good standby machines to keep for future pods, by template;
	// those under the empty name may be of any. The sum is at least MinStandby and at
	// most Size. A name that is none of the pool's templates is ignored.
	Standby map[string]int
	// Vacate are running machines whose pods fit on other Nodes, all of them together, first
	// choice first; see [Pool].ConsolidateAfter and [demand.Vacate].
	Vacate []string
	// VacateLater has none of Vacate drained by this plan, as pods are on their way to other Nodes;
	// the time of ConsolidateAfter goes on.
	VacateLater bool
}
