//trueup:pure

package cloud

import (
	"slices"
	"time"
)

// A rule is one row of the machine table: in state use, while the cloud reports
// one of the states, and if the guard holds, the machine takes the action and
// goes to the state. The first row that fits decides. A row without a verb
// waits for the cloud or for the guard of a row above it.
type rule struct {
	use    State
	cloud  []InstanceState // empty: any
	when   guard           // nil: always
	verb   Verb
	to     State // empty: stays
	reason string
}

// A guard looks at one machine at one time.
type guard func(s sight) bool

// A sight is a plan's view of a machine.
type sight struct {
	Machine
	pool Pool
	now  time.Time
	// order is the plan's order for the machine: Start, Stop, Terminate or none.
	order order
	// seen is since when the cloud reports the present state.
	seen time.Time
	// noNode is since when the machine has had no Node, zero if it has one.
	noNode time.Time
	// listed is the time of the list.
	listed time.Time
	// reserved reports that the machine is reserved for pods.
	reserved bool
	// launched reports that a recorded launch names the machine, ending that the cloud has
	// accepted to terminate it.
	launched, ending bool
}

// An order is an action that a plan requests of one machine, beyond the table.
type order struct {
	verb   Verb
	reason string
}

//nolint:gochecknoglobals // parts of the table
var (
	powered = []InstanceState{InstancePending, InstanceRunning}
	running = []InstanceState{InstanceRunning}
	stopped = []InstanceState{InstanceStopped}
	halting = []InstanceState{InstanceStopping}
	leaving = []InstanceState{InstanceShuttingDown}
	ended   = []InstanceState{InstanceTerminated}
	absent  = []InstanceState{""}
)

// table maps a machine's state to its next action. Every row of a state that is not
// final either acts, or waits for the cloud's own transition or for a time guard above
// it.
//
//nolint:gochecknoglobals // a table
var table = []rule{
	// A machine that no longer exists, in whatever state.
	{cloud: ended, verb: Forget, reason: "the cloud reports it as terminated"},
	{cloud: absent, when: removed, verb: Forget, reason: "it was to end, and is not in the list"},
	{cloud: absent, when: gone, verb: Forget, reason: "missing from two complete lists"},
	{cloud: absent, reason: "missing from the list, not proven to be gone"},
	{cloud: leaving, reason: "the cloud is terminating it"},
	{when: unadopted, verb: Adopt, reason: "its Node has no state yet"},
	{cloud: halting, when: hung(3), verb: Terminate, to: StateTerminating, reason: "it does not stop, not even by force"},
	{cloud: halting, when: hung(1), verb: ForceStop, reason: "it does not stop"},
	{cloud: halting, reason: "the cloud is stopping it"},

	{StateWarmup, nil, ordered(Terminate), Terminate, StateTerminating, ""},
	{StateWarmup, stopped, joined, Shelve, StateStandby, "warm-up is complete"},
	{StateWarmup, stopped, nil, Terminate, StateTerminating, "it stopped before it joined the cluster"},

	{StateWarmup, running, warm, Stop, "", "warm-up is complete"},
	{StateWarmup, powered, both(late, both(joined, keepLate)), ForceStop, "", "warm-up is over its time"},
	{StateWarmup, powered, late, Terminate, StateTerminating, "warm-up is over its time"},
	{StateWarmup, nil, nil, "", "", "warming up"},

	{StateStandby, stopped, ordered(Terminate), Terminate, StateTerminating, ""},
	{StateStandby, stopped, ordered(Start), Start, StateRunning, ""},
	{StateStandby, stopped, lost, Terminate, StateTerminating, "its Node was deleted, without which no pod starts it"},
	{StateStandby, powered, deleting, Terminate, StateTerminating, "the pool is being deleted"},
	{StateStandby, powered, both(nameless, lost), Terminate, StateTerminating, reasonNameless},
	{StateStandby, powered, both(fresh, named), Open, StateRunning, "the cloud reports it as started"},
	{StateStandby, nil, nil, "", "", "standby"},

	{StateRunning, stopped, ordered(Terminate), Terminate, StateTerminating, ""},
	{StateRunning, stopped, nameless, Terminate, StateTerminating, reasonNameless},
	{StateRunning, stopped, fresh, Shelve, StateStandby, "the cloud reports it as stopped"},
	{StateRunning, running, both(ordered(Terminate), without), Terminate, StateTerminating, ""},
	{StateRunning, running, ordered(Terminate), Drain, StateTerminating, ""},
	{StateRunning, running, ordered(Stop), Drain, StateTerminating, ""},
	{StateRunning, powered, neverReady, Drain, StateTerminating, "it was started and did not become ready"},
	{StateRunning, running, lost, Stop, "", "its Node was deleted"},
	{StateRunning, running, newlyEmpty, MarkEmpty, "", "no pod is left on it"},
	{StateRunning, running, noLongerEmpty, ClearEmpty, "", "it has pods again"},
	{StateRunning, nil, nil, "", "", "running"},

	{StateTerminating, stopped, bound(Terminate), Terminate, "", "it must be removed for good"},
	{StateTerminating, stopped, nameless, Terminate, "", reasonNameless},
	{StateTerminating, stopped, fresh, Shelve, StateStandby, "it is stopped"},
	{StateTerminating, powered, recovered, GiveUp, StateRunning, reasonReady},
	{StateTerminating, powered, both(occupied, both(bound(Stop), wasEmpty)), GiveUp, StateRunning, "a pod came before it was closed"},
	{StateTerminating, powered, both(over, bound(Terminate)), Terminate, "", "its drain is over its time"},
	{StateTerminating, powered, both(over, occupied), GiveUp, StateRunning, "its drain is over its time"},
	{StateTerminating, powered, occupied, Drain, "", "pods are left on it"},
	{StateTerminating, powered, bound(Terminate), Terminate, "", "it is drained"},
	{StateTerminating, running, nil, Stop, "", "it is drained"},
	{StateTerminating, nil, nil, "", "", "terminating"},
}

