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

// Report implements [statesync.Readers].
//
// If this log has made a reader's mark and no longer has it, the log has lost commits:
// the database was restored, or failed over, unnoticed. Two readers that have applied
// versions above the head, in the epoch of the log, prove the same; a single one may be
// faulty. The scope then gets a new epoch, and its readers start again. A report that
// is not stored proves nothing. Within ten minutes after such a change of the epoch,
// reports do not cause another.
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
		ctx, cancel := s.within(ctx)
		defer cancel()
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
	result, err := tx.ExecContext(
		ctx,
		s.sql.reported,
		scope,
		r.Reader,
		int64(r.Session),
		int64(r.Sequence),
		r.Applied.Epoch,
		int64(r.Applied.Version),
		r.Applied.Mark.String(),
		body,
	) //nolint:gosec // checked above
	if err != nil {
		return false, false, err
	}
	n, err := result.RowsAffected()
	if err != nil {
		return false, false, err
	}
	var p place
	err = tx.QueryRowContext(ctx, s.sql.position, scope).Scan(p.into()...)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return false, false, unknown(scope)
	case err != nil:
		return false, false, err
	}
	if n == 0 || r.Applied.Epoch != p.Epoch {
		return n > 0, false, nil
	}
	why, err := s.proof(ctx, tx, scope, r, p)
	if err != nil || why == "" {
		return true, false, err
	}
	return true, true, s.renewReported(ctx, tx, scope, why)
}

// proof returns why the stored report proves that the log has lost commits, empty if it
// does not.
func (s *Store) proof(ctx context.Context, tx *sql.Tx, scope string, r statesync.Report, p place) (why string, err error) {
	if mark := r.Applied.Mark; mark != (statesync.Mark{}) && mark != p.position(scope).Mark {
		_, lost, err := s.hasMark(ctx, tx, scope, mark)
		switch {
		case err != nil:
			return "", err
		case lost:
			return "a reader reports a mark that the log has lost", nil
		}
	}
	if r.Applied.Version <= p.Head {
		return "", nil
	}
	var ahead int
	if err := tx.QueryRowContext(ctx, s.sql.ahead, scope, p.Epoch, s.lease().Milliseconds()).Scan(&ahead); err != nil {
		return "", err
	}
	if ahead >= 2 {
		return "two readers report versions above the head", nil
	}
	return "", nil
}

// Readers implements [statesync.Readers]. The times are the database's.
func (s *Store) Readers(ctx context.Context, scope string) ([]statesync.Reader, error) {
	if err := s.ready(); err != nil {
		return nil, err
	}
	if _, err := s.position(ctx, scope); err != nil {
		return nil, err
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
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
		var mark string
		if err := row.Scan(&r.Reader, &r.Session, &r.Sequence, &r.Applied.Epoch, &r.Applied.Version, &mark, &body, &at); err != nil {
			return err
		}
		err := r.Applied.Mark.UnmarshalText([]byte(mark))
		if body != nil {
			r.Body = body
		}
		r.At = time.UnixMilli(at)
		return err
	}, s.sql.readers, scope)
}
