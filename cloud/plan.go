//trueup:pure

package cloud

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Observed is the actual state of a pool.
type Observed struct {
	// Instances is the answer of ListInstances for the tags of the pool. It is
	// looked at only if ListError is nil.
	Instances []Instance
	// Listed is when that list was asked for. A plan may be made again from the
	// same list; it counts once.
	Listed time.Time
	// ListError is why there is no list. Without one the number of machines is
	// unknown: nothing is launched, stopped or terminated.
	ListError error

	// Nodes are the Nodes of the pool and of its machines.
	Nodes []NodeStatus

	// Launches are the recorded intents.
	Launches []LaunchIntent
	// LastOrdinal is the highest ordinal that was ever recorded.
	LastOrdinal int64

	// Reserved has the ids of machines that pods are on their way to.
	Reserved map[string]bool

	// Memory is that of the last Plan. It may be lost at any time: that costs
	// time, never a machine.
	Memory Memory
}

// Want is what pods need of a pool beyond the machines that run or start.
type Want struct {
	// Start are standby machines to start, most wanted first.
	Start []string
	// Launch is how many machines of each template are needed beyond those.
	Launch map[string]int
	// Standby is how many good standby machines are kept for pods that may come, by
	// the template that they have to be of; those under the empty name may be of any.
	// MinStandby is the floor of the sum, Size its ceiling. A name that is none of the
	// pool's templates is ignored.
	Standby map[string]int
}

// A Plan is what a pool does next, and why. Plans are values: making one changes
// nothing.
type Plan struct {
	// Actions are in the order in which they are carried out.
	Actions []Action
	// Brakes are why something was not done.
	Brakes []Brake
	// Counts are the machines as they are now.
	Counts Counts
	// Memory is for the next Plan.
	Memory Memory
	// Done reports that a pool that is being deleted has no machines left, and
	// no launch that may still bring one.
	Done bool
	// Wake is when the next plan could differ although nothing has changed;
	// zero if never.
	Wake time.Time
}

// Counts are the machines of a pool by state.
type Counts struct {
	Warmup, Standby, Running, Terminating int
	// Ready is how many of Standby attested their warm-up and are stopped. Only
	// those count for MinStandby.
	Ready int
	// Launching is how many machines were asked for and are in no list yet.
	Launching int
	// Missing is how many are not in the list.
	Missing int
	// Total is all of them: it never exceeds the size of the pool by a launch.
	Total int
}

// String renders the plan for a dry run: a line for each action and brake.
func (p Plan) String() string {
	var b strings.Builder
	c := p.Counts
	fmt.Fprintf(&b, "machines: %d (warmup %d, standby %d, running %d, terminating %d, launching %d, missing %d)\n",
		c.Total, c.Warmup, c.Standby, c.Running, c.Terminating, c.Launching, c.Missing)
	for _, a := range p.Actions {
		b.WriteString(a.String() + "\n")
	}
	for _, brake := range p.Brakes {
		b.WriteString("held back: " + brake.String() + "\n")
	}
	return b.String()
}

// Plan decides what to do next. It is pure: the same arguments give the same
// plan. The pool is expected to be valid; see [Pool.Validate].
func (p Pool) Plan(seen Observed, want Want, now time.Time) Plan {
	pl := planner{pool: p.withDefaults(), seen: seen, want: want, now: now, orders: map[string]order{}}
	pl.plan.Memory = seen.Memory.clone()
	pl.machines = Join(p.Scope, seen.Instances, seen.Nodes, seen.Launches)
	if seen.ListError != nil {
		pl.blind()
		return pl.plan
	}
	pl.observe()
	pl.count()
	pl.believe()
	pl.openLaunches()
	if pl.pool.Deleting {
		pl.orderAll(Terminate, reasonDeleting)
	} else {
		pl.orderStarts()
		pl.shrink()
		pl.dropUnattested()
		pl.dropSurplus()
		pl.rotate()
		pl.scaleDown()
	}
	pl.decideAll()
	pl.forgetWithinBudget()
	if !pl.pool.Deleting {
		pl.launch()
	}
	pl.plan.Done = pl.pool.Deleting && len(pl.machines) == 0 && len(seen.Launches) == 0
	return pl.plan
}

