//trueup:pure

package cloud

import (
	"cmp"
	"slices"
	"time"
)

// standbyGoal is how many good standby machines the pool keeps: MinStandby, or more if
// they are requested for future pods.
func (pl *planner) standbyGoal() int {
	wanted := pl.want.Standby[""]
	for _, n := range pl.bound() {
		wanted += n
	}
	return min(max(pl.pool.MinStandby, wanted), pl.pool.Size)
}

// bound returns how many of the desired standby machines must be in which place.
func (pl *planner) bound() map[Placement]int {
	var at map[Placement]int
	for _, t := range pl.pool.Templates {
		if n := pl.want.Standby[t.Name]; n > 0 {
			if at == nil {
				at = map[Placement]int{}
			}
			at[Placement{t.InstanceType, t.Zone}] += n
		}
	}
	return at
}

// stock returns the good standby machines without an order, by place and in total.
func (pl *planner) stock() (at map[Placement]int, all int) {
	at = map[Placement]int{}
	for _, m := range pl.machines {
		if pl.counts(m) && pl.orders[m.ID].verb != Start {
			at[Placement{m.InstanceType, m.AvailabilityZone}]++
			all++
		}
	}
	return at, all
}

// supply returns the stock, and the machines that will join it: machines in warm-up,
// and launches.
func (pl *planner) supply() (at map[Placement]int, all int) {
	at, all = pl.stock()
	for _, m := range pl.machines {
		if pl.coming(m) && pl.orders[m.ID].verb != Terminate {
			at[pl.placeOf(m)]++
			all++
		}
	}
	for _, l := range pl.seen.Launches {
		n := pl.outstanding(l)
		if t, known := pl.pool.template(l.Template); known {
			at[Placement{t.InstanceType, t.Zone}] += n
		}
		all += n
	}
	return at, all
}

// placeOf returns where a machine is, or will be if no list has it yet.
func (pl *planner) placeOf(m Machine) Placement {
	if m.AvailabilityZone == "" {
		for _, l := range pl.seen.Launches {
			if t, known := pl.pool.template(l.Template); known && slices.Contains(l.IDs, m.ID) {
				return Placement{t.InstanceType, t.Zone}
			}
		}
	}
	return Placement{m.InstanceType, m.AvailabilityZone}
}

// shortage returns how many standby machines are missing, and how many must be launched
// into which place, given the machines that exist or are coming. Machines for a place
// without capacity are left out: elsewhere they would be of no use.
func (pl *planner) shortage(have map[Placement]int) (wanted int, short map[Placement]int) {
	wanted, short = pl.want.Standby[""], map[Placement]int{}
	bound := pl.bound()
	for _, t := range pl.pool.Templates {
		place := Placement{t.InstanceType, t.Zone}
		n := bound[place]
		if n == 0 {
			continue
		}
		delete(bound, place)
		if missing := n - have[place]; missing > 0 && pl.plan.Memory.IsBlocked(place, pl.now) {
			pl.hold(
				HoldNoCapacity,
				"the cloud has no capacity for %s in %s, where %d more standby machines are wanted",
				t.InstanceType,
				t.Zone,
				missing,
			)
			pl.wake(pl.plan.Memory.Blocked[place])
			wanted += have[place]
			continue
		}
		wanted += n
		if missing := n + pl.launchesAt(place) - have[place]; missing > 0 {
			short[place] = missing
		}
	}
	return max(pl.pool.MinStandby, wanted), short
}

// launchesAt is how many launches pods need in a place.
func (pl *planner) launchesAt(place Placement) int {
	n := 0
	for _, t := range pl.pool.Templates {
		if place == (Placement{t.InstanceType, t.Zone}) {
			n += pl.want.Launch[t.Name]
		}
	}
	return n
}

// standby returns the standby machines that are stopped and have no order yet,
// the first to go first: never attested, drifted, then the oldest.
func (pl *planner) standby() []Machine {
	rank := func(m Machine) int {
		switch {
		case !m.good(!pl.pool.BestEffortImages):
			return 0
		case m.drifted():
			return 1
		default:
			return 2
		}
	}
	type key struct {
		rank  int
		since time.Time
		at    int // in machines
	}
	var order []key
	for i, m := range pl.machines {
		if _, has := pl.orders[m.ID]; !has && m.Use == StateStandby && m.State == InstanceStopped {
			order = append(order, key{rank(m), m.since(), i})
		}
	}
	slices.SortStableFunc(order, func(a, b key) int { return cmp.Or(a.rank-b.rank, a.since.Compare(b.since)) })
	out := make([]Machine, len(order))
	for i, k := range order {
		out[i] = pl.machines[k.at]
	}
	return out
}
