package statesync

import (
	"errors"
	"math/rand/v2"
	"time"
)

// pause returns how long to wait before the next stream: anything up to a bound
// that doubles from half a second to a minute with each failure (full jitter),
// so that readers which lost their server together do not come back together.
// It begins anew after a stream that lasted a minute.
type pause struct {
	failures int
	// hastened is when the last pause ended that was cut short.
	hastened time.Time
}

func (p *pause) after(s Stream) time.Duration {
	const least, most, forLog = 500 * time.Millisecond, time.Minute, 4 * time.Second
	switch {
	case errors.Is(s.Err, errRelist):
		return 0
	case errors.Is(s.Err, ErrUnauthenticated):
		// A credential does not get better by being shown often.
		return most/2 + random(most/2)
	case time.Since(s.Began) >= time.Minute:
		p.failures = 0
	}
	bound := most
	if p.failures < 7 {
		bound = least << p.failures
	}
	p.failures++
	var end *EndError
	if errors.As(s.Err, &end) && end.Reason == EndOfLog {
		// The server is there, and keeps the next stream until its log is.
		bound = min(bound, forLog)
	}
	return random(min(bound, most))
}

// cut returns how much of the rest of a pause remains once it is cut short: none,
// or what keeps two streams a second apart that came so.
func (p *pause) cut(rest time.Duration) time.Duration {
	rest = max(0, min(rest, time.Until(p.hastened.Add(time.Second))))
	p.hastened = time.Now().Add(rest)
	return rest
}

func random(most time.Duration) time.Duration {
	return time.Duration(rand.Int64N(int64(most) + 1)) //nolint:gosec // no secret
}
