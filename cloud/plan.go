//trueup:pure

package cloud

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Plan is the next actions of a pool, with reasons. Plans are values: making one
// changes nothing.
type Plan struct {
	// Actions are in the order in which they are carried out.
	Actions []Action
	// Holds are the reasons why actions were held back.
	Holds []Hold
	// Counts are the machines as they are now.
	Counts Counts
	// Memory is for the next Plan.
	Memory Memory
	// Done reports that a pool that is being deleted has no machines left, and no
	// launch that may still create one.
	Done bool
	// Machines says of each machine what is done with it, or what it waits for. It has those
	// that the pool knows of and no list shows, too.
	Machines []MachineView
	// Wake is when the next plan could differ although nothing has changed;
	// zero if never.
	Wake time.Time
}

// Counts are the machines of a pool by state.
type Counts struct {
	Warmup, Standby, Running, Terminating int
	// Ready is how many of Standby attested their warm-up and are stopped. Only these
	// count for MinStandby.
	Ready int
	// Startable is how many of Standby have a Node. No pod starts one without, and it ends
	// Pool.StartTimeout after its Node went.
	Startable int
	// Launching is how many machines were requested and are in no list yet.
	Launching int
	// Coming is how many machines will become standby: the machines in warm-up plus
	// Launching. It is for [demand.Supply.Coming].
	Coming int
	// Missing is how many machines are not in the list.
	Missing int
	// Total is all machines. A launch never makes it exceed the size of the pool.
	Total int
}

// A MachineView is what a plan says of one machine.
type MachineView struct {
	ID string
	// Node is the name of its Node, also of one that was deleted; empty if it never had one.
	// Joined reports that the Node is there.
	Node   string
	Joined bool
	State  State
	// Instance is the state in the cloud, empty for a machine that is in no list.
	Instance InstanceState
	// Coming reports that the machine is one of Counts.Coming.
	Coming     bool
	Zone       string
	LaunchTime time.Time
	// Reason is what is done with the machine, or what it waits for, for people.
	Reason string
}

// String renders the view as one line.
func (v MachineView) String() string {
	text := v.ID
	if v.Node != "" {
		text += " (" + v.Node + ")"
	}
	return fmt.Sprintf("%s is %s, %s in the cloud: %s", text, v.State, cmp.Or(v.Instance, "in no list"), v.Reason)
}

