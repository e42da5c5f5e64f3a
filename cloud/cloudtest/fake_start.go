package cloudtest

import (
	"context"
	"slices"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// Start calls OnState for every state that a machine enters from now on, one at a time,
// until ctx ends, and then returns nil. A Fake works without Start as well; then
// OnState is not called.
func (f *Fake) Start(ctx context.Context) error {
	called := map[string]int{} // by machine: how many of its states were handled
	f.due(time.Now(), called)
	for {
		due, next, changed := f.due(time.Now(), called)
		for _, c := range due {
			f.OnState(ctx, c.Instance)
		}
		if len(due) > 0 {
			continue
		}
		timer := time.NewTimer(time.Until(next))
		if next.IsZero() {
			timer.Stop()
		}
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		timer.Stop()
	}
}

// change is a machine as it entered a state.
type change struct {
	cloud.Instance
	at time.Time
}

// due returns the states that machines have entered and that are not in called, and
// adds them to it. It also returns the time of the next one, and a channel that is
// closed when a call changes a machine.
func (f *Fake) due(now time.Time, called map[string]int) (due []change, next time.Time, changed chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	for _, id := range f.order {
		m := f.machines[id]
		for _, e := range m.states[min(called[id], len(m.states)):] {
			if e.at.After(now) {
				if next.IsZero() || e.at.Before(next) {
					next = e.at
				}
				break
			}
			called[id]++
			i := m.at(e.at)
			i.State = e.state
			due = append(due, change{i, e.at})
		}
	}
	slices.SortStableFunc(due, func(a, b change) int { return a.at.Compare(b.at) })
	return due, next, f.changed
}
