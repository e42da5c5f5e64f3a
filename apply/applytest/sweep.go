package applytest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Scenario is a program with a world of its own, for a [Sweep].
type Scenario struct {
	// World is the name of the world, a part of its requests' paths that differs from
	// other worlds. Empty: the paths are the same in each world.
	World string
	// Run starts the program with no memory, lets it converge and stops it. All
	// its requests go through the Transport. An error means that it did not converge,
	// such as after a crash. Required.
	Run func(ctx context.Context, net *Transport) error
	// State returns the end state in a form that is equal for every world in the
	// same state: without UIDs, versions, times and the world's own name.
	// Required.
	State func(ctx context.Context) (string, error)
	// MayDelete reports which objects may be deleted on the way. Nil: none.
	MayDelete func(Request) bool
}

// Disturbance is what a [Sweep] does at a request.
type Disturbance string

// The disturbances.
const (
	// KillBefore and KillAfter kill the program before the request and after the
	// server has carried it out. It is then started again.
	KillBefore Disturbance = "kill before"
	KillAfter  Disturbance = "kill after"
	// LoseRequest and LoseAnswer fail the request, before and after the server has
	// carried it out. The program goes on, as it does below.
	LoseRequest Disturbance = "lose"
	LoseAnswer  Disturbance = "lose the answer of"
	// ServerError answers 500, Throttle answers 429 and asks for a second.
	ServerError Disturbance = "answer 500 to"
	Throttle    Disturbance = "answer 429 to"
	// CutWatches ends the watches, ExpireWatches makes them start from a new list, and
	// FreezeWatches holds back their events for a while.
	CutWatches    Disturbance = "cut the watches at"
	ExpireWatches Disturbance = "expire the watches at"
	FreezeWatches Disturbance = "freeze the watches at"
)

// freeze is how long FreezeWatches holds events back.
const freeze = 300 * time.Millisecond

// Sweep disturbs a program at each of its requests and checks how it ends. The zero
// value kills it before and after each request.
type Sweep struct {
	// Disturbances are tried one by one at each request. Nil: KillBefore and
	// KillAfter.
	Disturbances []Disturbance
	// Skip is how many boundaries are left out after each one that is tried. Zero: all
	// are tried.
	Skip int
}

// Run runs the scenario once undisturbed. Then, for each request of that run and
// each disturbance, which is a boundary, it makes a new world, disturbs the
// program there, and compares the end state with the undisturbed one and the
// deletions with what may be deleted. The attempts are parallel subtests.
//
// A request is recognised by its verb, its path, and how many like it came before. An
// attempt without that request is repeated, at most twice.
//
// It logs three figures: the boundaries, how many of them were tried, and which share
// of those was reached.
func (s Sweep) Run(t *testing.T, fresh func(t *testing.T) Scenario) {
	t.Helper()
	var net Transport
	first := fresh(t)
	if err := first.Run(t.Context(), &net); err != nil {
		t.Fatalf("the undisturbed run: %v", err)
	}
	want, err := first.State(t.Context())
	if err != nil {
		t.Fatalf("the undisturbed state: %v", err)
	}
	requests := net.Requests()
	checkDeletions(t, first, requests)
	disturbances := s.Disturbances
	if len(disturbances) == 0 {
		disturbances = []Disturbance{KillBefore, KillAfter}
	}
	boundaries := len(requests) * len(disturbances)
	var tried, covered atomic.Int64
	t.Cleanup(func() {
		t.Logf("figure boundaries %d boundaries", boundaries)
		t.Logf("figure boundaries_tried %d boundaries", tried.Load())
		t.Logf("figure boundaries_covered %.1f %%", 100*float64(covered.Load())/float64(max(1, tried.Load())))
	})
	keys := make([]boundary, len(requests))
	var count occurrences
	for i, r := range requests {
		keys[i] = count.next(first.World, r)
	}
	for i := 0; i < boundaries; i += 1 + s.Skip {
		key, what := keys[i/len(disturbances)], disturbances[i%len(disturbances)]
		t.Run(fmt.Sprintf("%s request %d", what, i/len(disturbances)+1), func(t *testing.T) {
			t.Parallel()
			tried.Add(1)
			for range 3 {
				if attempt(t, fresh(t), key, what, want) {
					covered.Add(1)
					return
				}
			}
			t.Logf("%s %s: no such request", key.verb, key.path)
		})
	}
}

// boundary is a request at which a run is disturbed.
type boundary struct {
	verb, path string
	occurrence int
}

// occurrences keeps requests of one verb and path apart.
type occurrences struct {
	mu   sync.Mutex
	seen map[boundary]int
}

func (o *occurrences) next(world string, r Request) boundary {
	path := r.Path
	if world != "" {
		path = strings.ReplaceAll(path, world, "WORLD")
	}
	key := boundary{verb: r.Verb, path: path}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seen == nil {
		o.seen = map[boundary]int{}
	}
	o.seen[key]++
	key.occurrence = o.seen[key]
	return key
}

// attempt disturbs the program at one request and checks the end state. It reports
// whether the request came.
func attempt(t *testing.T, s Scenario, key boundary, what Disturbance, want string) (came bool) {
	t.Helper()
	var at atomic.Pointer[Request]
	var count occurrences
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	net := &Transport{OnCrash: kill}
	net.Fault = func(r Request) Fault {
		if count.next(s.World, r) != key {
			return Fault{}
		}
		at.Store(&r)
		return net.Disturb(what)
	}
	runs := []*Transport{net}
	err := s.Run(ctx, net)
	if net.Crashed() {
		if err == nil {
			t.Errorf("the program reports that it converged, in spite of: %s %s", what, at.Load())
		}
		again := &Transport{}
		runs = append(runs, again)
		err = s.Run(t.Context(), again)
	}
	disturbed := "nothing"
	if at.Load() != nil {
		disturbed = fmt.Sprintf("%s %s", what, at.Load())
	}
	if err != nil {
		t.Errorf("%s, and it does not converge: %v", disturbed, err)
		return at.Load() != nil
	}
	got, err := s.State(t.Context())
	if err != nil {
		t.Fatalf("the end state: %v", err)
	}
	if got != want {
		t.Errorf("%s, and it ends in another state:\n%s\nwant:\n%s", disturbed, got, want)
	}
	for _, run := range runs {
		checkDeletions(t, s, run.Requests())
	}
	return at.Load() != nil
}

// Disturb applies the disturbance to the watches, and returns its fault for the
// request. A Fault of a Transport calls it for the request to disturb.
func (t *Transport) Disturb(what Disturbance) Fault {
	switch what {
	case KillBefore:
		return Fault{Crash: true}
	case KillAfter:
		return Fault{Crash: true, LoseAnswer: true}
	case LoseRequest:
		return Fault{Lose: true}
	case LoseAnswer:
		return Fault{LoseAnswer: true}
	case ServerError:
		return Fault{Status: http.StatusInternalServerError}
	case Throttle:
		return Fault{Status: http.StatusTooManyRequests, RetryAfter: time.Second}
	case CutWatches:
		t.Cut()
	case ExpireWatches:
		t.Expire()
	case FreezeWatches:
		t.Freeze()
		time.AfterFunc(freeze, t.Thaw)
	}
	return Fault{}
}

func checkDeletions(t *testing.T, s Scenario, requests []Request) {
	t.Helper()
	for _, r := range requests {
		switch {
		case r.DryRun || r.Verb != "delete" && r.Verb != "deletecollection":
		case s.MayDelete == nil || !s.MayDelete(r):
			t.Errorf("a wrong deletion: %s", r)
		}
	}
}
