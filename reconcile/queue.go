package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Queue reconciles many keys with a few workers. A key is given to one worker
// at a time; keys that fail are retried each on their own. A Queue holds keys,
// not events: any number of events for a key that waits are one, and nothing is
// kept of a key that is done.
//
// All methods but Start are safe for concurrent use, never block, and work
// whether or not the Queue is running: keys added before Start or after its end wait
// for the next Start. A Queue must not be copied after first use.
type Queue[K comparable] struct {
	// Name stands in logs and errors. Default "queue".
	Name string

	// Reconcile does one pass for one key. Required. It is called from Workers
	// goroutines, but never twice at a time for one key. A panic in it becomes
	// the error of that pass, a [PanicError].
	Reconcile func(ctx context.Context, key K) (Result, error)

	// Workers is how many keys are reconciled at a time. Default 1.
	Workers int

	// Timeout bounds one pass: its ctx ends after this long. A pass that does
	// not heed its ctx keeps its worker. Default 0, which is no bound.
	Timeout time.Duration

	// Backoff is when a key that failed is retried. Each key counts its own retries,
	// and a success or an Add resets the count. A key that has used them up is parked.
	// The zero Backoff never gives up.
	Backoff Backoff

	// Logger gets each pass: failures at level error, others at level debug.
	// Default nil, which is silent.
	Logger *slog.Logger

	// OnPass is called after every pass, before the same key can be given to a
	// worker again, on the goroutine of the worker: calls for different keys
	// are concurrent. Its panic is logged and stops nothing. Default nil, which
	// is none.
	OnPass func(KeyPass[K])

	mu      sync.Mutex
	running bool
	table   table[K]
}

// KeyPass describes one pass of a [Queue] for one key.
type KeyPass[K comparable] struct {
	// Key is the reconciled key.
	Key K
	// Attempt is 1, and one more for each failure just before this pass.
	Attempt int
	// Start is when the pass began.
	Start time.Time
	// Duration is how long it took.
	Duration time.Duration
	// Result is what Reconcile returned.
	Result Result
	// Err is nil if the pass succeeded.
	Err error
	// Next is how long after this pass the key is due again, by RequeueAfter or
	// Backoff, if no event comes first. Zero is not at all.
	Next time.Duration
	// Parked reports that the key is not retried until its next event.
	Parked bool
}

// Add announces a fresh event for each of keys. They are reconciled before all
// keys that only wait for a resync. A key that is being reconciled is
// reconciled once more afterwards; one that waits for a retry, or is parked, is
// reconciled at once, with its count of retries reset.
func (q *Queue[K]) Add(keys ...K) { q.add(fresh, keys) }

// Resync announces a pass without an event for each of keys, as in a periodic sweep:
// they are reconciled when no key waits for a fresh event. A key that waits for a retry
// is left to it; a parked one gets another chance.
func (q *Queue[K]) Resync(keys ...K) { q.add(resync, keys) }

