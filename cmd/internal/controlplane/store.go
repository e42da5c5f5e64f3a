package controlplane

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
)

// Conditions that callers of a [Store] branch on.
var (
	// ErrUnknownCluster is a cluster that is not registered.
	ErrUnknownCluster = errors.New("unknown cluster")
	// ErrUnknownProject is a project that was never put.
	ErrUnknownProject = errors.New("unknown project")
	// ErrUnknownService is a service that was never put.
	ErrUnknownService = errors.New("unknown service")
	// ErrUnknownToken is a token that is not, or no longer, valid.
	ErrUnknownToken = errors.New("unknown token")
	// ErrProjectMoved is a project that was put on another cluster before; it
	// stays there for life.
	ErrProjectMoved = errors.New("project lives on another cluster")
	// ErrProjectDeleted is a service put into a deleted project.
	ErrProjectDeleted = errors.New("project is deleted")
	// ErrGenerationMoved is a change that was asked for on the condition of a
	// generation that is no longer the current one.
	ErrGenerationMoved = errors.New("generation has moved on")
	// ErrGenerationAhead is a report about a generation that does not exist
	// yet. The usual cause is a database restored without a new epoch.
	ErrGenerationAhead = errors.New("generation is ahead of the database")
	// ErrTooManyStatuses is a cluster that reports more services than can be.
	ErrTooManyStatuses = errors.New("too many services reported")
	// ErrBusy is a database that is locked by another process. The same call
	// may succeed later.
	ErrBusy = errors.New("database is busy")
)

// Store is the database of the control plane. Open one with [SQLite.Open] or
// [PostgreSQL.Open].
// It is safe for concurrent use. A call that returns an error has changed
// nothing.
type Store struct {
	// reader and writer are the same database. The writer has one
	// connection, so that the writers of this process queue up instead of
	// failing on each other's locks.
	reader, writer *sql.DB
	// classify adds ErrBusy to the driver's errors that mean it.
	classify func(error) error
	// bind turns the ? of a query into what the database takes.
	bind func(string) string
	// reading and writing are the transactions of read and write.
	reading, writing sql.TxOptions
}

// Change says what a call has changed.
type Change struct {
	// Generation is the cluster's generation after the call.
	Generation int64 `json:"generation"`
	// Changed is false when everything was already as asked.
	Changed bool `json:"changed"`
	// Created is true when the thing was not there before.
	Created bool `json:"-"`
}

// Close closes the database.
func (s *Store) Close() error {
	return errors.Join(s.reader.Close(), s.writer.Close())
}

// Ping returns an error if the database cannot be read.
func (s *Store) Ping(ctx context.Context) error {
	return s.read(ctx, func(tx *tx) error {
		var one int
		return tx.QueryRowContext(ctx, `SELECT count(*) FROM clusters WHERE id = ''`).Scan(&one)
	})
}

// read runs do in a transaction that sees one state of the database.
func (s *Store) read(ctx context.Context, do func(*tx) error) error {
	return s.transact(ctx, s.reader, s.reading, do)
}

// attempts is how often a transaction that failed for another one is tried.
const attempts = 3

// write runs do in a transaction and commits it unless do returns an error. If
// it fails for another transaction, a second and a third attempt follow after
// about 50 and 100 ms: do must have no effect but on the database.
func (s *Store) write(ctx context.Context, do func(*tx) error) error {
	for attempt := 1; ; attempt++ {
		err := s.transact(ctx, s.writer, s.writing, do)
		if err == nil || attempt == attempts || !sqlstore.Retryable(err) {
			return err
		}
		pause := time.Duration(attempt) * 50 * time.Millisecond
		select {
		case <-time.After(pause/2 + rand.N(pause)): //nolint:gosec // no secret
		case <-ctx.Done():
			return err
		}
	}
}

func (s *Store) transact(ctx context.Context, db *sql.DB, options sql.TxOptions, do func(*tx) error) error {
	begun, err := db.BeginTx(ctx, &options)
	if err != nil {
		return s.classify(fmt.Errorf("begin: %w", err))
	}
	if err := do(&tx{begun, s.bind}); err != nil {
		// The cause matters more than what a rollback may add.
		_ = begun.Rollback()
		return s.classify(err)
	}
	if err := begun.Commit(); err != nil {
		return s.classify(fmt.Errorf("commit: %w", err))
	}
	return nil
}

// raise raises the generation of the cluster and returns it.
func raise(ctx context.Context, tx *tx, clusterID string) (int64, error) {
	var generation int64
	err := tx.QueryRowContext(ctx, `UPDATE clusters SET generation = generation + 1 WHERE id = ? RETURNING generation`, clusterID).Scan(&generation)
	if err != nil {
		return 0, fmt.Errorf("raise generation: %w", unknown(err, ErrUnknownCluster))
	}
	return generation, nil
}

// unknown replaces the error of a row that is not there.
func unknown(err, missing error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return missing
	}
	return err
}

// collect reads all rows, each with scan.
func collect[T any](rows *sql.Rows, queryErr error, scan func(*sql.Rows, *T) error) (list []T, err error) {
	if queryErr != nil {
		return nil, queryErr
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var item T
		if err := scan(rows, &item); err != nil {
			return nil, err
		}
		list = append(list, item)
	}
	return list, rows.Err()
}
