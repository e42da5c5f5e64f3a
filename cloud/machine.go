//trueup:pure

package cloud

import (
	"cmp"
	"slices"
	"time"
)

// A Machine is one machine of a pool: the cloud's instance joined with the cluster's
// Node.
type Machine struct {
	// Instance is the cloud's view. Its ID is always set. Its State is empty if
	// the machine was in no complete list.
	Instance

	// Node is the cluster's view, nil for a machine that has no Node.
	Node *NodeStatus

	// Use is the state of the Node, or of the tag if the Node has none. A machine with
	// neither is in warmup, or running if its Node has an unknown state: running is the
	// safe assumption.
	Use State

	// Tagged is the state in the machine's tag.
	Tagged State

	// Joined reports that the machine has or once had a Node, of the name NodeName.
	Joined   bool
	NodeName string
}

// NodeStatus is a pool's view of a Node.
type NodeStatus struct {
	Name string
	// ID is the instance id, from the Node's providerID.
	ID string

	// State and Since are the recorded state and when it was written; empty and zero
	// for a Node that was not adopted yet.
	State State
	Since time.Time

	// Intent is the purpose of a terminating machine's drain; see [Intent].
	Intent Intent

	// Ready and NetworkReady count only if the signal has changed since the last stop:
	// a condition left from before the stop proves nothing. The change is enough; its
	// time is by the clock of the machine, which is compared with no other.
	Ready, NetworkReady bool

	// Starting reports that the machine was started and its Node has not been
	// Ready since. It is recorded on the Node for other processes: a machine that did
	// not become ready is terminated after Pool.StartTimeout, a machine that was ready
	// and no longer is after Pool.UnreadyTimeout.
	Starting bool

	// Attestation is what the machine recorded about its warm-up.
	Attestation Attestation

	// Pods is how many pods must be evicted before the machine can be stopped. DaemonSet
	// pods, mirror pods and finished pods do not count.
	Pods int

	// Waiting is how many of Pods stay bound to the Node while its machine is off,
	// because they tolerate the taint of standby Nodes. No other machine can run them, so
	// a plan starts a standby machine that has any.
	Waiting int

	// PodsSince is when the last of these pods came, by the clock of the process that plans; zero
	// if it was there before.
	PodsSince time.Time

	// DoNotDisrupt reports that a pod on it asks not to be evicted while the machine is good:
	// the end of Pool.MaxRuntime waits for it.
	DoNotDisrupt bool

	// LastStarted is when the machine was started last, zero if never.
	LastStarted time.Time

	// EmptySince is the recorded mark of a candidate for scale-down, zero
	// without one.
	EmptySince time.Time

	// Drifted reports that the machine was made from an older template.
	Drifted bool
}

// Attestation is what a machine recorded about its warm-up before its first
// stop.
type Attestation string

// The attestations. A machine that recorded nothing has the empty one.
const (
	AttestedReady  Attestation = "ready"  // booted, healthy, with every image
	AttestedPartly Attestation = "partly" // booted and healthy, an image is missing
)

// An Intent is recorded on a machine in the same write that makes it
// terminating. It survives the process: another one continues from there.
type Intent struct {
	// Verb is Stop for a machine that returns to standby, Terminate for one that is
	// removed for good. Empty means no intent.
	Verb Verb
	// Reason is for people.
	Reason string
	// Since is when the intent was recorded. The drain ends DrainTimeout later.
	Since time.Time
}

// good reports whether the machine counts as standby: it attested its warm-up.
func (m Machine) good(requireImages bool) bool {
	if m.Node == nil {
		return false
	}
	return m.Node.Attestation == AttestedReady || m.Node.Attestation == AttestedPartly && !requireImages
}

func (m Machine) drifted() bool { return m.Node != nil && m.Node.Drifted }

func (m Machine) pods() int {
	if m.Node == nil {
		return 0
	}
	return m.Node.Pods
}

func (m Machine) intent() Intent {
	if m.Node == nil {
		return Intent{}
	}
	return m.Node.Intent
}

// since is when the machine entered its state, as far as it is recorded.
func (m Machine) since() time.Time {
	if m.Node != nil && !m.Node.Since.IsZero() {
		return m.Node.Since
	}
	return m.LaunchTime
}

// Join makes the machines of a pool from a list of the cloud, the Nodes of the
// pool and its recorded launches, joined by instance id and ordered by it. A terminated
// instance without a Node is left out.
//
// An instance of another pool is left out, and so is a Node whose ID is empty.
func Join(scope Scope, instances []Instance, nodes []NodeStatus, launches []LaunchIntent) []Machine {
	machines := make([]Machine, 0, len(instances)+len(launches))
	at := make(map[string]int, len(instances)) // of an ID in machines
	add := func(m Machine) *Machine {
		i, known := at[m.ID]
		if !known {
			i = len(machines)
			at[m.ID], machines = i, append(machines, m)
		}
		return &machines[i]
	}
	for _, i := range instances {
		if scope.Owns(i) {
			state, node := scope.state(i), scope.node(i)
			*add(Machine{Instance: i}) = Machine{Instance: i, Use: state, Tagged: state, NodeName: node, Joined: node != ""}
		}
	}
	nodes = slices.Clone(nodes) // a Machine keeps its own
	for i := range nodes {
		node := &nodes[i]
		if node.ID == "" {
			continue
		}
		m := add(Machine{Instance: Instance{ID: node.ID}})
		m.Node, m.Joined, m.NodeName = node, true, node.Name
		if node.State.valid() || !m.Use.valid() {
			m.Use = node.State
		}
	}
	for _, l := range launches {
		for _, id := range l.IDs {
			add(Machine{Instance: Instance{ID: id, LaunchTime: l.Since}})
		}
	}
	machines = slices.DeleteFunc(machines, func(m Machine) bool { return m.State == InstanceTerminated && m.Node == nil })
	for i := range machines {
		if m := &machines[i]; !m.Use.valid() {
			m.Use = StateWarmup
			if m.Node != nil && m.Node.State != "" {
				m.Use = StateRunning
			}
		}
	}
	sortByID(machines)
	return machines
}

// sortByID sorts machines that mostly are sorted already, as clouds list them.
func sortByID(machines []Machine) {
	byID := func(a, b Machine) int { return cmp.Compare(a.ID, b.ID) }
	if !slices.IsSortedFunc(machines, byID) {
		slices.SortFunc(machines, byID)
	}
}
