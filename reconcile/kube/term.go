package kube

import (
	"context"
	"errors"
	"sync"
	"time"
)

// term is the ctx of the work while the lease is held. It ends with its parent, when
// the lease is lost, or when limit has passed since the last renewal.
type term struct {
	context.Context //nolint:containedctx // a term is a context

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

// Err compares the clock with the last renewal, because after a pause of the process
// the work may call Err before the timer runs.
func (t *term) Err() error {
	if t.expired() {
		t.cancel(ErrLeaseLost)
	}
	return t.Context.Err()
}

// renew postpones the end of the term. A term that has ended stays ended.
func (t *term) renew(at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.renewed = at
	t.timer.Reset(t.limit - elapsed(at))
}

// end ends the term for a reason other than its age. It may be called again.
func (t *term) end(cause error) {
	t.cancel(cause)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer.Stop()
}

// lost reports whether the term ended because the lease was lost.
func (t *term) lost() bool { return errors.Is(context.Cause(t.Context), ErrLeaseLost) }

// check is called by the timer.
func (t *term) check() {
	if t.expired() {
		t.cancel(ErrLeaseLost)
		return
	}
	// The timer ran while renew was resetting it, or ahead of the wall clock.
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer.Reset(max(t.limit-elapsed(t.renewed), time.Millisecond))
}

func (t *term) expired() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return elapsed(t.renewed) >= t.limit
}

// elapsed returns the time since t, the longer of the monotonic and the wall clock:
// the monotonic clock may stop while a machine is suspended, and the wall clock may
// be set back.
func elapsed(t time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)))
}
