package db

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
)

// Reasons why a file cannot serve as the database.
var (
	// ErrForeign is a file that belongs to another program.
	ErrForeign = errors.New("belongs to another program")
	// ErrEmpty is a database that should have been there.
	ErrEmpty = errors.New("no control plane has made it")
	// ErrCorrupt is a file that is damaged.
	ErrCorrupt = errors.New("damaged")
	// ErrOtherSchema is a database whose schema was made by migrations that have the numbers of this
	// program's migrations, and another text.
	ErrOtherSchema = errors.New("the schema is that of a version which was never released")
	// ErrNewerSchema is a database whose schema a newer version of this program has
	// made, in a way that this one cannot use.
	ErrNewerSchema = errors.New("written by a newer version")
)

// applicationID marks a file as ours; it spells TRUP.
const applicationID = 0x54525550

const (
	defaultBusyTimeout = 5 * time.Second
	maxReaders         = 8
)

// SQLite is where the database file is. This file has all that is special
// to SQLite; the rest of the package speaks SQL that PostgreSQL takes as well.
type SQLite struct {
	// Path is the file, made with mode 0600 if it is not there. Its folder
	// must exist. Required.
	Path string
	// BusyTimeout is how long a call waits for another process that holds a
	// lock. Zero: 5 s.
	BusyTimeout time.Duration

	existing   bool  // or it is an error
	migrations fs.FS // nil: what this program has
}

// Open checks the file, brings its schema up to date and returns the store.
// A file that is locked, damaged, foreign or newer is left as it is; the error
// then wraps [ErrBusy], [ErrCorrupt], [ErrForeign], [ErrNewerSchema] or [ErrOtherSchema], names
// the path and, in one line, what to do.
func (c SQLite) Open(ctx context.Context) (*Database, error) {
	store, err := c.open(ctx)
	if err == nil {
		return store, nil
	}
	advice := ""
	switch {
	case errors.Is(err, ErrBusy):
		advice = ": another process holds it: stop that process or wait for it"
	case errors.Is(err, ErrFull):
		advice = ": free space there, then start again"
	case errors.Is(err, ErrCorrupt):
		advice = ": restore it from a backup"
	case errors.Is(err, ErrForeign):
		advice = ": choose another file"
	case errors.Is(err, ErrNewerSchema):
		advice = ": run the newer version or choose another file"
	case errors.Is(err, ErrOtherSchema):
		advice = ": run the version that made it, or put all into a new file"
	}
	return nil, fmt.Errorf("database %s: %w%s", c.Path, err, advice)
}

func (c SQLite) open(ctx context.Context) (*Database, error) {
	path, err := filepath.Abs(c.Path)
	if err != nil {
		return nil, err
	}
	// SQLite would make the file readable for everybody.
	create := os.O_CREATE
	if c.existing {
		create = 0
	}
	file, err := os.OpenFile(path, os.O_RDWR|create, 0o600)
	if err != nil {
		return nil, err
	}
	if err := file.Close(); err != nil {
		return nil, err
	}
	dsn := (&url.URL{Scheme: "file", Path: path, RawQuery: url.Values{
		"_busy_timeout": {fmt.Sprint(cmp.Or(c.BusyTimeout, defaultBusyTimeout).Milliseconds())},
		"_foreign_keys": {"on"},
		"_txlock":       {"immediate"},
		"_dqs":          {"0"},
		"_error_rc":     {"1"},
	}.Encode()}).String()
	connector, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	writer, reader := sql.OpenDB(keeping{connector}), sql.OpenDB(keeping{connector})
	writer.SetMaxOpenConns(1)
	reader.SetMaxOpenConns(maxReaders)
	store := &Database{
		name: path, path: path,
		reader: reader, writer: writer, turn: make(chan struct{}, 1), classify: classifySQLite, bind: asIs,
		reading: sql.TxOptions{ReadOnly: true},
	}
	if err := c.prepare(ctx, writer); err != nil {
		return nil, errors.Join(classifySQLite(err), store.Close())
	}
	store.Log = &sqlstore.Store{DB: writer, ReadDB: reader, Dialect: sqlstore.SQLite}
	if err := store.Log.Migrate(ctx); err != nil {
		return nil, errors.Join(classifySQLite(err), store.Close())
	}
	const found = `SELECT count(*) FROM sqlite_master WHERE type = 'view' AND name = 'sentinel_versions'`
	if err := store.createViews(ctx, found, ""); err != nil {
		return nil, fmt.Errorf("views: %w", errors.Join(err, store.Close()))
	}
	return store, nil
}

// prepare checks that the file is ours before it changes it.
func (c SQLite) prepare(ctx context.Context, db *sql.DB) error {
	known, err := readSchema(c.migrations, postgresqlOnly)
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	// It has no effect after Commit.
	defer func() { _ = tx.Rollback() }()
	version, err := checkSQLite(ctx, tx)
	switch {
	case err != nil:
		return err
	case c.existing && version == 0:
		return ErrEmpty
	}
	if err := known.migrate(ctx, tx, version); err != nil {
		return err
	}
	if version < len(known) {
		// PRAGMA takes no parameters; both values are ours.
		if _, err := tx.ExecContext(
			ctx,
			fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, len(known)),
		); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	var mode string
	if err := db.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("write-ahead log is not available (journal mode %q): use a local file system", mode)
	}
	return nil
}

// checkSQLite returns how many migrations the file has.
func checkSQLite(ctx context.Context, tx *sql.Tx) (int, error) {
	var application, version, objects int
	for _, value := range []struct {
		query  string
		target *int
	}{
		{"PRAGMA application_id", &application},
		{"PRAGMA user_version", &version},
		{"SELECT count(*) FROM sqlite_master", &objects},
	} {
		if err := tx.QueryRowContext(ctx, value.query).Scan(value.target); err != nil {
			return 0, err
		}
	}
	isNew := application == 0 && version == 0 && objects == 0
	switch {
	case isNew:
		return 0, nil
	case application != applicationID:
		return 0, fmt.Errorf("%w (application id %#x)", ErrForeign, application)
	case version < 0:
		return 0, fmt.Errorf("%w (schema %d)", ErrCorrupt, version)
	}
	var verdict string
	if err := tx.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&verdict); err != nil {
		return 0, err
	}
	if verdict != "ok" {
		return 0, fmt.Errorf("%w (%.200q)", ErrCorrupt, verdict)
	}
	return version, nil
}

func classifySQLite(err error) error {
	var failure *sqlite.Error
	if !errors.As(err, &failure) {
		return err
	}
	const primary = 0xff
	switch failure.Code() & primary {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return fmt.Errorf("%w: %w", ErrBusy, err)
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("%w: %w", ErrFull, err)
	case sqlite3.SQLITE_CORRUPT:
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	case sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%w: %w", ErrForeign, err)
	}
	return err
}
