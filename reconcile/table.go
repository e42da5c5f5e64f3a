package reconcile

import (
	"container/heap"
	"container/list"
	"math"
	"sync"
	"time"
)

// table is the state of a [Queue]: which keys wait, in which order, and which
// for what time. It has no lock, no clock and no goroutine; the Queue calls it
// with its lock held. The zero table is empty.
//
// An item is in the table while its key waits, is being reconciled, has a time,
// or is parked. It is idle if it neither waits nor is being reconciled.
type table[K comparable] struct {
	items  map[K]*item[K]
	lanes  [resync + 1]list.List // of *item[K], the next one in front
	times  times[K]
	ready  sync.Cond     // signalled for each item that begins to wait
	sooner chan struct{} // receives when the first of times changes
}

// lane is the rank of an event.
type lane int

const (
	fresh lane = iota
	resync
	none // no event
)

type item[K comparable] struct {
	key      K
	lane     lane          // of the last event; retries keep it
	waiting  *list.Element // in the lane, nil if not
	active   bool          // a worker has it
	again    lane          // event since it became active
	ignore   bool          // forgotten since it became active
	failures int           // in a row
	parked   error         // only if idle
	addTime  time.Time     // of AddAfter, zero if none
	retry    time.Time     // by RequeueAfter or Backoff, zero if none; only if idle
	index    int           // in times, -1 if not
}

// item returns the item of key, a new one if it has none.
func (t *table[K]) item(key K) *item[K] {
	if t.items == nil {
		t.items = make(map[K]*item[K])
	}
	it, ok := t.items[key]
	if !ok {
		it = &item[K]{key: key, again: none, index: -1}
		t.items[key] = it
	}
	return it
}

// add records an event.
func (t *table[K]) add(it *item[K], lane lane) {
	if it.active {
		it.again = min(it.again, lane)
		return
	}
	if lane == resync && (it.waiting != nil || it.failures > 0 && !it.retry.IsZero()) {
		return // it is going to be reconciled anyway
	}
	it.failures = 0
	if it.waiting != nil && it.lane == lane {
		return
	}
	t.wait(it, lane)
}

// wait puts it at the end of lane.
func (t *table[K]) wait(it *item[K], lane lane) {
	t.withdraw(it)
	it.parked = nil
	it.retry = time.Time{}
	t.reschedule(it)
	it.lane = lane
	it.waiting = t.lanes[lane].PushBack(it)
	t.ready.Signal()
}

// withdraw takes it out of its lane.
func (t *table[K]) withdraw(it *item[K]) {
	if it.waiting != nil {
		t.lanes[it.lane].Remove(it.waiting)
		it.waiting = nil
	}
}

// take returns the item whose turn it is, now active, or nil if none waits.
func (t *table[K]) take() *item[K] {
	for lane := range t.lanes {
		if front := t.lanes[lane].Front(); front != nil {
			it, _ := front.Value.(*item[K])
			t.withdraw(it)
			it.active = true
			return it
		}
	}
	return nil
}

// finish ends the pass of an active item. Unless an event came meanwhile, it is
// reconciled again at due, or if due is zero parked with err, or if that is nil
// done.
func (t *table[K]) finish(it *item[K], err error, due time.Time) {
	again, ignore := it.again, it.ignore
	it.active, it.again, it.ignore = false, none, false
	if ignore {
		err, due = nil, time.Time{}
	}
	park := err != nil && due.IsZero()
	switch {
	case again == fresh, again == resync && (err == nil || park):
		it.failures = 0
		t.wait(it, again)
		return
	case park:
		it.parked = err
	case err != nil:
		it.failures++
	default:
		it.failures = 0
	}
	it.retry = due
	t.reschedule(it)
	t.drop(it)
}

// interrupt ends the pass of an active item as if it had not begun.
func (t *table[K]) interrupt(it *item[K]) {
	if !it.ignore {
		t.add(it, it.lane)
	}
	t.finish(it, nil, time.Time{})
}

// addAt makes a fresh event for key at the given time.
func (t *table[K]) addAt(key K, at time.Time) {
	it := t.item(key)
	if it.addTime.IsZero() || at.Before(it.addTime) {
		it.addTime = at
		t.reschedule(it)
	}
}

// advance makes the events whose time has come, and returns how long it is to
// the next.
func (t *table[K]) advance(now time.Time) time.Duration {
	for len(t.times) > 0 {
		it := t.times[0]
		if due := it.due(); due.After(now) {
			return due.Sub(now)
		}
		if !it.retry.IsZero() && !it.retry.After(now) {
			t.wait(it, it.lane)
		}
		if !it.addTime.IsZero() && !it.addTime.After(now) {
			it.addTime = time.Time{}
			t.add(it, fresh)
		}
		t.reschedule(it)
	}
	return math.MaxInt64
}

// forget drops key and all its events.
func (t *table[K]) forget(key K) {
	it, ok := t.items[key]
	if !ok {
		return
	}
	t.withdraw(it)
	it.failures, it.parked = 0, nil
	it.addTime, it.retry = time.Time{}, time.Time{}
	t.reschedule(it)
	it.again, it.ignore = none, it.active
	t.drop(it)
}

// drop removes it from the table if it has no work and no error to report.
func (t *table[K]) drop(it *item[K]) {
	if it.waiting == nil && !it.active && it.parked == nil && it.index < 0 {
		delete(t.items, it.key)
	}
}

// reschedule puts it in its place among the times.
func (t *table[K]) reschedule(it *item[K]) {
	switch timed := !it.due().IsZero(); {
	case timed && it.index < 0:
		heap.Push(&t.times, it)
	case timed:
		heap.Fix(&t.times, it.index)
	case it.index >= 0:
		heap.Remove(&t.times, it.index)
	}
	if it.index == 0 {
		select {
		case t.sooner <- struct{}{}:
		default: // notified already, or not running
		}
	}
}

// due is the earlier of the two times of it, zero if it has none.
func (it *item[K]) due() time.Time {
	if it.retry.IsZero() || !it.addTime.IsZero() && it.addTime.Before(it.retry) {
		return it.addTime
	}
	return it.retry
}

// times is a heap of the items that have a time, for container/heap.
type times[K comparable] []*item[K]

func (s times[K]) Len() int { return len(s) }

func (s times[K]) Less(i, j int) bool { return s[i].due().Before(s[j].due()) }

func (s times[K]) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

func (s *times[K]) Push(x any) {
	it, _ := x.(*item[K])
	it.index = len(*s)
	*s = append(*s, it)
}

func (s *times[K]) Pop() any {
	last := len(*s) - 1
	it := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	it.index = -1
	return it
}
