// Package budget bounds the requests of a process to one API server, and adapts the
// bound to the server's answers. It knows HTTP only: [Budget.Wrap] fits the transport
// of any client.
package budget

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Budget bounds the requests under way at once through all transports that it
// wraps ([Budget.Wrap]). The bound adapts: it grows by one when as many requests
// as it allows have succeeded, and is halved when the server answers 429 or 503. Then
// no request is sent before Retry-After is over. A watch counts only until it is
// answered.
//
// The zero value works. Clients should turn their own limit off: rest.Config.QPS
// of -1.
type Budget struct {
	// Max bounds the requests under way at once. Zero means 64.
	Max int

	mu      sync.Mutex
	limit   int // now; zero: not begun
	gained  int // successes since the limit last grew
	busy    int
	pause   time.Time // no request before
	halved  time.Time // requests sent before it do not halve again
	waiting []chan struct{}
}

// budgetStart is the first limit, unless Max is less.
const budgetStart = 8

// Wrap bounds the requests through a transport. It is made for rest.Config.Wrap.
func (b *Budget) Wrap(next http.RoundTripper) http.RoundTripper {
	return &budgeted{budget: b, next: next}
}

// Limit returns how many requests may be under way now.
func (b *Budget) Limit() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now()
}

func (b *Budget) max() int {
	if b.Max <= 0 {
		return 64
	}
	return b.Max
}

func (b *Budget) now() int {
	if b.limit == 0 {
		b.limit = min(budgetStart, b.max())
	}
	return b.limit
}

type budgeted struct {
	budget *Budget
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *budgeted) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := t.budget.acquire(r.Context()); err != nil {
		return nil, err
	}
	sent := time.Now()
	answer, err := t.next.RoundTrip(r)
	t.budget.judge(answer, sent)
	if err != nil || answer.StatusCode == http.StatusSwitchingProtocols || r.URL.Query().Get("watch") != "" {
		t.budget.release()
		return answer, err
	}
	// The answer's body is part of the request.
	answer.Body = &releasing{ReadCloser: answer.Body, release: sync.OnceFunc(t.budget.release)}
	return answer, nil
}

// releasing gives the place back when a body is read or closed.
type releasing struct {
	io.ReadCloser
	release func()
}

func (b *releasing) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.release()
	}
	return n, err
}

func (b *releasing) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

// acquire waits for a place.
func (b *Budget) acquire(ctx context.Context) error {
	for {
		b.mu.Lock()
		wait := time.Until(b.pause)
		if wait <= 0 && b.busy < b.now() {
			b.busy++
			b.mu.Unlock()
			return nil
		}
		turn := make(chan struct{})
		b.waiting = append(b.waiting, turn)
		b.mu.Unlock()
		var paused <-chan time.Time
		if wait > 0 {
			timer := time.NewTimer(wait)
			defer timer.Stop()
			paused = timer.C
		}
		select {
		case <-ctx.Done():
			b.abandon(turn)
			return context.Cause(ctx)
		case <-turn:
		case <-paused:
			b.abandon(turn)
		}
	}
}

// abandon removes a waiter. If it was its turn, the next waiter gets the turn.
func (b *Budget) abandon(turn chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, other := range b.waiting {
		if other == turn {
			b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
			return
		}
	}
	b.wake(1)
}

func (b *Budget) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy--
	b.wake(b.now() - b.busy)
}

// wake lets n waiters try.
func (b *Budget) wake(n int) {
	for ; n > 0 && len(b.waiting) > 0; n-- {
		close(b.waiting[0])
		b.waiting = b.waiting[1:]
	}
}

// judge adapts the limit to an answer.
func (b *Budget) judge(answer *http.Response, sent time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if answer == nil {
		return // no sign of the server's load
	}
	now := time.Now()
	switch answer.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if until := now.Add(retryAfter(answer)); until.After(b.pause) {
			b.pause = until
		}
		if sent.After(b.halved) {
			b.limit, b.gained, b.halved = max(1, b.now()/2), 0, now
		}
	default:
		if !sent.After(b.halved) {
			return // about the load before the halving
		}
		if b.gained++; b.gained >= b.now() && b.limit < b.max() {
			b.limit++
			b.gained = 0
			b.wake(1)
		}
	}
}

// maxRetryAfter bounds the Retry-After that is respected.
const maxRetryAfter = time.Minute

func retryAfter(answer *http.Response) time.Duration {
	seconds, err := strconv.Atoi(answer.Header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxRetryAfter)
}
