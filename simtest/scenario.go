package simtest

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

// Touch has another client change an annotation of the object that a request is
// about to write, so that the preconditions of the request fail. It is a
// disturbance in addition to applytest's.
const Touch applytest.Disturbance = "touch the object of"

// Scenario is a program and what it has to achieve. The functions are called one
// at a time. Those that get a World must not wait.
type Scenario struct {
	// Kinds are the kinds that the API server serves. Required.
	Kinds []Kind

	// Admit, Fields and WatchList are as in [Server].
	Admit     func(Object) error
	Fields    FieldManager
	WatchList bool

	// Program is the program, from its start with no memory to its end: it returns
	// when ctx ends, once its goroutines have ended. All its requests go through
	// net. If it returns before, it is started again up to 20 seconds later.
	// Required.
	Program func(ctx context.Context, net http.RoundTripper) error

	// Start makes the objects that exist from the start. Default nil, which is none.
	Start func(*World)

	// Edit makes one change of the desired state, drawn from World.Random. Required.
	Edit func(*World)

	// Edits is how many changes are made, half of them within 200 milliseconds of the
	// one before, the others within 30 seconds. Default 20.
	Edits int

	// Check is called after each write that changed an object, by the program or
	// another client, and returns an error for what must never happen. Default nil,
	// which is no check.
	Check func(*World, Change) error

	// Converged returns an error if the world is not as it is desired. It is called
	// once the program has had Settle without faults. Default nil, which is no check.
	Converged func(*World) error

	// State returns the state to compare with another world that has the same desired
	// state. It contains nothing that may differ, such as UIDs. Default World.State.
	State func(*World) string

	// Settle is how long after the last fault the program may take to converge.
	// Default 30 minutes, since the queues of client-go wait for up to 17.
	Settle time.Duration

	// Requests is how many requests the program may send in a minute without faults.
	// Default 1000.
	Requests int

	// Rest is for how long a converged program must not write. In the middle it is
	// stopped and started again. Writes of Leases do not count. Default 24 hours.
	Rest time.Duration

	// Disturbances are what the seed chooses from. Default KillBefore, KillAfter,
	// LoseRequest, LoseAnswer, ServerError, Throttle, CutWatches and ExpireWatches
	// of applytest, and Touch. FreezeWatches is not used: each watch has a delay of
	// its own anyway.
	Disturbances []applytest.Disturbance

	// Histories is how many seeds Run simulates, from 1 on. The environment
	// variable SIMTEST_HISTORIES overrides it. Default 20.
	Histories int
}

// Cut is one disturbance at one request of a history without other faults.
type Cut struct {
	// Request is which request, counted from 1 in the order in which they are
	// served. 0 is no cut.
	Request int
	// What is done there.
	What applytest.Disturbance
}

// String returns the cut as SIMTEST_CUT takes it: 12 kill after.
func (c Cut) String() string { return fmt.Sprintf("%d %s", c.Request, c.What) }

// Report is how one history went.
type Report struct {
	// Seed and Cut are which history it was.
	Seed uint64
	Cut  Cut
	// Wrong has what should not have happened, in order. It is empty if all is well.
	// A history ends with the first phase in which something was wrong.
	Wrong []string
	// Trace has a line for each thing that happened, with the virtual time since the
	// start. It is the same, byte for byte, for each simulation of the history.
	Trace string
	// Steps counts the things that happened one by one: requests, deliveries of
	// events, starts and ends. Requests counts the requests of the program,
	// RestWrites those that wrote during Rest, Lives the starts of the program.
	Steps, Requests, RestWrites, Lives int
	// Virtual is how much time passed in the bubble.
	Virtual time.Duration
	// State is the end state.
	State string

	reached string   // the request that was cut
	served  []string // the requests in order
}

