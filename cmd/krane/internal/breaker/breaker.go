// Package breaker keeps an agent from calling a server that does not answer: a
// [Breaker] for each RPC, kept in a [Set].
//
// A breaker is closed until enough failures came within a window. Then it is
// open, and refuses every call, for its full time. Then it lets one call through
// at a time, to probe: a failed one opens it again, and enough successes in a row
// close it, however far apart they are.
//
// Only failures of the transport and of the server as such count
// ([TransportFailure]): an answer about the request, such as NotFound, shows that
// both work. A call that its own context ended does not count.
package breaker

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"
)

// ErrOpen is the error of a refused call, for which no request was sent.
var ErrOpen = errors.New("circuit breaker is open")

// State is what a breaker does with calls.
type State int

// The states. Their numbers are the values of the metric.
const (
	// Closed lets all calls through.
	Closed State = iota
	// HalfOpen lets one call through at a time.
	HalfOpen
	// Open refuses all calls.
	Open
)

// String returns the state's name: closed, half-open or open.
func (s State) String() string {
	switch s {
	case HalfOpen:
		return "half-open"
	case Open:
		return "open"
	default:
		return "closed"
	}
}

// Breaker guards the calls of one RPC. The zero value is closed and ready. It is
// safe for concurrent use. Set the fields before the first call.
type Breaker struct {
	// Failures is how many within Window open it. Zero means 5.
	Failures int
	// Window is the time within which failures count together. Zero means 10 s.
	Window time.Duration
	// Pause is how long it stays open. Zero means 30 s.
	Pause time.Duration
	// Successes is how many probes in a row close it. Zero means 2.
	Successes int
	// Failed reports whether an error counts. Nil: TransportFailure.
	Failed func(error) bool
	// OnChange is called, if set, with each new state, one call at a time. It must
	// not call the breaker.
	OnChange func(State)

	mu        sync.Mutex
	state     State
	failures  []time.Time // in the window, while closed
	until     time.Time   // the end of the pause, while open
	probing   bool        // a call is under way, while half open
	successes int         // while half open
	// period counts the changes of state: a call that began in an earlier period
	// does not count in this one.
	period int
}

// State returns what would happen to a call now.
func (b *Breaker) State() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == Open && !time.Now().Before(b.until) {
		return HalfOpen
	}
	return b.state
}

// Do makes the call, or returns [ErrOpen] instead. It returns the error of the
// call as it is. A call that panics counts as none.
func (b *Breaker) Do(ctx context.Context, call func(context.Context) error) error {
	period, ok := b.begin()
	if !ok {
		return ErrOpen
	}
	result := undecided
	defer func() { b.end(period, result) }()
	err := call(ctx)
	result = b.judge(ctx, err)
	return err
}

type outcome int

const (
	undecided outcome = iota
	success
	failure
)

func (b *Breaker) judge(ctx context.Context, err error) outcome {
	failed := b.Failed
	if failed == nil {
		failed = TransportFailure
	}
	switch {
	case err == nil:
		return success
	case errors.Is(ctx.Err(), context.Canceled): // the caller gave up
		return undecided
	case failed(err):
		return failure
	default:
		return success
	}
}

func (b *Breaker) begin() (period int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == Open && !time.Now().Before(b.until) {
		b.change(HalfOpen)
	}
	switch {
	case b.state == Open, b.state == HalfOpen && b.probing:
		return 0, false
	case b.state == HalfOpen:
		b.probing = true
	}
	return b.period, true
}

func (b *Breaker) end(period int, result outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if period != b.period {
		return
	}
	b.probing = false
	switch {
	case result == failure && b.state == HalfOpen:
		b.open()
	case result == failure:
		now := time.Now()
		b.failures = append(b.failures, now)
		for now.Sub(b.failures[0]) > cmp.Or(b.Window, 10*time.Second) {
			b.failures = b.failures[1:]
		}
		if len(b.failures) >= cmp.Or(b.Failures, 5) {
			b.open()
		}
	case result == success && b.state == HalfOpen:
		b.successes++
		if b.successes >= cmp.Or(b.Successes, 2) {
			b.change(Closed)
		}
	}
}

func (b *Breaker) open() {
	b.until = time.Now().Add(cmp.Or(b.Pause, 30*time.Second))
	b.change(Open)
}

func (b *Breaker) change(to State) {
	b.state, b.failures, b.probing, b.successes = to, nil, false, 0
	b.period++
	if b.OnChange != nil {
		b.OnChange(to)
	}
}
