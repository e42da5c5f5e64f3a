package statesync

import (
	"errors"
	"math/rand/v2"
	"time"
)

// pause computes how long to wait before the next stream: a random time up to how long the server was away, from half a
// second to a minute. So a reader is back, after the server, no later than the server was away, and readers
// that lost it together do not come back together. A bound that doubled with each failure would leave out the first: of a
// thousand readers, one draws short pauses only, and so the longest bound. It starts over after a stream that lasted a
// minute.
type pause struct {
	// away is how long the reader had no stream since then, and doubts is how often its copy was left in doubt.
	away   time.Duration
	doubts int
	// hastened is when the last shortened pause ended.
	hastened time.Time
}

func (p *pause) after(s Stream) time.Duration {
	const minBound, maxBound, forLog = 500 * time.Millisecond, time.Minute, 4 * time.Second
	lasted := time.Since(s.Began)
	switch {
	case errors.Is(s.Err, errRelist):
		return 0
	case errors.Is(s.Err, ErrUnauthenticated):
		// Retrying soon with the same credential cannot succeed.
		return maxBound/2 + random(maxBound/2)
	case s.Frames == 0:
		p.away += lasted // it was not answered
	case lasted >= time.Minute:
		p.away, p.doubts = 0, 0
	}
	bound := min(max(p.away, minBound), maxBound)
	var end *EndError
	switch {
	case doubtful(s.Err):
		// The server is up, and a list is due. Where two servers disagree, each list ends like this.
		bound = min(minBound<<min(p.doubts, 7), maxBound)
		p.doubts++
	case errors.As(s.Err, &end) && end.Reason == EndOfLog:
		// The server is up, and holds the next stream until its log is.
		bound = min(bound, forLog)
	}
	next := random(bound)
	p.away += next
	return next
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
