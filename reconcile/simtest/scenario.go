package simtest

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

// Scenario is a program and what it has to achieve. It is made for each world, so
// that what its functions keep between two calls is of one history. The functions
// are called one at a time. Those that get a World must not wait.
type Scenario struct {
	// Kinds are the kinds that the API server serves. Required.
	Kinds []Kind

	// Admit, Allow, Machinery and WatchList are as in [Server].
	Admit     func(*Admission) error
	Allow     func(applytest.Request) error
	Machinery Machinery
	WatchList bool

	// Rights returns an error for a request that the role which the program ships with does not
	// allow. Such a request is forbidden, and makes the history wrong. Rights of
	// reconcile/simtest/upstream reads it from manifests. Default nil: every request is allowed.
	Rights func(applytest.Request) error

	// Program is the program, from its start with no memory to its end: it returns
	// when ctx ends, once its goroutines have ended. All its requests go through
	// net. If it returns before, it is started again up to 20 seconds later.
	// Required.
	Program func(ctx context.Context, net http.RoundTripper) error

	// Older is an older version of the program, which runs beside it now and then, as in a
	// rolling update. Default nil: none does.
	Older func(ctx context.Context, net http.RoundTripper) error

	// Unserved are requests that the simulated server may refuse although a real one
	// serves them, since the program expects such a server: beginnings of requests
	// as they stand in a trace, such as "list gateways". Any other such request makes
	// the history wrong. Default none.
	Unserved []string

	// ReadOnly is whether the program is made to write nothing. Otherwise a history is
	// wrong in which there was something to do and the server accepted no write.
	ReadOnly bool

	// Start makes the objects that exist from the start. Default nil, which is none.
	Start func(*World)

	// Actors are others who work in the world, such as a [Kubelet]. Each is called
	// after each write that changed an object, also after its own, and acts at once
	// or with World.After. They act in every world, with and without faults.
	Actors []func(*World, Change)

	// Edit makes one change of the desired state, drawn from World.Random. Required.
	Edit func(*World)

	// Edits is how many changes are made, half of them within 200 milliseconds of the
	// one before, the others within Pause. Default 20.
	Edits int

	// Pause is the longest time between two edits. Default 30 seconds.
	Pause time.Duration

	// Check is called after each write that changed an object, by the program or
	// another client, and returns an error for what must never happen. Default nil,
	// which is no check.
	Check func(*World, Change) error

	// Converged returns an error if the world is not as it is desired. It is called
	// once the program has had Settle without faults. Default nil, which is no check.
	Converged func(*World) error

	// Bounds are the bounds of time that the program has to keep, and Recovery is how long after
	// a disturbance its bounds may begin again: the longest time until it tries again. Default
	// 5 minutes.
	Bounds   []Bound
	Recovery time.Duration

	// State returns the state to compare with another world that has the same desired
	// state. It contains nothing that may differ, such as UIDs. Default World.State.
	State func(*World) string

	// End is called once when the world has ended, to release what its functions hold, such
	// as a database. Default nil.
	End func(*World)

	// Settle is how long after the last fault the program may take to converge.
	// Default 30 minutes, since the queues of client-go wait for up to 17.
	Settle time.Duration

	// Requests is how many requests the program may send in a minute without faults.
	// Default 1000.
	Requests int

	// Rest is for how long a converged program must not write. In the middle it is
	// stopped and started again. Writes of Leases do not count. Default 24 hours.
	Rest time.Duration

	// Prompt is whether all requests are answered within milliseconds, unless a habit has it
	// otherwise. Default false: some take up to 3 seconds while there are faults.
	Prompt bool

	// Habits are habits of this scenario's own.
	Habits []Habit

	// Reannounces is whether the program may create Events at rest once it was started
	// again, for what it has found. Default false: Events are writes.
	Reannounces bool

	// Refreshes is how often the program may write each object within Rest without a change
	// of it, other than of its managedFields. Default 0.
	Refreshes int

	// Disturbances are what the seed chooses from. Default all of [Habits] and of the field
	// Habits.
	Disturbances []applytest.Disturbance

	// Without are disturbances to leave out. The environment variable
	// SIMTEST_WITHOUT, a list with commas, adds to them.
	Without []applytest.Disturbance

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

	reached  string   // the request that was cut
	served   []string // the requests in order
	desired  []Object // what the user wants at the end
	accepted int      // writes of the program
	story    *story   // nil for one with a cut
}

// Run simulates histories with faults, and then kills the program before and after
// each request of the history of seed 1 without faults. scenario is called for each
// world. The test fails with the first history in which something is wrong, and logs
// the line to repeat it with. Before, it looks for up to 30 seconds for a smaller history
// that goes wrong in the same way, and writes that as a story for [Replay], and its trace as
// a page of HTML, into the folder for temporary files.
//
// With the environment variable SIMTEST_SEED it simulates that one history, or
// with SIMTEST_CUT too that one cut of it, and logs its trace. With SIMTEST_SURVEY
// it simulates that many histories, and logs what [Survey] finds. With SIMTEST_STORY it
// replays the story in that file.
//
// Run must not be called in a bubble of testing/synctest: each history has its own.
func Run(t *testing.T, scenario func() Scenario) {
	t.Helper()
	if !histories(t, scenario) {
		return
	}
	c := Sweep(t, scenario, 1)
	for _, r := range c.Failed {
		t.Errorf("%s: %s\nreproduce: %s", r.Cut, strings.Join(r.Wrong, "\n"), r.reproducer(t))
	}
	t.Logf("killed at %d of %d boundaries", c.Reached, c.Boundaries)
}

// Histories is Run without the sweep.
func Histories(t *testing.T, scenario func() Scenario) {
	t.Helper()
	histories(t, scenario)
}

