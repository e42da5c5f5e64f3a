package view

import "time"

// brake counts, for each object, the wake-ups that foreign changes to it have
// caused. An object that is changed or deleted again and again causes no more of
// them until a minute is over; the pass at the regular interval goes on repairing.
type brake map[Name]wakes

type wakes struct {
	since time.Time
	count int
}

// wakeLimit and wakeWindow bound the wake-ups for one object.
const (
	wakeLimit  = 5
	wakeWindow = time.Minute
)

// allow reports whether a change to the object may wake, and counts it.
func (b brake) allow(n Name, now time.Time) bool {
	at := b[n]
	if now.Sub(at.since) >= wakeWindow {
		b.clean(now)
		at = wakes{since: now}
	}
	at.count++
	b[n] = at
	return at.count <= wakeLimit
}

// clean drops what no longer counts, once there is much of it.
func (b brake) clean(now time.Time) {
	const much = 1024
	if len(b) < much {
		return
	}
	for n, at := range b {
		if now.Sub(at.since) >= wakeWindow {
			delete(b, n)
		}
	}
}
