package cloudtest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// An Invoice is the machine time of a [Fake]: the cost of a policy.
type Invoice []InvoiceLine

// An InvoiceLine is the time that all machines of a type spent in a state.
type InvoiceLine struct {
	InstanceType string
	State        cloud.InstanceState
	Time         time.Duration
}

// Invoice returns the time of all machines from their launch until now or their
// end, by type and state, in the order of both.
func (f *Fake) Invoice() Invoice {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	type key struct {
		instanceType string
		state        cloud.InstanceState
	}
	used := map[key]time.Duration{}
	for _, m := range f.machines {
		for n, e := range m.states {
			until := now
			if n+1 < len(m.states) && m.states[n+1].at.Before(now) {
				until = m.states[n+1].at
			}
			if e.state != cloud.InstanceTerminated && until.After(e.at) {
				used[key{m.InstanceType, e.state}] += until.Sub(e.at)
			}
		}
	}
	var out Invoice
	for k, d := range used {
		out = append(out, InvoiceLine{k.instanceType, k.state, d})
	}
	slices.SortFunc(out, func(a, b InvoiceLine) int {
		return cmp.Or(cmp.Compare(a.InstanceType, b.InstanceType), cmp.Compare(a.State, b.State))
	})
	return out
}

// Time returns the time that all machines spent in the states.
func (v Invoice) Time(states ...cloud.InstanceState) time.Duration {
	var d time.Duration
	for _, line := range v {
		if slices.Contains(states, line.State) {
			d += line.Time
		}
	}
	return d
}

// String renders a line for each type and state, with machine-seconds.
func (v Invoice) String() string {
	var b strings.Builder
	for _, line := range v {
		fmt.Fprintf(&b, "%-12s %-14s %10.0f machine-seconds\n", line.InstanceType, line.State, line.Time.Seconds())
	}
	return b.String()
}
