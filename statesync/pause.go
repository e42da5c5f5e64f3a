package statesync

import (
	"errors"
	"math/rand/v2"
	"time"
)

// pause says how long to wait before the next stream: anything up to a bound
// that doubles from half a second to a minute with each failure (full jitter),
// so that readers which lost their server together do not come back together.
// It begins anew after a stream that lasted a minute.
type pause struct{ failures int }

func (p *pause) after(s Stream) time.Duration {
	const least, most = 500 * time.Millisecond, time.Minute
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
	return random(min(bound, most))
}

func random(most time.Duration) time.Duration {
	return time.Duration(rand.Int64N(int64(most) + 1)) //nolint:gosec // no secret
}
