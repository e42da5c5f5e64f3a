package view

import "time"

// brake counts, for each object, the wake-ups that foreign changes to it have
// caused. An object over its limit causes no wake-ups for the rest of the minute. The pass
// at the regular interval still repairs it.
type brake map[Name]wakes

type wakes struct {
	since time.Time
	count int
}

// wakeLimit and wakeWindow bound the wake-ups for one object.
const (
	wakeLimit  = 6 // five repairs, and the change that shows a fight
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

// clean drops expired entries, once there are many.
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
