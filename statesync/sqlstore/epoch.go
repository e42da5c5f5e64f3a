package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"
)

// NewEpoch gives every scope a new epoch, which makes all readers start again. Call it
// after the database was restored from a backup. At other times it only costs the
// readers a list.
func (s *Store) NewEpoch(ctx context.Context) error {
	if err := s.ready(); err != nil {
		return err
	}
	err := s.retry(ctx, func() error {
		ctx, cancel := s.within(ctx)
		defer cancel()
		return s.transact(ctx, func(tx *sql.Tx) error { return s.newEpoch(ctx, tx) })
	})
	if err != nil {
		return fmt.Errorf("new epoch: %w", err)
	}
	s.watcher.stale(nil)
	return nil
}

// NewEpochIn is [Store.NewEpoch] in the caller's transaction, committed together with
// the caller's writes. Readers notice within Poll of the commit. No change gets a
// version between the call and the end of the transaction.
func (s *Store) NewEpochIn(ctx context.Context, tx *sql.Tx) error {
	if err := s.ready(); err != nil {
		return err
	}
	if err := s.newEpoch(ctx, tx); err != nil {
		return fmt.Errorf("new epoch: %w", err)
	}
	return nil
}

func (s *Store) newEpoch(ctx context.Context, tx *sql.Tx) error {
	if _, _, err := s.exclude(ctx, tx, s.sql.lock, s.statementLimit()); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, s.sql.newEpochs)
	return err
}

// renew gives the scope a new epoch by the statement, unless its epoch differs from the
// given one already: the log has lost committed versions.
func (s *Store) renew(ctx context.Context, tx *sql.Tx, scope, epoch, why, statement string, args ...any) error {
	// An epoch that was read must survive a crash of the server.
	if s.sql.durable != "" {
		if _, err := tx.ExecContext(ctx, s.sql.durable); err != nil {
			return err
		}
	}
	result, err := tx.ExecContext(ctx, statement, append([]any{scope, epoch}, args...)...)
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if n > 0 {
		s.logger().ErrorContext(ctx, "log lost committed versions, as after a restore: scope has a new epoch",
			slog.String("scope", scope), slog.String("epoch", epoch), slog.String("why", why))
		s.happened(Event{Kind: EventEpoch, Scope: scope})
	}
	return err
}

// exclude makes tx the only one that sequences, by the given statement. Each further
// statement of tx may take as long as limit. It returns the origin of the log and the
// timeline of the server.
func (s *Store) exclude(ctx context.Context, tx *sql.Tx, lock string, limit time.Duration) (origin, timeline string, err error) {
	var ignored any
	if err := tx.QueryRowContext(ctx, lock, strconv.FormatInt(limit.Milliseconds(), 10)).Scan(&origin, &timeline, &ignored); err != nil {
		return "", "", fmt.Errorf("lock: %w", err)
	}
	return origin, timeline, nil
}

// origin identifies a session's database. A restored backup and a promoted standby have
// another origin than the log that they hold. The zero origin is unknown.
type origin struct {
	known bool
	// base is the cluster, database and table; the timeline may change while a
	// session lasts, when there is a pooler between.
	base string
}

func (s *Store) findOrigin(ctx context.Context, on session) (origin, error) {
	if s.Dialect != PostgreSQL {
		return origin{}, nil
	}
	var o origin
	var timeline string
	ctx, cancel := s.within(ctx)
	defer cancel()
	err := on.QueryRowContext(ctx, s.sql.origin).Scan(&o.base, &timeline)
	var state interface{ SQLState() string }
	if errors.As(err, &state) && slices.Contains([]string{"0A000", "42501", "42883"}, state.SQLState()) {
		s.logger().
			WarnContext(ctx, "cannot read the server's system identifier: call NewEpoch after each restore and failover", slog.Any("error", err))
		return origin{}, nil
	}
	if err != nil {
		return origin{}, fmt.Errorf("origin: %w", err)
	}
	o.known = true
	return o, nil
}

// lockBatch makes tx the only one that sequences. If the log comes from another origin,
// all scopes get a new epoch before any change gets a version.
func (s *Store) lockBatch(ctx context.Context, tx *sql.Tx, from origin, limit time.Duration) (changed bool, err error) {
	if !from.known {
		_, _, err := s.exclude(ctx, tx, s.sql.lock, limit)
		return false, err
	}
	before, timeline, err := s.exclude(ctx, tx, s.sql.lockOrigin, limit)
	if err != nil {
		return false, err
	}
	now := from.base + "/" + timeline
	if now == before {
		return false, nil
	}
	if _, err := tx.ExecContext(ctx, s.sql.setOrigin, now); err != nil {
		return false, err
	}
	if before == "" {
		return true, nil
	}
	s.logger().
		ErrorContext(ctx, "database was restored, moved or failed over: all scopes have a new epoch", slog.String("before", before), slog.String("now", now))
	s.happened(Event{Kind: EventEpoch})
	_, err = tx.ExecContext(ctx, s.sql.newEpochs)
	return true, err
}
