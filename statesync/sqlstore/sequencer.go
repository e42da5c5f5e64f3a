package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/seed-9e1ffd66/trueup/internal/pause"
)

const (
	// maxPause bounds the pause between batches; pausePerChange is added for each change.
	// A single writer does not wait, and many writers make large batches.
	maxPause       = 2 * time.Millisecond
	pausePerChange = 200 * time.Microsecond
	// lookAgain is how often an idle sequencer scans the whole queue, rows of earlier
	// transactions included: some may have been loaded from a dump.
	lookAgain = 10 * time.Minute
	// maxLimit bounds the time limit of a batch, which doubles each time that it was
	// too short.
	maxLimit = 20 * time.Minute
)

// session is a *sql.DB or *sql.Conn.
type session interface {
	beginner
	querier
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (r *running) sequence(ctx context.Context) error {
	s := r.store
	limit := s.statementLimit()
	return r.supervise(ctx, "sequencer", func(ctx context.Context) error {
		// Another process may have taken over meanwhile.
		s.watcher.stale(nil)
		work := &sequencer{running: r, limit: limit, seen: nothingSeen, again: time.Now().Add(lookAgain)}
		var err error
		if s.Dialect == PostgreSQL {
			err = work.onConnection(ctx)
		} else {
			err = work.run(ctx, s.DB, func(context.Context, bool) (bool, error) { return true, nil })
		}
		limit = work.limit
		if err == nil || ctx.Err() != nil {
			return err
		}
		if work.leads {
			s.logger().WarnContext(ctx, "sequencer lost leadership", slog.Any("error", err))
			s.happened(Event{Kind: EventLost, Err: err})
		}
		r.failing(ctx, err)
		if s.OnBatch != nil {
			s.OnBatch(Batch{Err: err})
		}
		return err
	})
}

// failing reports the new events of a failure.
func (r *running) failing(ctx context.Context, err error) {
	s := r.store
	stuck, full := s.progress.failing(err, s.patience())
	if full {
		s.logger().ErrorContext(ctx, "database has no space left: committed changes get no version", slog.Any("error", err))
		s.happened(Event{Kind: EventFull, Err: err})
	}
	if stuck {
		s.logger().
			ErrorContext(ctx, "queue is stuck: committed changes get no version", slog.Duration("after", s.patience()), slog.Any("error", err))
		s.happened(Event{Kind: EventStuck, Err: err})
	}
}

// sequencer assigns versions on one session. It belongs to one goroutine.
type sequencer struct {
	running *running
	on      session
	from    origin
	leads   bool
	// limit is how long a statement of a batch may take.
	limit time.Duration
	// seen is a snapshot whose rows were moved; again is the time of the next scan of
	// the whole queue.
	seen  string
	again time.Time
	// backlog has the remaining batches of a queue that is too long for one, each a
	// list of transactions.
	backlog [][]int64
}

// run moves committed changes, at every Wake and Poll, whenever leads returns true.
func (q *sequencer) run(ctx context.Context, on session, leads func(ctx context.Context, woken bool) (bool, error)) error {
	s := q.running.store
	q.on = on
	var err error
	if q.from, err = s.findOrigin(ctx, on); err != nil {
		return err
	}
	poll := time.NewTicker(s.poll())
	defer poll.Stop()
	// The first batch checks the origin, even when there is nothing to move.
	for first, woken := true, false; ; {
		active, err := leads(ctx, woken)
		if err != nil {
			return fmt.Errorf("election: %w", err)
		}
		// An idle database is queried, not written to.
		if active && !woken && !first {
			if active, err = q.waits(ctx); err != nil {
				return fmt.Errorf("queue: %w", err)
			}
		}
		if active {
			if err := q.moveAll(ctx); err != nil {
				return fmt.Errorf("batch: %w", err)
			}
			first = false
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
			woken = true
		case <-poll.C:
			woken = false
		}
	}
}

// waits reports whether there is something to move.
func (q *sequencer) waits(ctx context.Context) (waits bool, err error) {
	if waits, err = q.beyond(ctx, q.seen); err != nil || waits {
		return waits, err
	}
	q.running.store.moving(ctx, q.seen)
	if time.Now().Before(q.again) {
		return false, nil
	}
	q.again = time.Now().Add(lookAgain)
	if waits, err = q.beyond(ctx, nothingSeen); waits {
		q.seen = nothingSeen
	}
	return waits, err
}

// beyond reports whether the queue has rows that the snapshot does not show.
func (q *sequencer) beyond(ctx context.Context, snapshot string) (waits bool, err error) {
	ctx, cancel := q.running.store.within(ctx)
	defer cancel()
	err = q.on.QueryRowContext(ctx, q.running.store.sql.waiting, snapshot).Scan(&waits)
	return waits, err
}

// moveAll moves one batch, or all batches of a long queue.
func (q *sequencer) moveAll(ctx context.Context) error {
	for ctx.Err() == nil {
		began := time.Now()
		changes, complete, err := q.batch(ctx)
		if err != nil {
			if errors.Is(err, context.DeadlineExceeded) || canceled(err) {
				q.limit = min(2*q.limit, maxLimit)
			}
			return err
		}
		q.limit = q.running.store.statementLimit()
		// A pause as long as the batch leaves time to the writers and makes the next
		// batch larger.
		pause.For(ctx, min(time.Since(began), time.Duration(changes)*pausePerChange, maxPause))
		if complete {
			return nil
		}
	}
	return nil
}

// moved is a scope that a batch has touched.
type moved struct {
	scope   string
	head    uint64
	changes int
}

// nothingSeen is a snapshot from before the first transaction.
const nothingSeen = "1:1:"

// batch assigns versions to the changes committed after the seen snapshot, or to the
// first transactions of them. It returns the number of changes, and whether these were
// all.
func (q *sequencer) batch(ctx context.Context) (changes int, complete bool, err error) {
	s := q.running.store
	began := time.Now()
	// The server's limit comes first.
	limited, cancel := context.WithTimeout(ctx, q.limit+q.limit/2)
	defer cancel()
	var done batch
	err = s.transactOn(limited, q.on, func(tx *sql.Tx) error {
		var err error
		done, err = q.move(limited, tx)
		return err
	})
	switch {
	case errors.Is(err, errIdle):
		q.advance(ctx, done)
		return 0, done.complete, nil
	case err != nil:
		return 0, false, err
	}
	q.advance(ctx, done)
	if done.renewed {
		// The old positions belong to the lost history.
		s.watcher.lost(scopesOf(done.heads))
		s.watcher.stale(nil)
	}
	q.running.announce(done.heads)
	for _, m := range done.heads {
		q.running.heads[m.scope] = m.head
		changes += m.changes
	}
	if s.OnBatch != nil {
		s.OnBatch(Batch{Changes: changes, Scopes: len(done.heads), Took: time.Since(began)})
	}
	return changes, done.complete, nil
}

// advance records what a batch has seen and left over.
func (q *sequencer) advance(ctx context.Context, done batch) {
	q.backlog = done.backlog
	if done.complete {
		q.seen = cmp.Or(done.seen, q.seen)
	}
	q.running.store.moving(ctx, q.seen)
}

// errIdle ends a transaction that had nothing to do, without the write of a commit.
var errIdle = errors.New("nothing to do")
