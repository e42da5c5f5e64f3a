// Package db is the database of the control plane: a SQLite file, or PostgreSQL
// for several replicas. It brings the schema up to date, runs transactions, and
// holds the change log that agents follow.
package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/seed-9e1ffd66/trueup/internal/pause"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
)

// ErrBusy is a database that is locked by another process, or that cannot be
// reached. The same call may succeed later.
var ErrBusy = errors.New("database is busy")

// ErrFull is a database whose disk is full. Nothing was written; the same call succeeds
// once there is space.
var ErrFull = errors.New("disk of the database is full")

// Database is an open database. Open one with [SQLite.Open] or
// [PostgreSQL.Open]. It is safe for concurrent use.
type Database struct {
	// name is where it is, without a password.
	name string
	// path is the file of an SQLite, empty for another, and held what Alone has locked.
	path string
	held *os.File
	// reader and writer are the same database. The writer of SQLite has one
	// connection, so that the writers of this process queue up instead of
	// failing on each other's locks.
	reader, writer *sql.DB
	// turn has room for the one transaction that writes to a SQLite. Those that wait for it get it in the order in which
	// they came: database/sql picks any of those that wait for a connection, and one may wait for ever. Nil: no turns.
	turn chan struct{}
	// classify adds ErrBusy to the driver's errors that mean it.
	classify func(error) error
	// bind turns the ? of a query into what the database takes.
	bind func(string) string
	// reading is how Read sees one state of the database.
	reading sql.TxOptions
	// lock ends a SELECT that must lock its rows, where not every write locks
	// the whole database.
	lock string
	// writable returns an error if the server refuses writes. Nil: it never does.
	writable func(context.Context) error
	// Log is the change log in this database. Its Start is the caller's to run.
	Log *sqlstore.Store
	// Notes gets what the transactions of this process have left with [Tx.Note], once each is
	// committed. It must be safe for concurrent use, and not use the database. Set it before
	// the first transaction. Nil: notes are dropped.
	Notes func(ctx context.Context, notes []any)
}

// Name returns where the database is: a path, or a URL without its password.
func (d *Database) Name() string { return d.name }

// Close closes the database.
func (d *Database) Close() error {
	err := errors.Join(d.reader.Close(), d.writer.Close())
	if d.held != nil {
		err = errors.Join(err, d.held.Close())
	}
	return err
}

// Ping returns an error if the database cannot be read, or wraps [ErrReadOnly] if a PostgreSQL takes no
// writes. A full disk of a SQLite is none.
func (d *Database) Ping(ctx context.Context) error {
	if d.writable != nil {
		if err := d.writable(ctx); err != nil {
			return err
		}
	}
	return d.Read(ctx, func(tx *Tx) error {
		var one int
		return tx.QueryRowContext(ctx, `SELECT count(*) FROM clusters WHERE id = ''`).Scan(&one)
	})
}

// Read runs do in a transaction that sees one state of the database.
func (d *Database) Read(ctx context.Context, do func(*Tx) error) error {
	return d.transact(ctx, d.reader, d.reading, "", do)
}

// attempts is how often a transaction that failed for another one is tried.
const attempts = 3

// Write runs do in a transaction and commits it unless do returns an error. If
// it fails for another transaction, a second and a third attempt follow after
// about 50 and 100 ms: do must have no effect but on the database.
func (d *Database) Write(ctx context.Context, do func(*Tx) error) error {
	for attempt := 1; ; attempt++ {
		err := d.inTurn(ctx, do)
		if err == nil || attempt == attempts || !sqlstore.Retryable(err) && !moved(err) {
			return err
		}
		between := time.Duration(attempt) * 50 * time.Millisecond
		if !pause.For(ctx, between/2+rand.N(between)) { //nolint:gosec // no secret
			return err
		}
	}
}

// inTurn is one attempt of Write.
func (d *Database) inTurn(ctx context.Context, do func(*Tx) error) error {
	if d.turn != nil {
		select {
		case d.turn <- struct{}{}:
			defer func() { <-d.turn }()
		case <-ctx.Done():
			return fmt.Errorf("begin: %w", ctx.Err())
		}
	}
	return d.transact(ctx, d.writer, sql.TxOptions{}, d.lock, do)
}

func (d *Database) transact(ctx context.Context, db *sql.DB, options sql.TxOptions, lock string, do func(*Tx) error) error {
	begun, err := db.BeginTx(ctx, &options)
	if err != nil {
		return d.classify(fmt.Errorf("begin: %w", err))
	}
	tx := &Tx{Tx: begun, bind: d.bind, Lock: lock}
	if err := do(tx); err != nil {
		// The cause matters more than what a rollback may add.
		_ = begun.Rollback()
		return d.classify(err)
	}
	if err := begun.Commit(); err != nil {
		return d.classify(fmt.Errorf("commit: %w", err))
	}
	if len(tx.notes) > 0 && d.Notes != nil {
		d.Notes(ctx, tx.notes)
	}
	return nil
}
