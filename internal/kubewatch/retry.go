package kubewatch

import (
	"context"
	"math/rand/v2"
	"time"
)

// Retry is a growing delay between attempts. The zero value is that of the first.
type Retry struct{ tries int }

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
func (r *Retry) Wait(ctx context.Context, nudge <-chan struct{}) {
	delay := min(firstRetry<<min(r.tries, 5), maxRetry)
	r.tries++
	timer := time.NewTimer(delay - delay/4 + rand.N(delay/2)) //nolint:gosec // jitter
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-nudge:
		select {
		case <-ctx.Done():
		case <-time.After(nudgedRetry):
		}
	case <-timer.C:
	}
}
