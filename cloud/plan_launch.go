//trueup:pure

package cloud

import (
	"fmt"
	"slices"
	"time"
)

// tagged returns the machines in the list that carry the tag of a launch,
// terminated ones included.
func (pl *planner) tagged(l LaunchIntent) []string {
	var ids []string
	for _, i := range pl.seen.Instances {
		if pl.pool.Scope.operation(i) == l.Operation && pl.pool.Scope.Owns(i) {
			ids = append(ids, i.ID)
		}
	}
	return ids
}

// outstanding is how many unknown machines of a launch may exist, or may be created by
// repeating it. Ended machines do not count: if all have ended, the launch is made
// again.
func (pl *planner) outstanding(l LaunchIntent) int {
	if len(l.IDs) > 0 {
		return 0
	}
	left := l.Count
	for _, i := range pl.seen.Instances {
		if !i.State.Ending() && pl.pool.Scope.operation(i) == l.Operation && pl.pool.Scope.Owns(i) {
			left--
		}
	}
	return max(0, left)
}

// launched has the machines that recorded launches name.
func (pl *planner) launched() map[string]bool {
	ids := map[string]bool{}
	for _, l := range pl.seen.Launches {
		for _, id := range l.IDs {
			ids[id] = true
		}
	}
	return ids
}

// openLaunches looks after the recorded launches: it repeats those without an
// answer, adopts their machines by tag, and drops those whose machines all have
// a Node or have ended.
func (pl *planner) openLaunches() {
	for _, l := range pl.seen.Launches {
		a := Action{Operation: l.Operation, Ordinal: l.Ordinal, Attempt: l.Attempt, Template: l.Template, Count: l.Count, Recorded: true}
		if len(l.IDs) > 0 {
			if unsure, resolved := pl.resolved(l); resolved {
				a.Verb, a.IDs, a.Reason = Abandon, unsure, "each of its machines has a Node or has ended"
				pl.add(a)
			}
			continue
		}
		template, known := pl.pool.template(l.Template)
		place := Placement{template.InstanceType, template.Zone}
		repeatable := known && template.Hash == l.Hash && !after(l.Since, tokenLifetime, pl.now) && !pl.pool.Deleting
		held := pl.listUntrusted || pl.plan.Memory.IsBlocked(place, pl.now) || pl.now.Before(pl.plan.Memory.LaunchAfter)
		tagged := pl.tagged(l)
		switch {
		case len(tagged) >= l.Count:
			a.Verb, a.IDs, a.Reason = Confirm, tagged, "its machines are in the list"
			pl.add(a)
		case repeatable:
			if !held && !pl.throttled() {
				a.Verb, a.Placement, a.Reason = Launch, place, "its answer was never recorded"
				pl.add(a)
			}
		case pl.proven(l) && len(tagged) > 0:
			a.Verb, a.IDs, a.Reason = Confirm, tagged, "two complete lists have no more of its machines"
			pl.add(a)
		case pl.proven(l):
			a.Verb, a.Reason = Abandon, "two complete lists have none of its machines"
			pl.add(a)
		default:
			pl.hold(HoldLaunchUnproven, "launch %s of %d machines is not in the list yet", l.Operation, l.Count)
			pl.wake(l.Since.Add(absenceAge))
		}
	}
}

// resolved reports whether each machine of a launch has a Node or has ended, and which
// of them are only missing from the lists.
func (pl *planner) resolved(l LaunchIntent) (unsure []string, resolved bool) {
	for _, id := range l.IDs {
		m, h := pl.machine(id), pl.plan.Memory.Machines[id]
		switch {
		case m.ID == "" || m.Node != nil || m.State.Ending():
		case m.State == "" && (h.Ending || after(h.Since, absenceAge, pl.seen.Listed)):
			unsure = append(unsure, id)
		default:
			return nil, false
		}
	}
	return unsure, true
}

// proven reports whether two complete lists, far enough apart, were made after
// the launch was recorded.
func (pl *planner) proven(l LaunchIntent) bool {
	if pl.listUntrusted { // absence from such a list is no proof
		delete(pl.plan.Memory.Unseen, l.Operation)
		return false
	}
	first, known := pl.plan.Memory.Unseen[l.Operation]
	if !known {
		if !pl.seen.Listed.After(l.Since) {
			return false
		}
		pl.plan.Memory.Unseen[l.Operation] = pl.seen.Listed
		return false
	}
	return after(first, absenceAge, pl.seen.Listed)
}

func (pl *planner) throttled() bool {
	until := pl.plan.Memory.ThrottledUntil
	if !pl.now.Before(until) {
		return false
	}
	pl.wake(until)
	if !slices.ContainsFunc(pl.plan.Holds, func(b Hold) bool { return b.Kind == HoldThrottled }) {
		pl.hold(HoldThrottled, "the cloud asks for no calls before %s", until.UTC().Format(time.RFC3339))
	}
	return true
}

