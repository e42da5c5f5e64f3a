package simtest

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
)

// World is one history of a [Scenario] while it happens: an API server, the
// program before it, and what goes wrong. The functions of a Scenario receive it.
//
// Create, Update and Delete act as the user. All methods see the newest state. Only
// the functions of the Scenario, and what they plan with After, may call them.
type World struct {
	// Random is for Start and Edit. Nothing else draws from it, so a seed stands
	// for the same edits whatever the program does.
	Random *rand.Rand

	random   *rand.PCG // of Random
	edits    []edit    // that were made
	scenario *Scenario
	plan     plan
	server   *Server
	agenda   *agenda
	start    time.Time
	users    map[string]bool   // UIDs of what the user has created
	creators map[string]string // who has created an object, by its UID

	mu    sync.Mutex
	trace strings.Builder
	rolls map[string]int
	paths map[string]*path
	calm  bool
	lag   time.Duration // of views, at most
	skew  time.Duration // of the server's clock
	// deaths, faults and long ones, which last, are what may happen at a request, and
	// how likely. always are what this history has.
	deaths, faults, long           []applytest.Disturbance
	deathRate, faultRate, longRate float64
	refusals                       []Habit // that begin at what they refuse
	refusalRate                    float64
	always                         map[applytest.Disturbance]bool
	habits                         map[applytest.Disturbance]Habit
	spells                         []spell
	life                           int
	running                        context.Context //nolint:containedctx // that of the program, for its replicas
	process                        *process        // the last life
	replicas                       sync.WaitGroup  // beside it
	two                            bool            // another runs beside it
	leads                          bool            // it has written a Lease
	reannounces                    bool            // Events are no writes any more
	halved, disturbed              bool            // the last answer was cut, or was none of the server
	requests                       []string        // whose turn has come
	writes                         []string        // of the program, but Leases
	accepted, refused              int             // writes of the program, by the server, but Leases and Events
	ended                          int             // lives that ended by themselves
	ending                         error           // what the last of them returned
	changes, moves                 int             // of objects, by the program; of managedFields alone
	watches                        int
	gc, addition                   bool // planned: the garbage collector, and that another client takes back
	reached                        string
	asked                          map[string]int // requests that looked alike, faults or not
	happened                       []happening
	wrong                          []string
	timing                         timing // of bounds
}

// path is one view of a program: what it lists and watches.
type path struct {
	ends int // in a row
	last time.Time
}

func newWorld(s *Scenario, p plan) *World {
	w := &World{
		scenario: s, plan: p, agenda: newAgenda(p.beats), start: time.Now(), calm: p.calm,
		rolls: map[string]int{}, paths: map[string]*path{}, users: map[string]bool{}, creators: map[string]string{},
		asked: map[string]int{},
	}
	w.random = w.source("edits")
	w.Random = rand.New(w.random) //nolint:gosec // no secret
	w.rates()
	w.server = &Server{Kinds: s.Kinds, Admit: s.Admit, Allow: s.Allow, Machinery: s.Machinery, WatchList: s.WatchList}
	w.server.schedule, w.server.opened, w.server.changed, w.server.stale = w.deliver, w.opened, w.changed, w.stale
	w.server.unserved = w.unserved
	w.server.forbids = func(r applytest.Request) bool {
		fault, ok := w.suffers(r)
		return ok && fault.Status == http.StatusForbidden
	}
	if s.Rights != nil {
		w.server.rights, w.server.beyond = s.Rights, func(err error) { w.Blame("the program's role: %v", err) }
	}
	if w.always[SkewClock] && !p.calm {
		w.server.skew = w.skew
	}
	return w
}