const reasonNameless = "its Node was deleted, and no tag has its name"

// decide returns the row that fits.
func decide(s sight) rule {
	for _, r := range table {
		if (r.use == "" || r.use == s.Use) && (len(r.cloud) == 0 || slices.Contains(r.cloud, s.State)) && (r.when == nil || r.when(s)) {
			return r
		}
	}
	return rule{reason: "no rule for state " + string(s.Use) + ", cloud " + string(s.State)}
}

func both(a, b guard) guard  { return func(s sight) bool { return a(s) && b(s) } }
func ordered(v Verb) guard   { return func(s sight) bool { return s.order.verb == v } }
func bound(v Verb) guard     { return func(s sight) bool { return s.intent().Verb == v } }
func joined(s sight) bool    { return s.Joined }
func deleting(s sight) bool  { return s.pool.Deleting }
func without(s sight) bool   { return s.Node == nil } // and so without pods to drain
func named(s sight) bool     { return s.NodeName != "" }
func nameless(s sight) bool  { return s.NodeName == "" }
func keepLate(s sight) bool  { return !s.pool.TerminateLate }
func unadopted(s sight) bool { return s.Node != nil && !s.Node.State.valid() }
func occupied(s sight) bool  { return s.pods() > 0 }
func empty(s sight) bool     { return s.Node != nil && s.pods() == 0 && !s.reserved }
func wasEmpty(s sight) bool  { return s.intent().Reason == reasonEmpty }
func newlyEmpty(s sight) bool {
	return empty(s) && s.Node.Ready && s.Node.EmptySince.IsZero() && !s.pool.KeepEmpty
}
func noLongerEmpty(s sight) bool { return s.Node != nil && !empty(s) && !s.Node.EmptySince.IsZero() }

// gone: absent from two complete lists, far enough apart.
func gone(s sight) bool { return after(s.seen, absenceAge, s.listed) && forgettable(s) }

// removed: absent from a list after the cloud has accepted to terminate it. It is read again
// before it is forgotten.
func removed(s sight) bool { return s.ending && forgettable(s) }

// forgettable: it has a Node, or no recorded launch names it. The machines of a launch without
// Nodes are read together.
func forgettable(s sight) bool { return s.Node != nil || !s.launched }

// fresh: the list was made after the machine entered its state; an older list shows the
// state before.
func fresh(s sight) bool { return s.listed.After(s.since()) }

func hung(times int) guard {
	return func(s sight) bool { return after(s.seen, time.Duration(times)*s.pool.StopTimeout, s.now) }
}

// lost: a machine had no Node for too long.
func lost(s sight) bool { return after(s.noNode, s.pool.StartTimeout, s.now) }

func late(s sight) bool { return after(s.LaunchTime, s.pool.WarmupTimeout, s.now) }

// over: the drain is over its time. A drain without a recorded beginning began when the
// machine entered its state.
func over(s sight) bool {
	since := s.intent().Since
	if since.IsZero() {
		since = s.since()
	}
	return after(since, s.pool.DrainTimeout, s.now)
}

// warm: a machine that the pool itself must stop is ready to be stopped.
func warm(s sight) bool {
	return s.pool.ControllerStop && s.Node != nil && s.Node.Ready && s.Node.NetworkReady && s.good(!s.pool.BestEffortImages)
}

// neverReady: the machine has not been ready since its last start, for too long. For a
// machine that was ready since, see planner.repair.
func neverReady(s sight) bool {
	return s.Node != nil && s.Node.Starting && !s.Node.Ready && after(s.Node.LastStarted, s.startTimeout(), s.now)
}

// startTimeout is how long the machine may take from its start to ready.
func (s sight) startTimeout() time.Duration {
	if s.Node.Attestation == "" {
		return min(s.pool.StartTimeout, unattestedTimeout)
	}
	return s.pool.StartTimeout
}

// recovered: the machine was drained because it lost readiness, and has it again.
func recovered(s sight) bool {
	return s.intent().Reason == reasonUnready && s.Node.Ready && !s.pool.Deleting
}
