package cloud

import (
	"context"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/internal/pause"
)

// A Bucket bounds a rate: Size calls at once, and Refill more each second. The
// zero Bucket bounds nothing.
type Bucket struct {
	Size, Refill float64
}

// A Limiter keeps calls within the rates that a cloud allows one credential. All users
// of the credential must share it. It must not be copied after its first use, and is
// safe for concurrent use.
type Limiter struct {
	// Limits are the rates by operation. An operation that is not in the map is limited
	// by Rest.
	Limits map[string]Bucket

	// Rest is one rate for all other operations together. Zero means no limit.
	Rest Bucket

	// MaxWait is how long a call may wait for its turn. A call that would wait longer
	// fails at once with a [RateLimitError]. Default 10s.
	MaxWait time.Duration

	mu      sync.Mutex
	buckets map[string]*bucketState
}

type bucketState struct {
	tokens float64
	at     time.Time // time of tokens; later than now during a penalty
}

// Wait waits for the turn of one call. The error is a [RateLimitError], or the error of
// ctx.
func (l *Limiter) Wait(ctx context.Context, operation string) error {
	wait, give := l.reserve(operation, time.Now())
	if give == nil {
		return ctx.Err()
	}
	limit := l.MaxWait
	if limit <= 0 {
		limit = 10 * time.Second
	}
	if wait > limit {
		give()
		return &RateLimitError{RetryAfter: wait}
	}
	if wait <= 0 {
		return ctx.Err()
	}
	if !pause.For(ctx, wait) {
		give()
	}
	return ctx.Err()
}

// Penalize blocks the operation for a time, because the cloud has reported too many
// calls: another program uses the credential.
func (l *Limiter) Penalize(operation string, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, limit := l.bucket(operation, time.Now())
	if limit == (Bucket{}) {
		return
	}
	b.tokens = min(b.tokens, 0)
	b.at = later(b.at, time.Now().Add(d))
}

// reserve takes a token, and returns when it may be used and how to return it. A nil
// give means that there is no limit.
func (l *Limiter) reserve(operation string, now time.Time) (wait time.Duration, give func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, limit := l.bucket(operation, now)
	if limit == (Bucket{}) {
		return 0, nil
	}
	if now.After(b.at) {
		b.tokens = min(limit.Size, b.tokens+now.Sub(b.at).Seconds()*limit.Refill)
		b.at = now
	}
	b.tokens--
	wait = b.at.Sub(now)
	if b.tokens < 0 {
		wait += time.Duration(-b.tokens / limit.Refill * float64(time.Second))
	}
	return wait, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		b.tokens++
	}
}

func (l *Limiter) bucket(operation string, now time.Time) (*bucketState, Bucket) {
	limit, own := l.Limits[operation]
	if !own {
		limit, operation = l.Rest, ""
	}
	b, ok := l.buckets[operation]
	if !ok {
		if l.buckets == nil {
			l.buckets = map[string]*bucketState{}
		}
		b = &bucketState{tokens: limit.Size, at: now}
		l.buckets[operation] = b
	}
	return b, limit
}
