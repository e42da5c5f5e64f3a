package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// Report is what [statesync.Readers] says.
//
// A reader that has applied a version above the head, in the epoch of the log,
// proves that the log has lost what it had: the database was restored, or failed
// over, unnoticed. The scope then gets another epoch, and its readers begin anew.
func (s *Store) Report(ctx context.Context, scope string, r statesync.Report) (stored bool, err error) {
	if err := s.ready(); err != nil {
		return false, err
	}
	if err := r.Validate(); err != nil {
		return false, invalid(err)
	}
	for name, value := range map[string]uint64{"session": r.Session, "sequence": r.Sequence, "applied.version": r.Applied.Version} {
		if value > math.MaxInt64 {
			return false, invalid(fmt.Errorf("report: %s: is %d, more than %d", name, value, int64(math.MaxInt64)))
		}
	}
	var renewed bool
	err = s.retry(ctx, func() error {
		return s.transact(ctx, func(tx *sql.Tx) error {
			var err error
			stored, renewed, err = s.report(ctx, tx, scope, r)
			return err
		})
	})
	if err != nil {
		return false, fmt.Errorf("report of %q: %w", r.Reader, err)
	}
	if renewed {
		s.watcher.stale(nil)
	}
	return stored, nil
}

func (s *Store) report(ctx context.Context, tx *sql.Tx, scope string, r statesync.Report) (stored, renewed bool, err error) {
	var body []byte
	if r.Body != nil {
		body = r.Body
	}
	// It writes first: SQLite would not let a transaction that has read write
	// after another has written.
	result, err := tx.ExecContext(ctx, s.sql.reported, scope, r.Reader, int64(r.Session), int64(r.Sequence), r.Applied.Epoch, int64(r.Applied.Version), body) //nolint:gosec // checked above
	if err != nil {
		return false, false, err
	}
	n, err := result.RowsAffected()
	if err != nil {
		return false, false, err
	}
	var p statesync.Position
	err = tx.QueryRowContext(ctx, s.sql.position, scope).Scan(&p.Epoch, &p.Floor, &p.Head)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return false, false, unknown(scope)
	case err != nil:
		return false, false, err
	}
	if r.Applied.Epoch != p.Epoch || r.Applied.Version <= p.Head {
		return n > 0, false, nil
	}
	renewed, err = s.renew(ctx, tx, scope, p.Epoch, r.Applied.Version)
	return n > 0, renewed, err
}

// Readers is what [statesync.Readers] says. The times are the database's.
func (s *Store) Readers(ctx context.Context, scope string) ([]statesync.Reader, error) {
	if err := s.ready(); err != nil {
		return nil, err
	}
	if _, err := s.position(ctx, scope); err != nil {
		return nil, err
	}
	list, err := s.readersOf(ctx, s.readDB(), scope)
	if err != nil {
		return nil, fmt.Errorf("readers of scope %q: %w", scope, err)
	}
	return list, nil
}

func (s *Store) readersOf(ctx context.Context, from querier, scope string) ([]statesync.Reader, error) {
	return collect(ctx, from, func(row *sql.Rows, r *statesync.Reader) error {
		var body []byte
		var at int64
		err := row.Scan(&r.Reader, &r.Session, &r.Sequence, &r.Applied.Epoch, &r.Applied.Version, &body, &at)
		if body != nil {
			r.Body = body
		}
		r.At = time.UnixMilli(at)
		return err
	}, s.sql.readers, scope)
}