// rates draws how bad a history is. Each kind of fault is in half of the histories:
// one hides what another would show.
func (w *World) rates() {
	w.habits, w.always = map[applytest.Disturbance]Habit{}, map[applytest.Disturbance]bool{}
	for _, h := range slices.Concat(Habits(), w.scenario.Habits) {
		w.habits[h.Name] = h
	}
	for _, each := range w.scenario.disturbances() {
		switch { // whether a habit is there does not depend on the others
		case w.dice("habit "+string(each)).IntN(2) == 0:
		case kills(each):
			w.deaths = append(w.deaths, each)
		case w.habits[each].Always:
			w.always[each] = true
		case w.habits[each].refuses != nil:
			w.refusals = append(w.refusals, w.habits[each])
		case w.habits[each].Spell > 0:
			w.long = append(w.long, each)
		default:
			w.faults = append(w.faults, each)
		}
	}
	dice := w.dice("rates")
	w.faultRate, w.deathRate, w.longRate = dice.Float64()*0.3, dice.Float64()*0.05, dice.Float64()*0.02
	w.lag = time.Duration(dice.Int64N(int64(20 * time.Second)))
	w.skew = time.Duration(dice.Int64N(int64(20*time.Minute))) - 10*time.Minute
	w.refusalRate = dice.Float64() * 0.3
	if told := w.plan.story; told != nil {
		w.always = map[applytest.Disturbance]bool{}
		for _, each := range told.always {
			w.always[each] = true
		}
	}
}

// dice returns a source for one decision. It depends on the seed, the decision,
// and how often that was decided before, not on what happens beside it.
func (w *World) dice(about string) *rand.Rand { return rand.New(w.source(about)) } //nolint:gosec // no secret

func (w *World) source(about string) *rand.PCG {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := fnv.New64a()
	_, _ = fmt.Fprintf(sum, "%s#%d", about, w.rolls[about]) // a hash takes everything
	w.rolls[about]++
	return rand.NewPCG(w.plan.seed, sum.Sum64())
}

// Log adds a line to the trace, with the virtual time since the start.
func (w *World) Log(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = fmt.Fprintf(&w.trace, "%v "+format+"\n", append([]any{time.Since(w.start)}, args...)...) // a Builder takes everything
}

// Blame makes the history wrong, as an error of Scenario.Check does.
func (w *World) Blame(format string, args ...any) {
	w.Log("WRONG: "+format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

func (w *World) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.wrong) > 0
}

func (w *World) faulty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.calm
}

// After calls a function later, when nothing else happens. It is not called if the
// history has ended by then.
func (w *World) After(d time.Duration, act func()) {
	w.agenda.after(d, "act", act)
}

// Dice returns a source of chance for one decision of an actor. It depends on the
// seed, on the decision, and on how often that was decided before, not on what
// happens beside it.
func (w *World) Dice(decision string) *rand.Rand { return w.dice("actor: " + decision) }

// Faulty reports whether the world is still one with faults.
func (w *World) Faulty() bool { return w.faulty() }

// Create creates an object, with apiVersion, kind and metadata. The error is the
// answer of the server. What the user has created, and still exists at the end, is
// what the program has to achieve: it is created again in the world to compare with.
func (w *World) Create(o Object) error { return w.user().Create(o) }

// Update changes an object, its status included. It creates no object: the error
// reports if there is none.
func (w *World) Update(resource, namespace, name string, edit func(Object)) error {
	return w.user().Update(resource, namespace, name, edit)
}

// Delete deletes an object, and its dependents some seconds later, as kubectl does.
// Finalizers hold it, as on a real server.
func (w *World) Delete(resource, namespace, name string) error {
	return w.user().Delete(resource, namespace, name)
}

func (w *World) user() Client { return Client{world: w, by: "user"} }

// As returns a client of an actor. Change.By is its name.
func (w *World) As(actor string) Client { return Client{world: w, by: actor} }

// changed is called after each write.
func (w *World) changed(c Change) {
	w.collectLater()
	w.count(c)
	if err := freed(c); err != nil {
		w.Blame("%v", err)
	}
	if w.scenario.Check != nil {
		if err := w.scenario.Check(w, c); err != nil {
			w.Blame("%v", err)
		}
	}
	for _, act := range w.scenario.Actors {
		act(w, c)
	}
	w.lateness()
}

