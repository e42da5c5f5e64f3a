package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"time"
)

// Backoff is how long to wait before each retry of a failed call, and how often to
// retry. It is a value without state, safe for concurrent use.
//
// The zero Backoff waits 1s, 2s, 4s and so on up to a minute, without jitter,
// and never gives up. (In a [Loop] the zero Backoff means no retry at all.)
type Backoff struct {
	// Min is the delay before the first retry. Default 1s.
	Min time.Duration

	// Factor multiplies the delay from one retry to the next; 1 keeps it
	// constant. Default 2.
	Factor float64

	// Max is the max delay, jitter included. Default one minute, or Min if
	// that is longer.
	Max time.Duration

	// Jitter spreads each delay evenly between (1-Jitter) and (1+Jitter) times
	// its value. It is a fraction from 0 to 1. Default 0, which is none.
	Jitter float64

	// Seed makes the jitter the same in each run: it depends on Seed, on the number of
	// the retry, and in a [Queue] on the key. Processes that must not retry in step have
	// different ones, such as their names. Default empty: the jitter is random.
	Seed string

	// Retries is how many retries follow the first attempt. 0 is no limit, a
	// negative number is none.
	Retries int
}

// ThreeRetries is the Backoff for work whose failure should be seen soon: 1s,
// 2s, 4s, each 50 % more or less, never above 30s, and at most three retries.
func ThreeRetries() Backoff {
	return Backoff{Min: time.Second, Factor: 2, Max: 30 * time.Second, Jitter: 0.5, Retries: 3}
}

// Delay returns the delay before the given retry, counted from 1, without
// jitter. It never overflows, is never negative, and is never above Max. It ignores
// Retries.
func (b Backoff) Delay(retry int) time.Duration {
	shortest, factor, longest := b.Min, b.Factor, b.longest()
	if shortest <= 0 {
		shortest = time.Second
	}
	if !(factor >= 1) {
		factor = 2
	}
	delay := float64(shortest) * math.Pow(factor, float64(max(retry, 1)-1))
	if delay < float64(longest) {
		return time.Duration(delay)
	}
	return longest
}

// Next returns the delay before the given retry, counted from 1, with jitter,
// and whether that retry is allowed at all. The delay is zero if it is not.
func (b Backoff) Next(retry int) (delay time.Duration, ok bool) {
	if b.Retries < 0 || b.Retries > 0 && retry > b.Retries {
		return 0, false
	}
	at := rand.Float64()
	if b.Seed != "" {
		sum := fnv.New64a()
		_, _ = io.WriteString(sum, b.Seed) // a hash takes everything
		at = rand.New(rand.NewPCG(sum.Sum64(), uint64(retry))).Float64()
	}
	return spread(b.Delay(retry), b.Jitter, at, b.longest()), true
}

// Retry calls do until it succeeds, retrying in place with the waits of b, and returns nil
// or the error of the last call. An error marked by [Terminal] is not retried.
// When ctx ends during a wait, Retry returns at once.
func (b Backoff) Retry(ctx context.Context, do func(ctx context.Context) error) error {
	for retry := 1; ; retry++ {
		err := do(ctx)
		if err == nil || hopeless(err) {
			return err
		}
		delay, ok := b.Next(retry)
		if !ok {
			return err
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		if ctx.Err() != nil {
			return err
		}
	}
}

func (b Backoff) longest() time.Duration {
	if b.Max <= 0 {
		return max(time.Minute, b.Min)
	}
	return b.Max
}

// validate names the field that is out of range, as a field of owner.
func (b Backoff) validate(owner string) error {
	owner += ".Backoff"
	if b.Factor != 0 && !(b.Factor >= 1 && b.Factor <= math.MaxFloat64) {
		return fmt.Errorf("reconcile: %s.Factor: is %v, must be 0 (2 default) or 1 or more", owner, b.Factor)
	}
	if b.Max > 0 && b.Min > b.Max {
		return fmt.Errorf("reconcile: %s.Min: is %v, more than Max, %v", owner, b.Min, b.Max)
	}
	return cmp.Or(
		notNegative(owner+".Min", b.Min, "1s default"),
		notNegative(owner+".Max", b.Max, "1m default"),
		fraction(owner+".Jitter", b.Jitter),
	)
}

// of returns the Backoff of one of several things that it is for.
func (b Backoff) of(thing any) Backoff {
	if b.Seed != "" {
		b.Seed = fmt.Sprint(b.Seed, " ", thing)
	}
	return b
}

// spread returns a duration from d-d*jitter to d+d*jitter, but none above limit, which is
// at least d: at, from 0 to below 1, is where in that range.
func spread(d time.Duration, jitter, at float64, limit time.Duration) time.Duration {
	if jitter == 0 {
		return d
	}
	low := float64(d) * (1 - jitter)
	high := min(float64(d)*(1+jitter), float64(limit))
	got := low + at*(high-low)
	switch {
	case got < 0:
		return 0
	case got < float64(limit):
		return time.Duration(got)
	default:
		return limit
	}
}

func notNegative(field string, d time.Duration, zero string) error {
	if d < 0 {
		return fmt.Errorf("reconcile: %s: is %v, must be 0 (%s) or more", field, d, zero)
	}
	return nil
}

func fraction(field string, f float64) error {
	if !(f >= 0 && f <= 1) {
		return fmt.Errorf("reconcile: %s: is %v, must be 0 (none) to 1", field, f)
	}
	return nil
}
