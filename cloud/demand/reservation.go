//trueup:pure

package demand

import (
	"slices"
	"time"
)

// A Reservation reserves a started machine for certain pods, until they run on it.
// Without it the next plan would start one more machine for each pod that still waits.
type Reservation struct {
	Machine string   // the instance id
	Pods    []string // UIDs
	// Deadline is when the reservation ends and the pods may use another machine. It
	// follows from the expected time of a boot.
	Deadline time.Time
}

// Reserve returns the reservations with one for each standby machine that the
// result starts, until the deadline. Machines are named by [Node].Machine.
func Reserve(reservations []Reservation, result Result, deadline time.Time) []Reservation {
	out := slices.Clone(reservations)
	for _, p := range result.Placements {
		if p.On != OnStandby {
			continue
		}
		i := slices.IndexFunc(out, func(r Reservation) bool { return r.Machine == p.Node.Machine })
		if i < 0 {
			out = append(out, Reservation{Machine: p.Node.Machine, Deadline: deadline})
			i = len(out) - 1
		}
		if !slices.Contains(out[i].Pods, p.Pod.UID) {
			out[i].Pods = append(slices.Clone(out[i].Pods), p.Pod.UID)
		}
	}
	return out
}

// Settle returns the remaining reservations: without pods that no longer wait, and
// without machines that pods may no longer count on, because they failed to start, or are
// over their deadline. A machine that is ready holds until the scheduler has bound its pods.
func Settle(reservations []Reservation, waits, holds func(id string) bool, now time.Time) []Reservation {
	var out []Reservation
	for _, r := range reservations {
		r.Pods = slices.DeleteFunc(slices.Clone(r.Pods), func(uid string) bool { return !waits(uid) })
		if len(r.Pods) > 0 && holds(r.Machine) && now.Before(r.Deadline) {
			out = append(out, r)
		}
	}
	return out
}