// AddAfter is Add(key) after d has passed, at once if d is zero or less. Of several for
// one key the earliest counts. A pass of the key in between does not cancel it, only
// Forget does.
func (q *Queue[K]) AddAfter(key K, d time.Duration) {
	if d <= 0 {
		q.Add(key)
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.table.addAt(key, time.Now().Add(d))
}

// Forget drops key and its state: waiting events, retries, AddAfter, the error with
// which it is parked. A running pass of key continues, and its Result is ignored. A
// later Add starts from zero.
func (q *Queue[K]) Forget(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.table.forget(key)
}

// Len is the number of keys that wait for a free worker. It does not count
// keys being reconciled, waiting for their time, or parked.
func (q *Queue[K]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.table.lanes[fresh].Len() + q.table.lanes[resync].Len()
}

// Parked returns the keys that are not retried until their next event, each
// with the error of its last pass. The caller owns the map.
func (q *Queue[K]) Parked() map[K]error {
	q.mu.Lock()
	defer q.mu.Unlock()
	parked := make(map[K]error)
	for key, item := range q.table.items {
		if item.parked != nil {
			parked[key] = item.parked
		}
	}
	return parked
}

// Start runs the workers until ctx ends, and then returns nil once the current passes
// have returned. Keys not yet reconciled, and those whose pass failed because ctx
// ended, stay for the next Start. It fails at once if a field is out of range or the
// Queue is running already.
func (q *Queue[K]) Start(ctx context.Context) error {
	if err := q.validate(); err != nil {
		return err
	}
	if !q.enter() {
		return fmt.Errorf("reconcile: %s is running already", q.name())
	}
	defer q.leave()

	var workers sync.WaitGroup
	for range cmp.Or(q.Workers, 1) {
		workers.Go(func() {
			for q.one(ctx) {
			}
		})
	}
	q.keepTime(ctx)
	workers.Wait()
	return nil
}

func (q *Queue[K]) add(lane lane, keys []K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, key := range keys {
		q.table.add(q.table.item(key), lane)
	}
}

// keepTime adds the keys whose time has come until ctx ends, and then wakes the
// workers, which stop.
func (q *Queue[K]) keepTime(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-q.table.sooner:
		}
		q.mu.Lock()
		timer.Reset(q.table.advance(time.Now()))
		q.mu.Unlock()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.table.ready.Broadcast()
}

// one waits for a key and reconciles it. It is false when ctx has ended.
func (q *Queue[K]) one(ctx context.Context) bool {
	item, attempts := q.take(ctx)
	if item == nil {
		return false
	}
	pass := q.pass(ctx, item.key, attempts+1)

	q.mu.Lock()
	defer q.mu.Unlock()
	if pass.Err != nil && ctx.Err() != nil {
		q.table.interrupt(item)
		return false
	}
	var due time.Time
	if pass.Next > 0 || pass.Err != nil && !pass.Parked {
		due = time.Now().Add(pass.Next)
	}
	q.table.finish(item, pass.Err, due)
	return true
}

// take waits for a key, and returns how often it has failed so far.
func (q *Queue[K]) take(ctx context.Context) (*item[K], int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for ctx.Err() == nil {
		if item := q.table.take(); item != nil {
			return item, item.failures
		}
		q.table.ready.Wait()
	}
	return nil, 0
}

// pass runs one pass and reports it.
func (q *Queue[K]) pass(ctx context.Context, key K, number int) KeyPass[K] {
	pass := KeyPass[K]{Key: key, Attempt: number, Start: time.Now()}
	pass.Result, pass.Err = attempt(ctx, q.Timeout, func(ctx context.Context) (Result, error) {
		return q.Reconcile(ctx, key)
	})
	pass.Duration = time.Since(pass.Start)
	if pass.Err == nil {
		pass.Next = max(0, pass.Result.RequeueAfter)
	} else if delay, ok := q.Backoff.of(key).Next(number); ok && !hopeless(pass.Err) {
		pass.Next = delay
	} else {
		pass.Parked = true
	}

	logger := cmp.Or(q.Logger, slog.New(slog.DiscardHandler))
	logPass(ctx, logger, pass.Err, slog.String("queue", q.name()), slog.Any("key", key),
		slog.Int("attempt", number), slog.Duration("duration", pass.Duration), slog.Bool("parked", pass.Parked))
	if q.OnPass != nil {
		observe(ctx, logger, func() { q.OnPass(pass) })
	}
	return pass
}

func (q *Queue[K]) validate() error {
	if q.Reconcile == nil {
		return errors.New("reconcile: Queue.Reconcile: is required")
	}
	if q.Workers < 0 {
		return fmt.Errorf("reconcile: Queue.Workers: is %d, must be 0 (1 default) or more", q.Workers)
	}
	return cmp.Or(
		notNegative("Queue.Timeout", q.Timeout, "no bound"),
		q.Backoff.validate("Queue"),
	)
}

func (q *Queue[K]) name() string { return cmp.Or(q.Name, "queue") }

func (q *Queue[K]) enter() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	entered := !q.running
	if entered {
		q.running = true
		q.table.ready.L = &q.mu
		q.table.sooner = make(chan struct{}, 1)
	}
	return entered
}

func (q *Queue[K]) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running = false
}
