package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// Loop runs a [Reconciler] again and again: at once when started, then every
// Interval, and earlier when triggered. Passes never overlap. A Loop must not
// be copied after first use.
type Loop struct {
	// Name stands in logs, errors and the [Pass]. Default "loop".
	Name string

	// Reconciler does the passes. Required. A panic in it becomes the error of
	// that pass, a [PanicError].
	Reconciler Reconciler

	// Interval is the time from the start of one pass to the start of the next,
	// if nothing makes it earlier. A pass that takes longer delays the next,
	// which then starts at once. Default 30s.
	Interval time.Duration

	// Jitter spreads each Interval evenly between (1-Jitter) and (1+Jitter)
	// times its value, so that many processes do not act in step. It is a
	// fraction from 0 to 1. Default 0, which is none.
	Jitter float64

	// Timeout bounds one pass: its ctx ends after this long. A pass that does
	// not heed its ctx is still waited for. Default 0, which is no bound.
	Timeout time.Duration

	// Backoff makes passes that fail retry sooner than Interval. The zero
	// Backoff does not: a pass that failed is followed by the next interval. A success
	// or a trigger resets the count of retries; after the last allowed retry only the
	// interval continues.
	Backoff Backoff

	// Logger gets each pass: failures at level error, others at level debug.
	// Default nil, which is silent.
	Logger *slog.Logger

	// OnPass is called after every pass, before the next can begin, on the
	// goroutine of Start. Its panic is logged and stops nothing. Default nil,
	// which is none.
	OnPass func(Pass)

	mu      sync.Mutex
	running bool
	wake    chan struct{} // holds at most one trigger; see triggers
}

// Pass describes one pass of a [Loop].
type Pass struct {
	// Name is the name of the Loop.
	Name string
	// Number counts the passes since Start, from 1.
	Number int
	// Reason is why the pass began when it did.
	Reason Reason
	// Start is when the pass began.
	Start time.Time
	// Duration is how long it took.
	Duration time.Duration
	// Result is what the Reconciler returned.
	Result Result
	// Err is nil if the pass succeeded.
	Err error
}

// Reason is why a [Pass] began when it did. When several reasons come
// together, a trigger is named first.
type Reason string

// The reasons for a [Pass].
const (
	Started   Reason = "start"   // the first pass after Start
	Ticked    Reason = "ticker"  // the interval was over
	Triggered Reason = "trigger" // Trigger was called
	Retried   Reason = "retry"   // the pass before failed
	Requeued  Reason = "requeue" // the pass before asked for it by RequeueAfter
)

// Trigger makes a pass begin as soon as possible. Any number of calls before
// that pass begins are one; a call during a pass causes one more after it. For a call
// before Start, this is the first pass. Trigger never blocks, and is safe for
// concurrent use.
func (l *Loop) Trigger() {
	select {
	case l.triggers() <- struct{}{}:
	default: // one is waiting already, and its pass has not begun
	}
}

// Start runs passes until ctx ends, and then returns nil once the current pass has
// returned. It fails at once if a field is out of range or the Loop is running already.
// A Loop that has stopped can be started again.
func (l *Loop) Start(ctx context.Context) error {
	if err := l.validate(); err != nil {
		return err
	}
	if !l.enter() {
		return fmt.Errorf("reconcile: %s is running already", l.name())
	}
	defer l.leave()

	timer := time.NewTimer(0)
	defer timer.Stop()
	triggers, failures, reason := l.triggers(), 0, Started
	for number := 1; ctx.Err() == nil; number++ {
		// This pass will see everything that was triggered up to here.
		select {
		case <-triggers:
			if number > 1 {
				reason = Triggered
			}
		default:
		}
		if reason == Triggered {
			failures = 0
		}
		pass := l.pass(ctx, number, reason)
		if pass.Err == nil {
			failures = 0
		} else {
			failures++
		}
		var wait time.Duration
		wait, reason = l.next(pass, failures)
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-triggers:
			reason = Triggered
		}
	}
	return nil
}

// pass runs one pass and reports it.
func (l *Loop) pass(ctx context.Context, number int, reason Reason) Pass {
	pass := Pass{Name: l.name(), Number: number, Reason: reason, Start: time.Now()}
	pass.Result, pass.Err = attempt(ctx, l.Timeout, l.Reconciler.Reconcile)
	pass.Duration = time.Since(pass.Start)

	logger := cmp.Or(l.Logger, slog.New(slog.DiscardHandler))
	logPass(ctx, logger, pass.Err, slog.String("loop", pass.Name), slog.Int("number", number),
		slog.String("reason", string(reason)), slog.Duration("duration", pass.Duration))
	if l.OnPass != nil {
		observe(ctx, logger, func() { l.OnPass(pass) })
	}
	return pass
}

// next returns how long after pass the next one is due, and for what reason.
func (l *Loop) next(pass Pass, failures int) (time.Duration, Reason) {
	interval := spread(cmp.Or(l.Interval, 30*time.Second), l.Jitter, rand.Float64(), math.MaxInt64)
	wait := max(0, interval-time.Since(pass.Start))
	switch {
	case pass.Err == nil:
		if after := pass.Result.RequeueAfter; after > 0 && after < wait {
			return after, Requeued
		}
	case l.Backoff != (Backoff{}) && !hopeless(pass.Err):
		if delay, ok := l.Backoff.Next(failures); ok && delay < wait {
			return delay, Retried
		}
	}
	return wait, Ticked
}

func (l *Loop) validate() error {
	if l.Reconciler == nil {
		return errors.New("reconcile: Loop.Reconciler: is required")
	}
	return cmp.Or(
		notNegative("Loop.Interval", l.Interval, "30s default"),
		fraction("Loop.Jitter", l.Jitter),
		notNegative("Loop.Timeout", l.Timeout, "no bound"),
		l.Backoff.validate("Loop"),
	)
}

func (l *Loop) name() string { return cmp.Or(l.Name, "loop") }

func (l *Loop) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	entered := !l.running
	l.running = true
	return entered
}

func (l *Loop) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = false
}

// triggers returns the channel that holds the pending trigger.
func (l *Loop) triggers() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wake == nil {
		l.wake = make(chan struct{}, 1)
	}
	return l.wake
}
