package simtest

import (
	"testing"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

// Coverage is what a sweep has found.
type Coverage struct {
	// Boundaries is how many there are: one before and one after each request of
	// the history. Reached is how many of them the program was killed at.
	Boundaries, Reached int
	// Failed has the histories in which something was wrong.
	Failed []*Report
}

// Sweep kills the program before and after each request of the history of a seed,
// one boundary in each simulation, without other faults. The program is started
// again, and has to reach the end that it reaches without a history. The requests
// are those up to the end of Settle, lists and watches included. Where a program
// that leaves something to chance sends another request than in the undisturbed
// history, it is killed there too, and the boundary is tried again, at most five
// times.
//
// The error of an undisturbed history is one failed Report, and no boundary is
// tried.
func (s Scenario) Sweep(t *testing.T, seed uint64) Coverage {
	t.Helper()
	undisturbed := s.bubble(t, plan{seed: seed, calm: true})
	if len(undisturbed.Wrong) > 0 {
		return Coverage{Failed: []*Report{undisturbed}}
	}
	c := Coverage{Boundaries: 2 * len(undisturbed.served)}
	for i, request := range undisturbed.served {
		for _, what := range []applytest.Disturbance{applytest.KillBefore, applytest.KillAfter} {
			for range 5 {
				r := s.bubble(t, plan{seed: seed, calm: true, cut: Cut{Request: i + 1, What: what}})
				if len(r.Wrong) > 0 {
					c.Failed = append(c.Failed, r)
				}
				if r.reached == request {
					c.Reached++
				}
				if r.reached == request || len(r.Wrong) > 0 {
					break
				}
			}
		}
	}
	return c
}