// launch creates the missing machines: standby machines up to the goal, and those that
// pods need beyond the standby machines.
func (pl *planner) launch() {
	demand := 0
	for _, n := range pl.want.Launch {
		demand += n
	}
	at, have := pl.supply()
	wanted, short := pl.shortage(at)
	missing := 0
	for _, n := range short {
		missing += n
	}
	missing = max(missing, wanted+demand-have)
	if demand == 0 && missing <= 0 {
		// Report the failures although no pods are sent to a pool that may not launch, and while
		// the next machine warms up. After that they hold nothing back.
		held := pl.now.Before(pl.plan.Memory.LaunchAfter)
		pl.reportFailures(held || pl.plan.Counts.Coming > 0, held)
		pl.wake(pl.plan.Memory.LaunchAfter)
		return
	}
	room := pl.pool.Size - pl.plan.Counts.Total
	if missing > room && (demand > 0 || wanted > pl.pool.MinStandby) {
		pl.hold(HoldPoolFull, "%d more machines are wanted, there is room for %d of a size of %d", missing, max(0, room), pl.pool.Size)
	}
	n := min(missing, room)
	if n > 0 && pl.mayLaunch() {
		pl.place(n, short, pl.launchReason(wanted, demand))
	}
	// Without room there is no launch that could show that the cause is gone.
	pl.reportFailures(true, n > 0 || pl.now.Before(pl.plan.Memory.LaunchAfter))
	pl.wake(pl.plan.Memory.LaunchAfter)
}

func (pl *planner) launchReason(wanted, demand int) string {
	reason := fmt.Sprintf("standby %d of %d", pl.plan.Counts.Ready, wanted)
	if wanted > pl.pool.MinStandby {
		reason += " for pods that may come"
	}
	if demand > 0 {
		reason += fmt.Sprintf(", pods need %d more", demand)
	}
	return reason
}

// mayLaunch reports whether no hold prevents launches.
func (pl *planner) mayLaunch() bool {
	memory := pl.plan.Memory
	if pl.listUntrusted || pl.throttled() {
		return false
	}
	if pl.now.Before(memory.LaunchAfter) {
		pl.wake(memory.LaunchAfter)
		return false
	}
	return true
}

// reportFailures reports the failures of warm-ups while a machine is tried, and the refusals
// of desired launches.
func (pl *planner) reportFailures(tried, wanted bool) {
	memory := pl.plan.Memory
	if tried && memory.Failures >= failuresInRow {
		pl.hold(
			HoldWarmupFailing,
			"%d warm-ups failed in a row, the last one because %s%s",
			memory.Failures,
			memory.FailureReason,
			memory.noLaunchBefore(),
		)
	}
	refused := memory.Refused.Count > 0 && (memory.Refused.Kind != HoldLaunchFailed || memory.Refused.Count >= failuresInRow)
	if wanted && refused {
		pl.hold(memory.Refused.Kind, "%s%s", memory.Refused.Message, memory.noLaunchBefore())
	}
}

func (m Memory) noLaunchBefore() string {
	if m.LaunchAfter.IsZero() {
		return ""
	}
	return "; no launch before " + m.LaunchAfter.UTC().Format(time.RFC3339)
}

// place spreads n launches: first the templates that pods need, then the places that
// are short of standby machines, the rest over the zones with the fewest machines.
// Templates without capacity are left out.
func (pl *planner) place(n int, short map[Placement]int, reason string) {
	open := slices.DeleteFunc(slices.Clone(pl.pool.Templates), func(t Template) bool {
		place := Placement{t.InstanceType, t.Zone}
		if !pl.plan.Memory.IsBlocked(place, pl.now) {
			return false
		}
		pl.wake(pl.plan.Memory.Blocked[place])
		return true
	})
	if len(open) == 0 {
		if len(pl.pool.Templates) > 0 {
			pl.hold(HoldNoCapacity, "the cloud has no capacity for any of %d templates", len(pl.pool.Templates))
		}
		return
	}
	counts := map[string]int{}
	for _, t := range open {
		if k := min(n, pl.want.Launch[t.Name]); k > 0 {
			counts[t.Name] += k
			short[Placement{t.InstanceType, t.Zone}] -= k
			n -= k
		}
	}
	for _, t := range open {
		place := Placement{t.InstanceType, t.Zone}
		if k := min(n, short[place]); k > 0 {
			counts[t.Name] += k
			short[place] -= k
			n -= k
		}
	}
	zones := map[string]int{}
	for _, m := range pl.machines {
		if !m.State.Ending() {
			zones[m.AvailabilityZone]++
		}
	}
	for _, t := range open {
		zones[t.Zone] += counts[t.Name]
	}
	for ; n > 0; n-- {
		best := open[0]
		for _, t := range open[1:] {
			if zones[t.Zone] < zones[best.Zone] {
				best = t
			}
		}
		counts[best.Name]++
		zones[best.Zone]++
	}
	ordinal := pl.seen.LastOrdinal
	for _, l := range pl.seen.Launches {
		ordinal = max(ordinal, l.Ordinal)
	}
	for _, t := range open {
		if counts[t.Name] == 0 {
			continue
		}
		ordinal++
		pl.add(
			Action{
				Verb:      Launch,
				Template:  t.Name,
				Placement: Placement{t.InstanceType, t.Zone},
				Count:     counts[t.Name],
				Operation: Token(pl.pool.Scope.PoolUID, ordinal, 0),
				Ordinal:   ordinal,
				Reason:    reason,
			},
		)
	}
}
