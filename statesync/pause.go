package statesync

import (
	"errors"
	"math/rand/v2"
	"time"
)

// pause computes how long to wait before the next stream: a random time up to a bound
// that doubles from half a second to a minute with each failure (full jitter). Readers
// that lost their server together do not come back together. It starts over after a
// stream that lasted a minute.
type pause struct {
	failures int
	// hastened is when the last shortened pause ended.
	hastened time.Time
}

func (p *pause) after(s Stream) time.Duration {
	const minBound, maxBound, forLog = 500 * time.Millisecond, time.Minute, 4 * time.Second
	switch {
	case errors.Is(s.Err, errRelist):
		return 0
	case errors.Is(s.Err, ErrUnauthenticated):
		// Retrying soon with the same credential cannot succeed.
		return maxBound/2 + random(maxBound/2)
	case time.Since(s.Began) >= time.Minute:
		p.failures = 0
	}
	bound := maxBound
	if p.failures < 7 {
		bound = minBound << p.failures
	}
	p.failures++
	var end *EndError
	if errors.As(s.Err, &end) && end.Reason == EndOfLog {
		// The server is up, and holds the next stream until its log is.
		bound = min(bound, forLog)
	}
	return random(min(bound, maxBound))
}

// cut returns how much of a pause remains once it is cut short: nothing, or enough to
// keep two streams of shortened pauses a second apart.
func (p *pause) cut(rest time.Duration) time.Duration {
	rest = max(0, min(rest, time.Until(p.hastened.Add(time.Second))))
	p.hastened = time.Now().Add(rest)
	return rest
}

func random(limit time.Duration) time.Duration {
	return time.Duration(rand.Int64N(int64(limit) + 1)) //nolint:gosec // no secret
}
