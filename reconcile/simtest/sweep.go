package simtest

import (
	"strings"
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

// Check fails the test with what was wrong, and if fewer boundaries were reached than percent
// of all. A program that leaves something to chance does not reach all: a request of the
// undisturbed history may not come again.
func (c Coverage) Check(t *testing.T, percent int) {
	t.Helper()
	for _, r := range c.Failed {
		t.Errorf("%s: %s", r.Cut, strings.Join(r.Wrong, "\n"))
	}
	if 100*c.Reached < percent*c.Boundaries {
		t.Errorf("%d of %d boundaries were reached, want %d %%", c.Reached, c.Boundaries, percent)
	}
}

// Sweep kills the program before and after each request of the history of a seed,
// one boundary in each simulation, without other faults. The program is started
// again, and has to reach the end of the same history without the kill, which is the
// end that it reaches without a history. The requests
// are those up to the end of Settle, lists and watches included. A request is known by
// its verb, its object, and how many like it came before. Where a program that leaves
// something to chance does not send it, the boundary is tried again, at most eleven times.
//
// The error of an undisturbed history is one failed Report, and no boundary is
// tried.
func Sweep(t *testing.T, scenario func() Scenario, seed uint64) Coverage {
	t.Helper()
	undisturbed := bubble(t, scenario, plan{seed: seed, calm: true})
	if len(undisturbed.Wrong) > 0 {
		return Coverage{Failed: []*Report{undisturbed}}
	}
	c := Coverage{Boundaries: 2 * len(undisturbed.served)}
	for i := range undisturbed.served {
		for _, what := range cuts() {
			for range 12 {
				p := plan{seed: seed, calm: true, end: undisturbed}.at(Cut{Request: i + 1, What: what}, undisturbed.served)
				r := bubble(t, scenario, p)
				if len(r.Wrong) > 0 {
					c.Failed = append(c.Failed, r)
				}
				if r.reached != "" {
					c.Reached++
				}
				if r.reached != "" || len(r.Wrong) > 0 {
					break
				}
			}
		}
	}
	return c
}

// cuts are what a sweep does at each request.
func cuts() []applytest.Disturbance {
	return []applytest.Disturbance{applytest.KillBefore, applytest.KillAfter}
}