// planner is one call of Plan.
type planner struct {
	pool     Pool
	seen     Observed
	want     Want
	now      time.Time
	machines []Machine
	orders   map[string]order
	// disbelieved: too much is missing from the list to act on it.
	disbelieved bool
	plan        Plan
}

func (pl *planner) add(a Action) { pl.plan.Actions = append(pl.plan.Actions, a) }

func (pl *planner) hold(kind BrakeKind, format string, args ...any) {
	pl.plan.Brakes = append(pl.plan.Brakes, Brake{Kind: kind, Message: fmt.Sprintf(format, args...)})
}

func (pl *planner) wake(at time.Time) {
	if at.After(pl.now) && (pl.plan.Wake.IsZero() || at.Before(pl.plan.Wake)) {
		pl.plan.Wake = at
	}
}

// blind plans without a list. A standby machine is known from its Node, and
// starting it cannot make one machine too many.
func (pl *planner) blind() {
	pl.hold(BrakeListFailed, "the list of machines failed: %v", pl.seen.ListError)
	pl.count()
	for _, id := range pl.want.Start {
		if i := slices.IndexFunc(pl.machines, func(m Machine) bool { return m.ID == id }); i >= 0 && pl.machines[i].Use == StateStandby && !pl.pool.Deleting {
			pl.add(pl.action(pl.machines[i], rule{verb: Start, to: StateRunning}, order{Start, reasonDemand}))
		}
	}
}

// observe brings the memory up to the list.
func (pl *planner) observe() {
	old := pl.plan.Memory.Machines
	pl.plan.Memory.Machines = make(map[string]Sighting, len(pl.machines))
	for _, m := range pl.machines {
		s, known := old[m.ID]
		if !known || s.State != m.State {
			s.State, s.Since = m.State, pl.seen.Listed
		}
		s.Listed = s.Listed || m.State != "" || m.Node != nil
		switch {
		case m.Node != nil:
			s.NoNode = time.Time{}
		case s.NoNode.IsZero():
			s.NoNode = pl.now
		}
		pl.plan.Memory.Machines[m.ID] = s
	}
	ended := map[string]bool{}
	for _, i := range pl.seen.Instances {
		ended[i.ID] = i.State == InstanceTerminated
	}
	for id, s := range old {
		if _, known := pl.plan.Memory.Machines[id]; !known && !s.State.Ending() && !ended[id] {
			// It is in no list, and has lost its Node.
			if s.State != "" {
				s.State, s.Since = "", pl.seen.Listed
			}
			pl.plan.Memory.Machines[id] = s
			pl.machines = append(pl.machines, Machine{Instance: Instance{ID: id}, Use: StateWarmup})
		}
	}
	sortByID(pl.machines)
	maps.DeleteFunc(pl.plan.Memory.Unseen, func(operation string, _ time.Time) bool {
		return !slices.ContainsFunc(pl.seen.Launches, func(l LaunchIntent) bool { return l.Operation == operation })
	})
}

