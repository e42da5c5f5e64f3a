package simtest

import "sync/atomic"

// plan is which history is simulated.
type plan struct {
	seed uint64
	// calm has no faults but the cut.
	calm bool
	cut  Cut
	// story has what happens, instead of the seed. Nil: none.
	story *story
	beats *atomic.Int64 // for the watchdog
	// like and nth are the request that is cut: which of those that look like it. Empty:
	// the one of the number.
	like string
	nth  int
	// end is how the same history without the cut went. Nil: unknown.
	end *Report
}

// cuts reports whether a request is the one that is cut. served are those up to it, and
// it is the last.
func (p plan) cuts(request string, served []string) bool {
	if p.like == "" || p.like != request {
		return p.like == "" && p.cut.Request > 0 && p.cut.Request == len(served)
	}
	nth := 0
	for _, each := range served {
		if each == request {
			nth++
		}
	}
	return nth == p.nth
}

// at makes the plan cut the request that has a number in an undisturbed history.
func (p plan) at(c Cut, served []string) plan {
	p.cut = c
	if i := c.Request - 1; i >= 0 && i < len(served) {
		p.like = served[i]
		for _, each := range served[:i+1] {
			if each == p.like {
				p.nth++
			}
		}
	}
	return p
}