// histories reports whether the environment asks for no single history and no survey.
func histories(t *testing.T, scenario func() Scenario) bool {
	t.Helper()
	if file := os.Getenv("SIMTEST_STORY"); file != "" {
		if r := Replay(t, scenario, file); len(r.Wrong) == 0 {
			t.Log(r.Trace)
		}
		return false
	}
	if text := os.Getenv("SIMTEST_SEED"); text != "" {
		repeat(t, scenario, text, os.Getenv("SIMTEST_CUT"))
		return false
	}
	if n := number(t, "SIMTEST_SURVEY", 0); n > 0 {
		found := Survey(t, scenario, n)
		if len(found.Symptoms) > 0 {
			t.Fatal(found)
		}
		t.Log(found)
		return false
	}
	histories := number(t, "SIMTEST_HISTORIES", cmp.Or(scenario().Histories, 20))
	steps, accepted := 0, 0
	for seed := range histories {
		r := Simulate(t, scenario, uint64(seed)+1)
		steps += r.Steps
		accepted += r.accepted
		if len(r.Wrong) > 0 {
			t.Fatalf("%s\nreproduce: %s\n%s", strings.Join(r.Wrong, "\n"), r.reproducer(t), explain(t, scenario, r))
		}
	}
	if accepted == 0 && !scenario().ReadOnly {
		t.Fatal("in all histories: " + noWrite)
	}
	t.Logf("%d histories of %d steps", histories, steps)
	return true
}

// number reads a variable of the environment that counts histories.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q; want a number above 0", name, text)
	}
	return n
}

func repeat(t *testing.T, scenario func() Scenario, seed, cut string) {
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
		requests := bubble(t, scenario, plan{seed: p.seed, calm: true}).served
		if whats := cuts(); !slices.Contains(whats, p.cut.What) || p.cut.Request < 1 || p.cut.Request > len(requests) {
			t.Fatalf("SIMTEST_CUT is %q; want a number from 1 to %d and one of %q", cut, len(requests), whats)
		}
		p = p.at(p.cut, requests)
	}
	r := bubble(t, scenario, p)
	t.Log(r.Trace)
	if len(r.Wrong) > 0 {
		t.Fatal(strings.Join(r.Wrong, "\n"))
	}
}

// Simulate simulates the history of a seed, with faults. It fails the test only if
// the scenario is invalid: what went wrong is in the Report.
func Simulate(t *testing.T, scenario func() Scenario, seed uint64) *Report {
	t.Helper()
	return bubble(t, scenario, plan{seed: seed})
}

// bubble simulates a history in virtual time.
func bubble(t *testing.T, scenario func() Scenario, p plan) (r *Report) {
	t.Helper()
	s := scenario()
	known := s.everyDisturbance()
	for _, each := range s.Disturbances {
		if all := (&Scenario{Habits: s.Habits}).everyDisturbance(); !slices.Contains(all, each) {
			t.Fatalf("simtest: Scenario.Disturbances: %q is no habit; want some of %q", each, all)
		}
	}
	for _, each := range slices.Concat(s.Without, listed("SIMTEST_WITHOUT")) {
		if !slices.Contains(known, each) {
			t.Fatalf("simtest: Without: %q is no disturbance of this scenario; want one of %q", each, known)
		}
	}
	switch {
	case len(s.Kinds) == 0:
		t.Fatal("simtest: Scenario.Kinds: is required")
	case s.Program == nil:
		t.Fatal("simtest: Scenario.Program: is required")
	case s.Edit == nil:
		t.Fatal("simtest: Scenario.Edit: is required")
	}
	p.beats = new(atomic.Int64)
	defer watch(fmt.Sprintf("%s, seed %d", t.Name(), p.seed), p.beats, spins)()
	defer func() {
		if value := recover(); value != nil {
			r = broken(t, r, p, value, bubbled())
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		defer func() {
			if value := recover(); value != nil {
				r = broken(t, nil, p, value, string(debug.Stack()))
			}
		}()
		r = simulate(t.Context(), scenario, p)
	})
	return r
}

// broken returns the report of a history that ended in a panic: of a function of the scenario,
// or because goroutines of the program have not ended.
func broken(t *testing.T, r *Report, p plan, value any, stacks string) *Report {
	t.Helper()
	if r == nil {
		r = &Report{Seed: p.seed, Cut: p.cut}
	}
	const most = 10_000
	text := fmt.Sprint(value)
	if strings.Contains(text, "blocked goroutines remain") {
		text = "goroutines have not ended: the program must return, with all that it started, when its context ends"
	}
	r.Wrong = append(r.Wrong, fmt.Sprintf("%s\n%s", text, stacks[:min(len(stacks), most)]))
	return r
}

// listed returns the disturbances that a variable of the environment names.
func listed(name string) []applytest.Disturbance {
	var all []applytest.Disturbance
	for each := range strings.SplitSeq(os.Getenv(name), ",") {
		if each = strings.TrimSpace(each); each != "" {
			all = append(all, applytest.Disturbance(each))
		}
	}
	return all
}

func (s *Scenario) disturbances() []applytest.Disturbance {
	without := slices.Concat(s.Without, listed("SIMTEST_WITHOUT"))
	return slices.DeleteFunc(slices.Clone(s.everyDisturbance()), func(d applytest.Disturbance) bool { return slices.Contains(without, d) })
}

func (s *Scenario) everyDisturbance() []applytest.Disturbance {
	if s.Disturbances != nil {
		return s.Disturbances
	}
	var all []applytest.Disturbance
	for _, h := range slices.Concat(Habits(), s.Habits) {
		all = append(all, h.Name)
	}
	return all
}

// kills reports whether a disturbance ends the program.
func kills(d applytest.Disturbance) bool {
	return d == applytest.KillBefore || d == applytest.KillAfter
}
