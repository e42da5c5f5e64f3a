package db

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-9e1ffd66/trueup/internal/pause"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore/pgxlisten"
)

// PostgreSQL is where the database is. This file has all that is special to
// PostgreSQL. Any number of control planes may share one database.
type PostgreSQL struct {
	// URL is postgres://user:password@host:port/database and parameters, or the
	// same as a connection string of libpq. Required. The role needs no more than to create and use tables in its
	// schema.
	URL string

	existing   bool          // or it is an error
	migrations fs.FS         // nil: what this program has
	between    time.Duration // zero: 1 s; see generations
}

// ErrBadURL is a name of a database that cannot be one.
var ErrBadURL = errors.New(
	"the name of the database is not valid; want the path of a SQLite file, or postgres://user:password@host:port/database",
)

// maxConnections is how many connections of a pool one control plane opens.
const maxConnections = 16

// migrationLock is the advisory lock that a migration takes; it spells TRUP.
const migrationLock = applicationID

// Open checks the database, brings its schema up to date and returns the store.
// Its errors never repeat the URL, which may carry a password.
func (c PostgreSQL) Open(ctx context.Context) (*Database, error) {
	config, err := pgx.ParseConfig(c.URL)
	if err != nil {
		// The error would repeat the password.
		return nil, ErrBadURL
	}
	if err := checkPostgreSQL(&config.Config); err != nil {
		return nil, err
	}
	name := placeOf(&config.Config)
	connections := &generations{between: cmp.Or(c.between, time.Second)}
	db := connections.open(*config)
	store := &Database{
		name:   name,
		reader: db, writer: db, classify: classifyPostgreSQL, bind: numbered,
		reading:  sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true},
		lock:     " FOR UPDATE",
		writable: func(ctx context.Context) error { return connections.writable(ctx, db) },
	}
	if err := c.migrate(ctx, db); err != nil {
		return nil, fmt.Errorf("database %s: %w", name, errors.Join(err, store.Close()))
	}
	store.Log = &sqlstore.Store{DB: db, Dialect: sqlstore.PostgreSQL, Listen: pgxlisten.On(db)}
	if err := store.Log.Migrate(ctx); err != nil {
		return nil, fmt.Errorf("database %s: %w", name, errors.Join(err, store.Close()))
	}
	const found = `SELECT count(*) FROM pg_class WHERE oid = to_regclass('sentinel_versions')`
	if err := store.createViews(ctx, found, ` COLLATE "C"`); err != nil {
		return nil, fmt.Errorf("database %s: views: %w", name, errors.Join(err, store.Close()))
	}
	return store, nil
}

// migrate brings the schema up to date, unless it must be there and is not.
func (c PostgreSQL) migrate(ctx context.Context, db *sql.DB) error {
	if c.existing {
		var found sql.NullString
		if err := db.QueryRowContext(ctx, `SELECT to_regclass('controlplane_schema')::text`).Scan(&found); err != nil {
			return err
		}
		if !found.Valid {
			return ErrEmpty
		}
	}
	known, err := readSchema(c.migrations, sqliteOnly)
	if err != nil {
		return err
	}
	const tries, wait = 10, 200 * time.Millisecond
	for n := 1; ; n++ {
		err = migratePostgreSQL(ctx, db, known)
		if !deadlocked(err) || n == tries || !pause.For(ctx, time.Duration(n)*wait) {
			break
		}
	}
	if errors.Is(err, ErrOtherSchema) {
		return fmt.Errorf("%w: run the version that made it, or put all into a new database", err)
	}
	if errors.Is(err, ErrNewerSchema) {
		return fmt.Errorf("%w: run the newer version or choose another database", err)
	}
	return err
}

// deadlocked reports whether a migration was undone because another replica, which serves beside it,
// had locked in another order. It may be repeated.
func deadlocked(err error) bool {
	state, ok := errors.AsType[*pgconn.PgError](err)
	return ok && state.Code == "40P01"
}

// moved reports whether a row was refused by the partition that had been chosen for it, because it got
// another one meanwhile: the next attempt finds that one. No constraint of a table has an empty name.
func moved(err error) bool {
	state, ok := errors.AsType[*pgconn.PgError](err)
	return ok && state.Code == "23514" && state.ConstraintName == ""
}

// placeOf returns where a database is, from what [checkPostgreSQL] has let pass. The user is
// not part of it.
func placeOf(config *pgconn.Config) string {
	place := url.URL{Scheme: "postgres", Path: "/" + config.Database}
	if strings.HasPrefix(config.Host, "/") { // the folder of a socket
		place.RawQuery = "host=" + config.Host
	} else {
		place.Host = net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
	}
	return place.String()
}

// migratePostgreSQL runs the missing migrations, while other control planes wait.
func migratePostgreSQL(ctx context.Context, db *sql.DB, known schema) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	// It has no effect after Commit.
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, migrationLock); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS controlplane_schema (version INTEGER NOT NULL)`); err != nil {
		return err
	}
	var version int
	if err := tx.QueryRowContext(ctx, `SELECT coalesce(max(version), 0) FROM controlplane_schema`).Scan(&version); err != nil {
		return err
	}
	if err := known.migrate(ctx, tx, version); err != nil {
		return err
	}
	for version++; version <= len(known); version++ {
		if _, err := tx.ExecContext(ctx, `INSERT INTO controlplane_schema (version) VALUES ($1)`, version); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// classifyPostgreSQL adds ErrBusy to what another transaction, a lost
// connection or a failover caused, and ErrFull to what a full disk did.
func classifyPostgreSQL(err error) error {
	var state *pgconn.PgError
	var network net.Error
	switch {
	case errors.As(err, &state):
		switch state.Code {
		// Serialisation failure, deadlock, lock not available, too many
		// connections, shutdown, crash, start, and a standby that a failover has left.
		case "40001", "40P01", "55P03", "53300", "57P01", "57P02", "57P03", readOnlyTransaction:
			return fmt.Errorf("%w: %w", ErrBusy, err)
		case "53100":
			return fmt.Errorf("%w: %w", ErrFull, err)
		}
	case errors.As(err, &network), errors.Is(err, sql.ErrConnDone), pgconn.SafeToRetry(err):
		return fmt.Errorf("%w: %w", ErrBusy, err)
	}
	return err
}
