package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// stuck is how long a standby watches one row wait in the queue before it
	// moves it itself: the leader is dead and its lock not, or a pooler lost it.
	stuck = time.Second
	// acting is how long it then goes on.
	acting = 30 * time.Second
	// longestRest bounds the pause between batches, restOf what each change adds
	// to it: who commits alone is not kept waiting, and many make large batches.
	longestRest = 2 * time.Millisecond
	restOf      = 200 * time.Microsecond
	// lookAgain is how often the whole queue is looked at, rows of transactions
	// that were seen included: somebody may have loaded some from a dump.
	lookAgain = 10 * time.Minute
)

// session is a *sql.DB or *sql.Conn.
type session interface {
	beginner
	querier
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (r *running) sequence(ctx context.Context) error {
	return r.supervise(ctx, "sequencer", func(ctx context.Context) error {
		// Others may have taken over meanwhile.
		r.watcher.stale(nil)
		var err error
		if r.Dialect == PostgreSQL {
			err = r.sequenceOnConnection(ctx)
		} else {
			err = r.sequenceOn(ctx, r.DB, func(context.Context, bool) (bool, error) { return true, nil })
		}
		if err != nil && ctx.Err() == nil && r.OnBatch != nil {
			r.OnBatch(Batch{Err: err})
		}
		return err
	})
}

// sequenceOnConnection sequences while a session holds the advisory lock, and is
// a standby while another does. The lock keeps standbys from competing for the
// row that makes a batch exclusive, and has no part in what is correct.
func (r *running) sequenceOnConnection(ctx context.Context) error {
	conn, err := r.DB.Conn(ctx)
	if err != nil {
		return err
	}
	// Closed, not given back to the pool: the end of the session ends its lock.
	defer func() {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		_ = conn.Close()
	}()
	var leads bool
	var oldest int64
	var since, actsUntil time.Time
	return r.sequenceOn(ctx, conn, func(ctx context.Context, woken bool) (bool, error) {
		switch {
		case leads || time.Now().Before(actsUntil):
			return true, nil
		case woken:
			signal(r.notifyWake)
			return false, nil
		}
		var first sql.NullInt64
		if err := conn.QueryRowContext(ctx, r.sql.candidate, r.lockKey("sequence")).Scan(&leads, &first); err != nil {
			return false, err
		}
		now := time.Now()
		switch {
		case leads:
			return true, nil
		case !first.Valid:
			since = time.Time{}
		case first.Int64 != oldest || since.IsZero():
			oldest, since = first.Int64, now
		case now.Sub(since) >= stuck:
			r.logger().WarnContext(ctx, "the sequencer holds its lock and does not work: taking over")
			actsUntil = now.Add(acting)
			since = time.Time{}
			return true, nil
		}
		return false, nil
	})
}

// sequenceOn moves what is committed, at every Wake and Poll, whenever leads
// returns true.
func (r *running) sequenceOn(ctx context.Context, on session, leads func(ctx context.Context, woken bool) (bool, error)) error {
	from, err := r.findOrigin(ctx, on)
	if err != nil {
		return err
	}
	seen, again := nothingSeen, time.Now().Add(lookAgain)
	poll := time.NewTicker(r.poll())
	defer poll.Stop()
	// The first batch looks at the origin, even when there is nothing to move.
	for first, woken := true, false; ; {
		active, err := leads(ctx, woken)
		if err != nil {
			return fmt.Errorf("election: %w", err)
		}
		// An idle database is asked, not written to.
		if active && !woken && !first {
			if err := on.QueryRowContext(ctx, r.sql.waiting, seen).Scan(&active); err != nil {
				return fmt.Errorf("queue: %w", err)
			}
		}
		if active {
			if time.Now().After(again) {
				seen, again = nothingSeen, time.Now().Add(lookAgain)
			}
			began := time.Now()
			var changes int
			if seen, changes, err = r.batch(ctx, on, from, seen); err != nil {
				return fmt.Errorf("batch: %w", err)
			}
			first = false
			// Up to as long again belongs to the writers, and makes the next batch
			// larger.
			rest(ctx, min(time.Since(began), time.Duration(changes)*restOf, longestRest))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
			woken = true
		case <-poll.C:
			woken = false
		}
	}
}

// moved is a scope that a batch has touched.
type moved struct {
	scope   string
	head    uint64
	changes int
}

// nothingSeen is a snapshot from before the first transaction.
const nothingSeen = "1:1:"

// batch gives versions to everything that is committed. What the snapshot seen
// has shown was moved before; it returns the one that this batch has seen, and how
// many changes it moved.
func (r *running) batch(ctx context.Context, on session, from origin, seen string) (now string, changes int, err error) {
	began := time.Now()
	var heads []moved
	var changed bool
	err = transact(ctx, on, func(tx *sql.Tx) error {
		var err error
		if changed, err = r.lockBatch(ctx, tx, from); err != nil {
			return err
		}
		// Another server's transactions have other numbers.
		if changed || !from.known && r.Dialect == PostgreSQL {
			seen = nothingSeen
		}
		heads, err = collect(ctx, tx, func(row *sql.Rows, m *moved) error {
			return row.Scan(&now, &m.scope, &m.head, &m.changes)
		}, r.sql.move, seen)
		heads = slices.DeleteFunc(heads, func(m moved) bool { return m.scope == "" })
		switch {
		case err != nil:
			return err
		case len(heads) == 0 && !changed:
			return errIdle
		}
		for _, statement := range r.sql.moveAfter {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case errors.Is(err, errIdle):
		return cmp.Or(now, seen), 0, nil
	case err != nil:
		return seen, 0, err
	}
	if changed {
		r.watcher.stale(nil)
	}
	r.announce(heads)
	for _, m := range heads {
		changes += m.changes
	}
	if r.OnBatch != nil {
		r.OnBatch(Batch{Changes: changes, Scopes: len(heads), Took: time.Since(began)})
	}
	return cmp.Or(now, seen), changes, nil
}

// errIdle ends a transaction that had nothing to do, without a commit that would
// have to be written.
var errIdle = errors.New("nothing to do")

func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