func (pl *planner) count() {
	c := &pl.plan.Counts
	for _, m := range pl.machines {
		if pl.seen.ListError == nil && m.State == InstanceTerminated {
			continue
		}
		c.Total++
		if pl.seen.ListError == nil && m.State == "" && pl.plan.Memory.Machines[m.ID].Listed {
			c.Missing++
		}
		switch m.Use {
		case StateWarmup:
			c.Warmup++
		case StateStandby:
			c.Standby++
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
}

// counts reports whether a standby machine counts for MinStandby.
func (pl *planner) counts(m Machine) bool {
	return m.Use == StateStandby && m.State == InstanceStopped && m.good(!pl.pool.BestEffortImages) && !m.drifted()
}

// believe applies the brake if too many machines are missing from the list.
func (pl *planner) believe() {
	missing, budget := pl.plan.Counts.Missing, pl.pool.budget(len(pl.machines))
	if missing > budget {
		pl.disbelieved = true
		pl.hold(BrakeShortList, "%d of %d machines are missing from the list, at most %d are believed to be gone: nothing is launched or terminated", missing, len(pl.machines), budget)
	}
}

// decideAll looks up each machine in the table.
func (pl *planner) decideAll() {
	for _, m := range pl.machines {
		s := sight{
			Machine: m, pool: pl.pool, now: pl.now, listed: pl.seen.Listed,
			order: pl.orders[m.ID], seen: pl.plan.Memory.Machines[m.ID].Since, noNode: pl.plan.Memory.Machines[m.ID].NoNode, reserved: pl.seen.Reserved[m.ID],
		}
		r := decide(s)
		pl.noteFailure(m, r)
		pl.wakeFor(s, r)
		switch {
		case r.verb == "":
			if pl.mistagged(m) {
				pl.add(Action{Verb: Retag, Machine: m.ID, Node: m.NodeName, From: m.Use, To: m.Use, Reason: fmt.Sprintf("its tag says %q", m.Tagged)})
			}
		case r.verb == Terminate && pl.disbelieved && !pl.pool.Deleting:
			// Held back by the brake.
		default:
			pl.add(pl.action(m, r, s.order))
		}
	}
}

// mistagged reports whether the tag of a machine has something else than its
// Node, and a list that lags is not the reason.
func (pl *planner) mistagged(m Machine) bool {
	return m.State != "" && !m.State.Ending() && m.Node != nil && m.Node.State.valid() && m.Tagged != m.Use && after(m.since(), pl.pool.AbsenceAge, pl.seen.Listed)
}

// action makes the action of a row.
func (pl *planner) action(m Machine, r rule, o order) Action {
	a := Action{Verb: r.verb, Machine: m.ID, Node: m.NodeName, Seen: m.State, Placement: Placement{m.InstanceType, m.AvailabilityZone}, From: m.Use, To: m.Use, Reason: r.reason}
	if r.to != "" {
		a.To = r.to
	}
	if a.Reason == "" {
		a.Reason = o.reason
	}
	if a.Verb == Adopt {
		a.From = m.Node.State
	}
	if a.To == StateTerminating && a.From != StateTerminating {
		a.Intent = Intent{Verb: Terminate, Reason: a.Reason, Since: pl.now}
		if o.verb == Stop && r.verb == Drain && r.reason == "" {
			a.Intent.Verb = Stop
		}
	}
	return a
}

// noteFailure counts a machine once whose warm-up failed, and forgets the count
// when one succeeds.
func (pl *planner) noteFailure(m Machine, r rule) {
	if m.Use != StateWarmup {
		return
	}
	memory, s := &pl.plan.Memory, pl.plan.Memory.Machines[m.ID]
	switch {
	case s.Failed || s.Warm:
	case (r.verb == Terminate || r.verb == ForceStop) && pl.orders[m.ID].verb == "":
		s.Failed = true
		memory.Failures++
		memory.FailureReason = r.reason
		if memory.Failures >= failuresInRow {
			wait := min(minLaunchBackoff<<min(memory.Failures-failuresInRow, 10), maxLaunchBackoff)
			memory.LaunchAfter = later(memory.LaunchAfter, pl.now.Add(wait))
		}
	case r.verb == Shelve && m.good(!pl.pool.BestEffortImages):
		s.Warm = true
		memory.Failures, memory.FailureReason, memory.LaunchAfter = 0, "", time.Time{}
	default:
		return
	}
	memory.Machines[m.ID] = s
}

// forgetWithinBudget lets a list that is not believed cost at most the budget,
// once in a while.
func (pl *planner) forgetWithinBudget() {
	if !pl.disbelieved {
		return
	}
	memory := &pl.plan.Memory
	if after(memory.Braked, brakeWindow, pl.now) || memory.Braked.IsZero() {
		memory.Braked, memory.Spent = pl.now, 0
	}
	left := pl.pool.budget(len(pl.machines)) - memory.Spent
	states := map[string]InstanceState{}
	for _, m := range pl.machines {
		states[m.ID] = m.State
	}
	pl.plan.Actions = slices.DeleteFunc(pl.plan.Actions, func(a Action) bool {
		if a.Verb != Forget || states[a.Machine] != "" {
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

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
