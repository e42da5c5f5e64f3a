package simtest

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"
)

// agenda is the queue of pending events, one at a time: each item runs when all
// goroutines of the bubble are blocked, and the next one when they are again. What
// a program does between two items has no influence on their order, which is that
// of their times and, at one time, of their names.
type agenda struct {
	mu    sync.Mutex
	items []*item
	added chan struct{}
	steps int
	beats *atomic.Int64 // how often the program had no more to do
}

type item struct {
	due  time.Time
	name string
	run  func()
}

func newAgenda(beats *atomic.Int64) *agenda {
	return &agenda{added: make(chan struct{}, 1), beats: beats}
}

// after plans something. The name decides between items of one time.
func (a *agenda) after(delay time.Duration, name string, run func()) *item {
	return a.at(time.Now().Add(delay), name, run)
}

func (a *agenda) at(due time.Time, name string, run func()) *item {
	i := &item{due, name, run}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.items = append(a.items, i)
	select {
	case a.added <- struct{}{}:
	default:
	}
	return i
}

// drop removes an item that has not run.
func (a *agenda) drop(i *item) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.items = slices.DeleteFunc(a.items, func(each *item) bool { return each == i })
}

// next takes the first item out if it is due, and otherwise returns when it is.
func (a *agenda) next(end time.Time) (*item, time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.items) == 0 {
		return nil, end
	}
	first := slices.MinFunc(a.items, func(x, y *item) int { return cmp.Or(x.due.Compare(y.due), cmp.Compare(x.name, y.name)) })
	if first.due.After(time.Now()) {
		return nil, first.due
	}
	a.items = slices.DeleteFunc(a.items, func(each *item) bool { return each == first })
	a.steps++
	return first, time.Time{}
}

// advance lets time pass, or until ctx ends.
func (a *agenda) advance(ctx context.Context, d time.Duration) {
	for end := time.Now().Add(d); ctx.Err() == nil; {
		synctest.Wait()
		a.beats.Add(1)
		first, until := a.next(end)
		if first != nil {
			first.run()
			continue
		}
		if !time.Now().Before(end) {
			return
		}
		if until.After(end) {
			until = end
		}
		timer := time.NewTimer(time.Until(until))
		select {
		case <-timer.C:
		case <-a.added:
			timer.Stop()
		}
	}
}
