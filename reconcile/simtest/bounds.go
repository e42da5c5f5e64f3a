package simtest

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Bound is a bound of time that a contract states for a program: what is not as it must be, is so
// for a limited time only.
type Bound struct {
	// What must be so, such as "the phase follows the pods".
	What string
	// Within is for how long it may not be so.
	Within time.Duration
	// Late returns what is not so now, such as the names of objects. It is called after each
	// change of an object and each [Call].
	Late func(*World) []string
}

// recovery is the default of Scenario.Recovery.
const recovery = 5 * time.Minute

// timing is how the time of a bound passes in a world.
type timing struct {
	mu       sync.Mutex
	stopped  bool          // the program has been stopped for good
	troubled time.Time     // when the last disturbance ended, or ends
	until    time.Time     // until when requests or events are held up
	held     time.Duration // for how long in all, by then
	since    []map[string]time.Time
}

// heldAt is for how long requests or events have been held up by now. c.mu is held.
func (c *timing) heldAt(now time.Time) time.Duration { return c.held - max(0, c.until.Sub(now)) }

// stop ends all bounds.
func (c *timing) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
}

// Disturb says that something disturbs the program until then, such as a service of the scenario
// that is away. The habits of a world say so by themselves.
func (w *World) Disturb(until time.Time) {
	w.timing.mu.Lock()
	defer w.timing.mu.Unlock()
	w.timing.troubled = later(w.timing.troubled, until)
}

// hold says that requests or events come later until then, and that nothing fails.
func (w *World) hold(until time.Time) {
	c := &w.timing
	c.mu.Lock()
	defer c.mu.Unlock()
	if from := later(time.Now(), c.until); until.After(from) {
		c.held, c.until = c.held+until.Sub(from), until
	}
}

// Within makes the history wrong if something does not hold after a time. That time is longer by
// what requests and events are held up, and begins again Scenario.Recovery after a disturbance.
func (w *World) Within(d time.Duration, what string, holds func(*World) bool) {
	w.timing.mu.Lock()
	held := w.timing.heldAt(time.Now())
	w.timing.mu.Unlock()
	w.within(time.Now(), held, d, what, holds)
}

func (w *World) within(since time.Time, held, d time.Duration, what string, holds func(*World) bool) {
	due := func() time.Time {
		w.timing.mu.Lock()
		defer w.timing.mu.Unlock()
		begins := since
		if !w.timing.troubled.IsZero() {
			begins = later(since, w.timing.troubled.Add(cmp.Or(w.scenario.Recovery, recovery)))
		}
		return begins.Add(d + w.timing.heldAt(time.Now()) - held)
	}
	w.agenda.at(due(), "bound "+what, func() {
		w.timing.mu.Lock()
		stopped := w.timing.stopped
		w.timing.mu.Unlock()
		switch {
		case stopped || holds(w):
		case due().After(time.Now()):
			w.within(since, held, d, what, holds)
		default:
			w.Blame("%s: not within %v", what, d)
		}
	})
}

// lateness looks at the bounds of the scenario.
func (w *World) lateness() {
	for n, b := range w.scenario.Bounds {
		late, now := b.Late(w), time.Now()
		w.timing.mu.Lock()
		if w.timing.since == nil {
			w.timing.since = make([]map[string]time.Time, len(w.scenario.Bounds))
		}
		was, is := w.timing.since[n], map[string]time.Time{}
		w.timing.since[n] = is
		var begun []string
		for _, each := range late {
			if since, known := was[each]; known {
				is[each] = since
			} else if is[each] = now; !slices.Contains(begun, each) {
				begun = append(begun, each)
			}
		}
		w.timing.mu.Unlock()
		for _, each := range begun {
			w.Within(b.Within, b.What+": "+each, func(w *World) bool {
				w.lateness()
				w.timing.mu.Lock()
				defer w.timing.mu.Unlock()
				since, still := w.timing.since[n][each]
				return !still || !since.Equal(now)
			})
		}
	}
}
