//trueup:pure

package cloud

import (
	"fmt"
	"strings"
	"time"
)

// Verb is what an [Action] does.
type Verb string

// The verbs of actions. Each is safe to repeat.
const (
	// Launch creates Count machines of Template, or repeats the recorded launch
	// Operation.
	Launch Verb = "launch"
	// Confirm records IDs as the machines of the recorded launch Operation.
	Confirm Verb = "confirm"
	// Abandon drops the recorded launch Operation, unless one of IDs turns out to
	// exist.
	Abandon Verb = "abandon"
	// Adopt records a Node without a state as one of the pool, in the state of its
	// machine's tag.
	Adopt Verb = "adopt"
	// Start starts a standby machine and opens its Node for pods.
	Start Verb = "start"
	// Open opens the Node of a machine that runs already.
	Open Verb = "open"
	// Drain closes the Node, evicts its pods, and leaves it terminating.
	Drain Verb = "drain"
	// GiveUp opens the Node of a machine whose drain did not end.
	GiveUp Verb = "give-up"
	// Stop stops a machine on which no pod is left to evict.
	Stop Verb = "stop"
	// ForceStop cuts the power of a machine that did not stop.
	ForceStop Verb = "force-stop"
	// Shelve records a machine as standby, once the cloud has confirmed that it is
	// stopped.
	Shelve Verb = "shelve"
	// Terminate removes a machine for good, once the cloud has confirmed that the pool
	// owns it.
	Terminate Verb = "terminate"
	// Forget removes the Node of a machine that no longer exists.
	Forget Verb = "forget"
	// MarkEmpty and ClearEmpty record that a running machine has no pods left,
	// and that it has some again.
	MarkEmpty  Verb = "mark-empty"
	ClearEmpty Verb = "clear-empty"
	// Retag writes the state of the Node to the machine's tag.
	Retag Verb = "retag"
)

// An Action is one step of a plan.
type Action struct {
	Verb Verb
	// Machine is the instance id; empty for Launch and Abandon.
	Machine string
	// Node is the Node's name, empty for a machine that has none.
	Node string
	// Seen is the cloud's state of the machine on which the action is based.
	Seen InstanceState
	// Placement is the type and zone of the machine, or of the template.
	Placement Placement
	// From and To are the states before and after; equal if the action changes
	// none.
	From, To State
	// Operation, Ordinal, Attempt, Template, Count and IDs belong to Launch,
	// Confirm and Abandon; see [LaunchIntent]. Recorded reports that the launch is
	// already in the journal and is repeated.
	Operation        string
	Ordinal, Attempt int64
	Template         string
	Count            int
	IDs              []string
	Recorded         bool
	// Intent is the intent that Drain records.
	Intent Intent
	// Reason explains the action to people.
	Reason string
}

// String renders the action for a dry run.
func (a Action) String() string {
	var b strings.Builder
	b.WriteString(string(a.Verb))
	switch a.Verb {
	case Launch:
		fmt.Fprintf(&b, " %d x %s as %s", a.Count, a.Template, a.Operation)
	case Abandon, Confirm:
		fmt.Fprintf(&b, " %s", a.Operation)
	default:
		fmt.Fprintf(&b, " %s", a.Machine)
		if a.From != a.To {
			fmt.Fprintf(&b, " (%s -> %s)", a.From, a.To)
		}
	}
	if a.Reason != "" {
		fmt.Fprintf(&b, ": %s", a.Reason)
	}
	return b.String()
}

func after(t time.Time, d time.Duration, now time.Time) bool {
	return !t.IsZero() && !now.Before(t.Add(d))
}