// String renders the plan for a dry run: a line for each action and hold.
func (p Plan) String() string {
	var b strings.Builder
	c := p.Counts
	fmt.Fprintf(&b, "machines: %d (warmup %d, standby %d, running %d, terminating %d, launching %d, missing %d)\n",
		c.Total, c.Warmup, c.Standby, c.Running, c.Terminating, c.Launching, c.Missing)
	for _, a := range p.Actions {
		b.WriteString(a.String() + "\n")
	}
	for _, hold := range p.Holds {
		b.WriteString("held back: " + hold.String() + "\n")
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
	pl.checkList()
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
		pl.heed()
		pl.disrupt()
		pl.repair()
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
	// listUntrusted: too many machines are missing from the list to act on it.
	listUntrusted bool
	plan          Plan
}

func (pl *planner) add(a Action) { pl.plan.Actions = append(pl.plan.Actions, a) }

func (pl *planner) hold(kind HoldKind, format string, args ...any) {
	pl.plan.Holds = append(pl.plan.Holds, Hold{Kind: kind, Message: fmt.Sprintf(format, args...)})
}

func (pl *planner) wake(at time.Time) {
	if at.After(pl.now) && (pl.plan.Wake.IsZero() || at.Before(pl.plan.Wake)) {
		pl.plan.Wake = at
	}
}

// blind plans without a list. Starting a standby machine, known from its Node, cannot
// create one machine too many.
func (pl *planner) blind() {
	pl.hold(HoldListFailed, "the list of machines failed: %v", pl.seen.ListError)
	pl.count()
	for _, id := range pl.want.Start {
		if i := slices.IndexFunc(
			pl.machines,
			func(m Machine) bool { return m.ID == id },
		); i >= 0 && pl.machines[i].Use == StateStandby &&
			!pl.pool.Deleting {
			pl.add(pl.action(pl.machines[i], rule{verb: Start, to: StateRunning}, order{Start, reasonDemand}))
		}
	}
}

// observe updates the memory by the list.
func (pl *planner) observe() {
	old := pl.plan.Memory.Machines
	pl.plan.Memory.Machines = make(map[string]MachineHistory, len(pl.machines))
	for _, m := range pl.machines {
		s, known := old[m.ID]
		if !known || s.State != m.State {
			s.State, s.Since = m.State, pl.seen.Listed
		}
		s.Listed = s.Listed || m.State != "" || m.Node != nil
		s.Recalled = s.Recalled && m.State == ""
		switch {
		case m.Node != nil:
			s.NoNode, s.Nodeless = time.Time{}, false
		case s.NoNode.IsZero():
			s.NoNode = pl.now
		}
		switch {
		case m.Use != StateRunning || m.Node == nil || m.Node.Ready || m.Node.Starting:
			s.Unready = time.Time{}
		case s.Unready.IsZero():
			s.Unready = pl.now
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

// checkList holds actions back if too many machines are missing from the list.
func (pl *planner) checkList() {
	missing, budget := pl.plan.Counts.Missing, pl.pool.budget(len(pl.machines))
	if missing > budget {
		pl.listUntrusted = true
		pl.hold(
			HoldShortList,
			"%d of %d machines are missing from the list, at most %d may be deleted at once: nothing is launched or terminated",
			missing,
			len(pl.machines),
			budget,
		)
	}
}

// decideAll looks up each machine in the table.
func (pl *planner) decideAll() {
	launched := pl.launched()
	for _, m := range pl.machines {
		s := sight{
			Machine:  m,
			pool:     pl.pool,
			now:      pl.now,
			listed:   pl.seen.Listed,
			order:    pl.orders[m.ID],
			seen:     pl.plan.Memory.Machines[m.ID].Since,
			noNode:   pl.plan.Memory.Machines[m.ID].NoNode,
			reserved: pl.seen.Reserved[m.ID],
			launched: launched[m.ID],
			ending:   pl.plan.Memory.Machines[m.ID].Ending,
		}
		r := decide(s)
		pl.view(m, r, s.order)
		if pl.calls(m, r) && pl.throttled() {
			continue
		}
		pl.noteFailure(m, r)
		pl.wakeFor(s, r)
		switch {
		case r.verb == "":
			if wrong := pl.mistagged(m); wrong != "" {
				pl.add(Action{Verb: Retag, Machine: m.ID, Node: m.NodeName, From: m.Use, To: m.Use, Reason: wrong})
			}
		case r.verb == Terminate && pl.listUntrusted && !pl.pool.Deleting:
			// Held back: the list is not trusted.
		default:
			pl.add(pl.action(m, r, s.order))
		}
	}
}

// view adds what a row does with a machine.
func (pl *planner) view(m Machine, r rule, o order) {
	reason := cmp.Or(r.reason, o.reason)
	if r.verb == "" && m.Node == nil && (m.Use == StateStandby || m.Use == StateRunning) {
		reason = fmt.Sprintf("its Node was deleted: it ends %s later", pl.pool.StartTimeout)
	}
	pl.plan.Machines = append(pl.plan.Machines, MachineView{
		ID: m.ID, Node: m.NodeName, Joined: m.Node != nil, State: m.Use, Instance: m.State, Coming: pl.coming(m),
		Zone: m.AvailabilityZone, LaunchTime: m.LaunchTime, Reason: reason,
	})
}

// calls reports whether the row of a machine calls the cloud. A change of state does:
// it is written to the tag.
func (pl *planner) calls(m Machine, r rule) bool {
	switch r.verb {
	case "":
		return pl.mistagged(m) != ""
	case MarkEmpty, ClearEmpty:
		return false
	default:
		return r.verb != Drain || r.to != ""
	}
}

// mistagged returns what is wrong with the tags of a machine, empty if they agree with its
// Node or may be late: the list lags. Without the name of the Node, nothing knows it once
// the Node is deleted.
func (pl *planner) mistagged(m Machine) string {
	if m.State == "" || m.State.Ending() || m.Node == nil || !m.Node.State.valid() || !after(m.since(), absenceAge, pl.seen.Listed) {
		return ""
	}
	if m.Tagged != m.Use {
		return fmt.Sprintf("its tag says %q", m.Tagged)
	}
	if name := pl.pool.Scope.node(m.Instance); name != m.NodeName {
		return fmt.Sprintf("its tag names the Node %q", name)
	}
	return ""
}

// action makes the action of a row.
func (pl *planner) action(m Machine, r rule, o order) Action {
	a := Action{
		Verb:      r.verb,
		Machine:   m.ID,
		Node:      m.NodeName,
		Seen:      m.State,
		Placement: Placement{m.InstanceType, m.AvailabilityZone},
		From:      m.Use,
		To:        m.Use,
		Reason:    r.reason,
	}
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

// noteFailure counts each machine whose warm-up failed once, and resets the count when
// one succeeds.
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
		memory.Failures, memory.FailureReason = 0, ""
		if memory.Refused.Count == 0 { // a machine of an earlier launch says nothing of the next one
			memory.LaunchAfter = time.Time{}
		}
	default:
		return
	}
	memory.Machines[m.ID] = s
}
