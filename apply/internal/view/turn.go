package view

import "time"

// Turns are the times at which each object is applied again although it is as our last
// apply left it: one in each interval, at a phase that follows from its UID. So they are
// spread, and a restart changes none of them.
type Turns struct {
	Interval time.Duration // zero or less: there are none
	// Start is a fixed time of this process. Later times count from it, by the
	// monotonic clock: a wall clock that is set makes nothing due.
	Start time.Time
}

// quiet is how long nothing is due after an apply, or after a start.
func (t Turns) quiet() time.Duration { return t.Interval / 24 }

// gap is how long the last process may have been gone at a start, or made no pass before.
// An object that had its turn then may have missed it, and gets another one.
func (t Turns) gap() time.Duration { return t.Interval / 144 }

// turn counts the turns of the object until now.
func (t Turns) turn(of uid, now time.Time) uint8 {
	phase := uint64(14695981039346656037) // FNV-1a
	for i := range len(of) {
		phase = (phase ^ uint64(of[i])) * 1099511628211
	}
	interval := uint64(t.Interval)                                            //nolint:gosec // is positive
	at := uint64(t.Start.UnixNano()) + uint64(now.Sub(t.Start).Nanoseconds()) //nolint:gosec // any fixed form will do
	return uint8((at + phase%interval) / interval)                            //nolint:gosec // consecutive turns differ
}

// had records that the object needs no turn until now. A next turn that comes too soon
// is put off, not left out: the program may be restarted at the same time each day.
func (t Turns) had(r *Record, now time.Time) {
	if t.Interval <= 0 {
		return
	}
	r.turn = t.turn(r.uid, now)
	r.traits &^= putOff
	if t.turn(r.uid, now.Add(t.quiet())) != r.turn {
		r.traits |= putOff
	}
}

// due reports whether the object has a turn that it has not had.
func (t Turns) due(r *Record, now time.Time) bool {
	if t.Interval <= 0 {
		return false
	}
	if r.traits&putOff != 0 {
		now = now.Add(-t.quiet() - t.gap())
	}
	return t.turn(r.uid, now) != r.turn
}

// recalled is had, at a start, when the turns of the last process are unknown.
func (t Turns) recalled(r *Record, now time.Time) {
	t.had(r, now)
	if t.Interval <= 0 {
		return
	}
	if before := t.turn(r.uid, now.Add(-t.gap())); before != r.turn {
		r.turn = before
		r.traits |= putOff
	}
}

// Due reports whether it is time to apply an object again that is as our last apply
// left it.
func (k *Kind) Due(r *Record, now time.Time) bool { return k.hooks.Turns.due(r, now) }