// Run simulates histories with faults, and then kills the program before and after
// each request of the history of seed 1 without faults. It fails the test with the
// first history in which something is wrong, and logs the line to repeat it with.
//
// With the environment variable SIMTEST_SEED it simulates that one history, or
// with SIMTEST_CUT too that one cut of it, and logs its trace.
//
// Run must not be called in a bubble of testing/synctest: each history has its own.
func (s Scenario) Run(t *testing.T) {
	t.Helper()
	if text := os.Getenv("SIMTEST_SEED"); text != "" {
		s.repeat(t, text, os.Getenv("SIMTEST_CUT"))
		return
	}
	histories := cmp.Or(s.Histories, 20)
	if text := os.Getenv("SIMTEST_HISTORIES"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("SIMTEST_HISTORIES is %q; want a number above 0", text)
		}
		histories = n
	}
	steps := 0
	for seed := range histories {
		r := s.Simulate(t, uint64(seed)+1)
		steps += r.Steps
		if len(r.Wrong) > 0 {
			t.Fatalf("%s\nreproduce: %s", strings.Join(r.Wrong, "\n"), r.reproducer(t))
		}
	}
	c := s.Sweep(t, 1)
	for _, r := range c.Failed {
		t.Errorf("%s: %s\nreproduce: %s", r.Cut, strings.Join(r.Wrong, "\n"), r.reproducer(t))
	}
	t.Logf("%d histories of %d steps; killed at %d of %d boundaries", histories, steps, c.Reached, c.Boundaries)
}

func (s Scenario) repeat(t *testing.T, seed, cut string) {
	t.Helper()
	p := plan{calm: cut != ""}
	var err error
	if p.seed, err = strconv.ParseUint(seed, 10, 64); err != nil {
		t.Fatalf("SIMTEST_SEED is %q; want a number", seed)
	}
	if cut != "" {
		number, what, _ := strings.Cut(cut, " ")
		if p.cut.Request, err = strconv.Atoi(number); err != nil {
			t.Fatalf("SIMTEST_CUT is %q; want a number and a disturbance", cut)
		}
		p.cut.What = applytest.Disturbance(what)
	}
	r := s.bubble(t, p)
	t.Log(r.Trace)
	if len(r.Wrong) > 0 {
		t.Fatal(strings.Join(r.Wrong, "\n"))
	}
}

// reproducer is the command that repeats the history alone.
func (r *Report) reproducer(t *testing.T) string {
	t.Helper()
	cut := ""
	if r.Cut.Request > 0 {
		cut = fmt.Sprintf("SIMTEST_CUT='%s' ", r.Cut)
	}
	return fmt.Sprintf("SIMTEST_SEED=%d %sgo test -count=1 -v -run '^%s$'", r.Seed, cut, strings.ReplaceAll(t.Name(), "/", "$/^"))
}

// Simulate simulates the history of a seed, with faults. It fails the test only if
// the scenario is invalid: what went wrong is in the Report.
func (s Scenario) Simulate(t *testing.T, seed uint64) *Report {
	t.Helper()
	return s.bubble(t, plan{seed: seed})
}

// bubble simulates a history in virtual time.
func (s Scenario) bubble(t *testing.T, p plan) (r *Report) {
	t.Helper()
	switch {
	case len(s.Kinds) == 0:
		t.Fatal("simtest: Scenario.Kinds: is required")
	case s.Program == nil:
		t.Fatal("simtest: Scenario.Program: is required")
	case s.Edit == nil:
		t.Fatal("simtest: Scenario.Edit: is required")
	}
	synctest.Test(t, func(t *testing.T) { r = s.simulate(t.Context(), p) })
	return r
}

func (s *Scenario) disturbances() []applytest.Disturbance {
	if s.Disturbances != nil {
		return s.Disturbances
	}
	return []applytest.Disturbance{
		applytest.KillBefore, applytest.KillAfter, applytest.LoseRequest, applytest.LoseAnswer, applytest.ServerError,
		applytest.Throttle, applytest.CutWatches, applytest.ExpireWatches, Touch,
	}
}

// kills reports whether a disturbance ends the program.
func kills(d applytest.Disturbance) bool {
	return d == applytest.KillBefore || d == applytest.KillAfter
}
