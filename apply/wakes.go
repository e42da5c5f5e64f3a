package apply

import "time"

// wakes counts, for each object, the passes that foreign changes to it have
// started early. Who changes an object again and again, or deletes it each time,
// starts no more of them until a minute is over: the regular pass goes on
// repairing.
type wakes map[name]wake

type wake struct {
	since time.Time
	count int
}

// wakeLimit and wakeWindow bound the early passes for one object.
const (
	wakeLimit  = 5
	wakeWindow = time.Minute
)

// allow reports whether a change to the object may start a pass, and counts it.
func (w wakes) allow(n name, now time.Time) bool {
	at := w[n]
	if now.Sub(at.since) >= wakeWindow {
		w.clean(now)
		at = wake{since: now}
	}
	at.count++
	w[n] = at
	return at.count <= wakeLimit
}

// clean drops what no longer counts, once there is much of it.
func (w wakes) clean(now time.Time) {
	const much = 1024
	if len(w) < much {
		return
	}
	for n, at := range w {
		if now.Sub(at.since) >= wakeWindow {
			delete(w, n)
		}
	}
}
