package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Batch is one transaction of the sequencer.
type Batch struct {
	// Changes counts the changes that got a version.
	Changes int
	// Scopes counts their scopes.
	Scopes int
	// Took is the duration of the transaction.
	Took time.Duration
	// Err is the reason why no change was moved. The batch is retried.
	Err error
}

// maxBatchBytes bounds the values of one batch on PostgreSQL, as batchRows bounds
// its changes. A larger commit is a batch of its own.
const maxBatchBytes = 32 << 20

// batch is the result of one transaction of the sequencer.
type batch struct {
	heads []moved
	// seen is the snapshot of the statement that moved, and complete reports that it
	// moved all rows visible to it.
	seen     string
	complete bool
	// backlog is the transactions left to move.
	backlog [][]int64
	// renewed reports that a scope has got a new epoch.
	renewed bool
}

// move takes the lock and moves one batch in tx. It returns errIdle if there is none.
func (q *sequencer) move(ctx context.Context, tx *sql.Tx) (done batch, err error) {
	s := q.running.store
	if done.renewed, err = s.lockBatch(ctx, tx, q.from, q.limit); err != nil {
		return done, err
	}
	// Another server's transactions have other numbers.
	if done.renewed || !q.from.known && s.Dialect == PostgreSQL {
		q.seen, q.backlog = nothingSeen, nil
	}
	mark := drawMark()
	if len(q.backlog) == 0 {
		if done.complete, err = q.moveBy(ctx, tx, &done, s.sql.move, q.seen, mark); err != nil {
			return done, err
		}
		if !done.complete {
			if q.backlog, err = q.plan(ctx, tx); err != nil {
				return done, err
			}
		}
	}
	if len(q.backlog) > 0 {
		list, err := json.Marshal(q.backlog[0])
		if err != nil {
			return done, err
		}
		if _, err := q.moveBy(ctx, tx, &done, s.sql.moveSome, string(list), mark); err != nil {
			return done, err
		}
		done.backlog = q.backlog[1:]
	}
	if len(done.heads) == 0 && !done.renewed {
		return done, errIdle
	}
	if err := q.finish(ctx, tx, mark); err != nil {
		return done, err
	}
	lost, err := q.lostTail(ctx, tx, done.heads)
	done.renewed = done.renewed || lost
	return done, err
}

// moveBy moves by the statement. It returns false if it moved nothing because there
// is more than one batch.
func (q *sequencer) moveBy(ctx context.Context, tx *sql.Tx, done *batch, statement, which string, mark int64) (fits bool, err error) {
	fits = true
	heads, err := collect(ctx, tx, func(row *sql.Rows, m *moved) error {
		return row.Scan(&done.seen, &fits, &m.scope, &m.head, &m.changes)
	}, statement, which, mark)
	done.heads = slices.DeleteFunc(heads, func(m moved) bool { return m.scope == "" })
	return fits, err
}

// finish runs the statements of a move beside the main one.
func (q *sequencer) finish(ctx context.Context, tx *sql.Tx, mark int64) error {
	s := q.running.store
	for _, statement := range s.sql.moveAfter {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	if s.sql.markAfter == "" {
		return nil
	}
	if _, err := tx.ExecContext(ctx, s.sql.markAfter, mark); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, s.sql.emptied)
	return err
}

// plan divides a queue that is too long for one batch. Each part consists of whole
// transactions. The parts are ordered by the last number of each transaction: of two
// that change one key, the second has waited for the lock of the first, and has drawn
// its number after it.
func (q *sequencer) plan(ctx context.Context, tx *sql.Tx) (parts [][]int64, err error) {
	type transaction struct{ id, rows, bytes int64 }
	all, err := collect(ctx, tx, func(row *sql.Rows, t *transaction) error {
		return row.Scan(&t.id, &t.rows, &t.bytes)
	}, q.running.store.sql.plan, q.seen)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	var rows, bytes int64
	for _, t := range all {
		if len(parts) == 0 || rows+t.rows > int64(q.running.store.batchRows()) || bytes+t.bytes > maxBatchBytes {
			parts = append(parts, nil)
			rows, bytes = 0, 0
		}
		last := len(parts) - 1
		parts[last] = append(parts[last], t.id)
		rows, bytes = rows+t.rows, bytes+t.bytes
	}
	return parts, nil
}

// lostTail gives a new epoch to the scopes whose heads, before the batch, were below a
// version that this process has read or assigned: the log has lost its newest commits,
// and the batch has assigned their versions again.
func (q *sequencer) lostTail(ctx context.Context, tx *sql.Tx, heads []moved) (lost bool, err error) {
	s := q.running.store
	known := s.watcher.known(scopesOf(heads))
	for _, m := range heads {
		before := m.head - uint64(m.changes) //nolint:gosec // a count
		if before >= max(q.running.heads[m.scope], known[m.scope].Head) {
			continue
		}
		var p place
		if err := tx.QueryRowContext(ctx, s.sql.position, m.scope).Scan(p.into()...); err != nil {
			return lost, err
		}
		if err := s.renew(ctx, tx, m.scope, p.Epoch, "a batch begins below the head", s.sql.otherEpoch); err != nil {
			return lost, err
		}
		lost = true
	}
	return lost, nil
}

func scopesOf(heads []moved) []string {
	names := make([]string, len(heads))
	for n, m := range heads {
		names[n] = m.scope
	}
	return names
}

// canceled reports whether the server ended a statement at its time limit.
func canceled(err error) bool {
	var postgres interface{ SQLState() string }
	return errors.As(err, &postgres) && postgres.SQLState() == "57014"
}
