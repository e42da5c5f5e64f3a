package kubewatch

import (
	"context"
	"math/rand/v2"
	"time"
)

// Retry is a growing delay between attempts. The zero value is that of the first.
type Retry struct{ tries int }

// Unserved is the longest mean delay before a resource is asked for again that the server does not
// serve: its definition may come at any time, and the answer costs the server little.
const Unserved = 5 * time.Second

// The delay after the first failure, the maximum, and the delay after a nudge: discovery
// follows a definition soon.
const (
	firstRetry  = time.Second
	maxRetry    = 30 * time.Second
	nudgedRetry = 50 * time.Millisecond
)

// Tried reports whether there was an attempt before.
func (r *Retry) Tried() bool { return r.tries > 0 }

// Wait waits for the delay, a value from nudge, or the end of ctx.
func (r *Retry) Wait(ctx context.Context, nudge <-chan struct{}) { r.WaitAtMost(ctx, nudge, maxRetry) }

// WaitAtMost is Wait with a shorter maximum. It reports whether there was a nudge.
func (r *Retry) WaitAtMost(ctx context.Context, nudge <-chan struct{}, longest time.Duration) (nudged bool) {
	delay := min(firstRetry<<min(r.tries, 5), longest)
	r.tries++
	timer := time.NewTimer(delay - delay/4 + rand.N(delay/2)) //nolint:gosec // jitter
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-nudge:
		nudged = true
		select {
		case <-ctx.Done():
		case <-time.After(nudgedRetry):
		}
	case <-timer.C:
	}
	return nudged
}
