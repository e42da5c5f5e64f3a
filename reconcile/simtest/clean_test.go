package simtest_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// 60 histories of each program are about a million steps.
var histories = flag.Int("histories", 0, "how many histories of each sound program to simulate; 0 is 2")

// many returns how many histories to simulate.
func many() int {
	if *histories > 0 {
		return *histories
	}
	return 2
}

// sound are programs without a known defect.
var sound = map[string]func(context.Context, http.RoundTripper) error{
	"controller": controller{}.start,
	"operator":   runOperator,
}

// always is for scenarios that keep nothing between two calls.
func always(s simtest.Scenario) func() simtest.Scenario { return func() simtest.Scenario { return s } }

func soundScenario(name string) simtest.Scenario {
	s := scenario(controller{})
	s.Program = sound[name]
	return s
}

// TestASoundProgramRaisesNoAlarm simulates histories of programs without a known
// defect. They end within the bound, and do not write in the 24 hours after it.
func TestASoundProgramRaisesNoAlarm(t *testing.T) {
	t.Parallel()
	steps, writes, start, virtual := 0, 0, time.Now(), time.Duration(0)
	for name := range sound {
		for seed := range uint64(many()) {
			r := simtest.Simulate(t, func() simtest.Scenario { return soundScenario(name) }, seed+1)
			require.Empty(t, r.Wrong, "%s, seed %d", name, seed+1)
			require.Positive(t, r.Lives)
			steps, writes, virtual = steps+r.Steps, writes+r.RestWrites, virtual+r.Virtual
		}
	}
	ratio := int(virtual / time.Since(start))
	fmt.Printf("figure sim_false_alarms 0 count\nfigure sim_clean_steps %d count\n", steps)
	fmt.Printf("figure sim_writes_in_24h_after %d count\nfigure sim_speed_ratio %d x\n", writes, ratio)
}

// TestChanceRaisesNoAlarm has the caches of client-go filled in random order.
func TestChanceRaisesNoAlarm(t *testing.T) {
	t.Parallel()
	for seed := range uint64(many()) {
		s := scenario(controller{resync: 10 * time.Minute})
		s.WatchList = true
		r := simtest.Simulate(t, always(s), seed+1)
		require.Empty(t, r.Wrong, "seed %d", seed+1)
		require.Contains(t, r.Trace, "watch parts.example.com: 200")
		require.NotContains(t, r.Trace, "watch parts.example.com: 422")
	}
}

// TestOneSeedIsOneTrace has the program that leaves nothing to chance. The informers
// of the other one do, in about one history of a hundred.
func TestOneSeedIsOneTrace(t *testing.T) {
	t.Parallel()
	traces := map[string]bool{}
	for seed := range uint64(many()) {
		s := soundScenario("operator")
		s.Rest = time.Hour
		once, again := simtest.Simulate(t, always(s), seed+1), simtest.Simulate(t, always(s), seed+1)
		if once.Trace != again.Trace {
			require.Equal(t, strings.Split(once.Trace, "\n"), strings.Split(again.Trace, "\n"), "seed %d", seed+1)
		}
		require.False(t, traces[once.Trace], "another seed is another history")
		traces[once.Trace] = true
	}
	require.Len(t, traces, many())
	fmt.Printf("figure sim_same_trace 1\n")
}

// TestAProgramMayBeKilledAnywhere kills each program at every boundary of a history.
func TestAProgramMayBeKilledAnywhere(t *testing.T) {
	t.Parallel()
	boundaries, reached := 0, 0
	for name := range sound {
		if testing.Short() && name == "operator" {
			continue
		}
		s := soundScenario(name)
		s.Edits = 2 + many()/4
		c := simtest.Sweep(t, always(s), 1)
		for _, r := range c.Failed {
			require.Empty(t, r.Wrong, "%s, seed %d, cut %q", name, r.Seed, r.Cut)
		}
		require.Greater(t, c.Boundaries, 40)
		boundaries, reached = boundaries+c.Boundaries, reached+c.Reached
	}
	require.Equal(t, boundaries, reached)
	fmt.Printf("figure sim_boundaries_reached %d count\nfigure sim_crash_boundaries_percent %d %%\n", reached, 100*reached/boundaries)
}
