package kube

import (
	"context"
	"errors"
	"sync"
	"time"
)

// term is the ctx of the work while the lease is held. It ends when its parent
// does, when the lease is lost, or when limit has passed since the last renewal.
type term struct {
	context.Context //nolint:containedctx // it is a context

	cancel context.CancelCauseFunc
	limit  time.Duration

	mu      sync.Mutex
	renewed time.Time
	timer   *time.Timer
}

func newTerm(parent context.Context, limit time.Duration, renewed time.Time) *term {
	t := &term{limit: limit, renewed: renewed}
	t.Context, t.cancel = context.WithCancelCause(parent)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer = time.AfterFunc(limit-elapsed(renewed), t.check)
	return t
}

// Err looks at the clock itself, because after a pause the timer may run later
// than the work that asks.
func (t *term) Err() error {
	if t.expired() {
		t.cancel(ErrLeaseLost)
	}
	return t.Context.Err()
}

// renew moves the end of the term. A term that has ended stays so.
func (t *term) renew(at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.renewed = at
	t.timer.Reset(t.limit - elapsed(at))
}

// end stops the term for a reason other than its age. It may be called again.
func (t *term) end(cause error) {
	t.cancel(cause)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer.Stop()
}

// lost tells whether the term ended because the lease did.
func (t *term) lost() bool { return errors.Is(context.Cause(t.Context), ErrLeaseLost) }

// check is called by the timer.
func (t *term) check() {
	if t.expired() {
		t.cancel(ErrLeaseLost)
		return
	}
	// It ran while renew was resetting it, or ahead of the wall clock.
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer.Reset(max(t.limit-elapsed(t.renewed), time.Millisecond))
}

func (t *term) expired() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return elapsed(t.renewed) >= t.limit
}

// elapsed is the time since t by the monotonic or by the wall clock, whichever
// says more: the monotonic one may stand still while a machine is suspended,
// and the wall clock may be set back.
func elapsed(t time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)))
}
