package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

func (s *Store) pruneEvery() time.Duration { return cmp.Or(s.PruneEvery, defaultPrune) }

// Prune drops the tombstones that are older than Retention and were applied by
// every reader whose lease runs, and raises the floor of their scopes in the same
// transaction. Marks below the floor are pruned, too; of those above it the newest
// 100,000 of a scope are kept. A scope that fails does not hold back the others; the
// error joins the errors of all scopes. Start calls Prune now and then.
func (s *Store) Prune(ctx context.Context) error {
	scopes, err := s.Scopes(ctx)
	if err != nil {
		return fmt.Errorf("prune: %w", err)
	}
	var errs []error
	for _, scope := range scopes {
		err := s.retry(ctx, func() error {
			ctx, cancel := s.within(ctx)
			defer cancel()
			return s.transact(ctx, func(tx *sql.Tx) error { return s.prune(ctx, tx, scope) })
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("prune scope %q: %w", scope, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	s.watcher.stale(nil)
	return errors.Join(errs...)
}

// prune needs no lock: a tombstone that is replaced meanwhile is not deleted, a
// head only rises, and a reader that reports an older cursor meanwhile must start
// again.
func (s *Store) prune(ctx context.Context, tx *sql.Tx, scope string) error {
	// It writes first; see report. The floor stays.
	if _, err := tx.ExecContext(ctx, s.sql.raise, 0, scope); err != nil {
		return err
	}
	var p place
	var millis int64
	if err := tx.QueryRowContext(ctx, s.sql.position, scope).Scan(p.into()...); err != nil {
		return err
	}
	if err := tx.QueryRowContext(ctx, s.sql.now).Scan(&millis); err != nil {
		return err
	}
	readers, err := s.readersOf(ctx, tx, scope)
	if err != nil {
		return err
	}
	horizon := int64(min(statesync.Horizon(p.Position, readers, time.UnixMilli(millis), s.lease()), math.MaxInt64))
	var cut int64
	if err := tx.QueryRowContext(ctx, s.sql.cut, scope, horizon, s.retention().Milliseconds()).Scan(&cut); err != nil {
		return err
	}
	if cut > 0 {
		if _, err := tx.ExecContext(ctx, s.sql.raise, cut, scope); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, s.sql.forget, scope, cut); err != nil {
			return err
		}
	}
	_, err = tx.ExecContext(ctx, s.sql.pruneMarks, scope, maxKeptMarks-1)
	return err
}