// count notes who has made an object, and a change by the program.
func (w *World) count(c Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.Before == nil {
		w.creators[c.After.UID()] = c.By
	}
	switch {
	case c.By != byProgram:
	case c.movesAlone():
		w.moves++
	default:
		w.changes++
	}
}

// collectLater plans what the garbage collector does, unless it is planned.
func (w *World) collectLater() {
	w.mu.Lock()
	planned := w.gc
	w.gc = true
	w.mu.Unlock()
	if planned {
		return
	}
	w.agenda.after(time.Duration(1+w.dice("gc").IntN(5000))*time.Millisecond, "gc", func() {
		w.mu.Lock()
		w.gc = false
		w.mu.Unlock()
		for _, c := range w.server.collect() {
			w.Log("garbage collector: %s", c)
		}
	})
}

// unserved blames the scenario for a request that a real server serves and the
// simulated one does not: what the program does then is not tested.
func (w *World) unserved(c call, a *answer) {
	request := c.String()
	if slices.ContainsFunc(w.scenario.Unserved, func(beginning string) bool { return strings.HasPrefix(request, beginning) }) {
		return
	}
	body := string(c.body)
	if len(body) > 300 {
		body = body[:300] + "..."
	}
	w.Blame(
		"the simulated server does not serve %s: %d %s; %s, or name it in Scenario.Unserved. Its body: %q",
		request, a.code, a.message(), a.cure, body,
	)
}

// deliver plans when a watch gets an event. The lock of the server is held.
func (w *World) deliver(st *stream, e event) {
	dice := w.dice(fmt.Sprintf("event %d %d", st.number, e.version))
	lag := time.Duration(1+dice.IntN(20_000)) * time.Microsecond
	if w.faulty() && dice.IntN(4) == 0 && w.always[LateEvents] {
		lag = time.Duration(dice.Int64N(int64(w.lag) + 1))
		w.hold(time.Now().Add(lag))
	}
	st.due = later(st.due.Add(time.Microsecond), time.Now().Add(lag))
	w.agenda.at(st.due, fmt.Sprintf("event %06d %09d", st.number, e.version), func() {
		if st.ended() || st.muted {
			return
		}
		w.Log("watch %d: %s %s at %d", st.number, st.send(e), e.key, e.version)
		if w.faulty() && dice.IntN(20) == 0 && w.always[RepeatEvents] {
			w.Log("watch %d: %s %s at %d again", st.number, st.send(e), e.key, e.version)
		}
	})
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// longestWatch is when a watch ends at the latest.
const longestWatch = 5 * time.Minute

// opened plans the bookmarks and the end of a watch. The lock of the server is held.
func (w *World) opened(st *stream) {
	w.mu.Lock()
	w.watches++
	st.number = w.watches
	w.mu.Unlock()
	dice := w.dice(fmt.Sprintf("watch %d", st.number))
	life := longestWatch - time.Minute + time.Duration(dice.IntN(60_000))*time.Millisecond
	why := io.EOF
	if w.faulty() && w.always[EndWatches] && dice.IntN(2) == 0 {
		life, why = time.Duration(1+dice.IntN(120_000))*time.Millisecond, applytest.ErrLost
	}
	w.agenda.after(life, fmt.Sprintf("end %06d", st.number), func() {
		if st.ended() {
			return
		}
		w.Log("watch %d: ends", st.number)
		st.end(why)
	})
	if st.call.option("allowWatchBookmarks") == "true" {
		w.bookmark(st)
	}
}

func (w *World) bookmark(st *stream) {
	w.agenda.after(time.Minute, fmt.Sprintf("bookmark %06d", st.number), func() {
		if st.ended() {
			return
		}
		if !st.muted {
			st.mark()
		}
		w.bookmark(st)
	})
}

// stale is how old a state a read of any state gets.
func (w *World) stale(r applytest.Request) time.Duration {
	if !w.faulty() || !w.always[StaleReads] {
		return 0
	}
	return time.Duration(w.dice("stale " + r.String()).Int64N(int64(w.lag) + 1))
}
