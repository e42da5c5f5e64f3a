package sqlstore_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/seed-9e1ffd66/trueup/statesync"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
	"github.com/seed-9e1ffd66/trueup/statesync/statesynctest"
)

// openSQLite returns a migrated store on a file of its own, or on path if
// given, which is not started.
func openSQLite(tb testing.TB, path string, store *sqlstore.Store) *sqlstore.Store {
	tb.Helper()
	if path == "" {
		path = filepath.Join(tb.TempDir(), "log.db")
	}
	dsn := (&url.URL{Scheme: "file", Path: path, RawQuery: url.Values{
		"_busy_timeout": {"10000"}, "_txlock": {"immediate"}, "_pragma": {"journal_mode(WAL)", "synchronous(NORMAL)"},
	}.Encode()}).String()
	open := func(connections int) *sql.DB {
		db, err := sql.Open("sqlite", dsn)
		require.NoError(tb, err)
		db.SetMaxOpenConns(connections)
		tb.Cleanup(func() { _ = db.Close() })
		return db
	}
	store.Dialect = sqlstore.SQLite
	store.DB, store.ReadDB = open(1), open(8)
	require.NoError(tb, store.Migrate(tb.Context()))
	return store
}

// start starts the store until the test ends.
func start(tb testing.TB, store *sqlstore.Store) *sqlstore.Store {
	tb.Helper()
	stop := starts(tb, store)
	tb.Cleanup(stop)
	return store
}

// starts starts the store and returns how to stop it.
func starts(tb testing.TB, store *sqlstore.Store) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- store.Start(ctx) }()
	return func() {
		cancel()
		if err, open := <-done; open {
			close(done)
			require.NoError(tb, err)
		}
	}
}

func change(scope, id, value string) statesync.Change {
	c := statesync.Change{Scope: scope, Key: statesync.Key{Collection: "things", ID: id}, Deleted: value == ""}
	if value != "" {
		c.Value = []byte(value)
	}
	return c
}

func TestSlice(t *testing.T) {
	s := start(t, openSQLite(t, "", &sqlstore.Store{}))
	require.NoError(t, s.Commit(t.Context(), change("a", "1", `1`), change("a", "2", `2`), change("a", "1", `3`), change("a", "2", "")))
	p := statesync.Position{}
	for p.Head < 4 {
		page, err := s.Read(t.Context(), "a", 0, 10)
		if err != nil {
			require.ErrorIs(t, err, statesync.ErrUnknownScope)
			continue
		}
		p = page.Position
		t.Log(page)
	}
}

// driven is a started store as the conformance suite drives it.
func driven(tb testing.TB, s *sqlstore.Store) statesynctest.Store {
	tb.Helper()
	s.Retention = time.Nanosecond
	s.Poll = 20 * time.Millisecond
	start(tb, s)
	return statesynctest.Store{
		Log: s,
		AddScope: func(ctx context.Context, scope string) error {
			tx, err := s.DB.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			return errors.Join(s.AddScope(ctx, tx, scope), tx.Commit())
		},
		Commit:    func(ctx context.Context, changes []statesync.Change) error { return s.Commit(ctx, changes...) },
		Begin:     func(ctx context.Context) (statesynctest.Tx, error) { return begin(ctx, s) },
		Exclusive: s.Dialect == sqlstore.SQLite,
		Readers:   s,
		Lease:     24 * time.Hour,
		Prune:     func(ctx context.Context, _ string) error { return s.Prune(ctx) },
		NewEpoch:  func(ctx context.Context, _ string) error { return s.NewEpoch(ctx) },
	}
}

type openTx struct {
	*sql.Tx
	store *sqlstore.Store
}

func begin(ctx context.Context, s *sqlstore.Store) (*openTx, error) {
	tx, err := s.DB.BeginTx(ctx, nil)
	return &openTx{tx, s}, err
}

func (tx *openTx) Append(ctx context.Context, changes ...statesync.Change) error {
	return tx.store.Append(ctx, tx.Tx, changes...)
}

func (tx *openTx) Commit() error {
	defer tx.store.Wake()
	return tx.Tx.Commit()
}

func TestSQLiteConforms(t *testing.T) {
	t.Parallel()
	statesynctest.Run(t, func(t *testing.T) statesynctest.Store { return driven(t, openSQLite(t, "", &sqlstore.Store{})) })
}

// TestASQLiteWhoseWritersFailOnEachOtherIsRefused has the name that a newcomer gives.
func TestASQLiteWhoseWritersFailOnEachOtherIsRefused(t *testing.T) {
	t.Parallel()
	open := func(options string, connections int) *sqlstore.Store {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "app.db")+options)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		db.SetMaxOpenConns(connections)
		return &sqlstore.Store{DB: db, Dialect: sqlstore.SQLite}
	}
	bare := open("", 0)
	require.ErrorIs(t, bare.Migrate(t.Context()), sqlstore.ErrNoBusyTimeout)
	require.ErrorIs(t, bare.Start(t.Context()), sqlstore.ErrNoBusyTimeout)
	require.ErrorContains(t, bare.Start(t.Context()), "?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	require.NoError(t, open("", 1).Migrate(t.Context()), "one connection waits for itself")
	require.NoError(t, open("?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate", 0).Migrate(t.Context()))
}

// TestADatabaseThatCanNeverDoIsRefused: one in memory for each connection, and one of another kind.
func TestADatabaseThatCanNeverDoIsRefused(t *testing.T) {
	t.Parallel()
	open := func(dsn string, connections int) *sql.DB {
		db, err := sql.Open("sqlite", dsn)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		db.SetMaxOpenConns(connections)
		return db
	}
	const memory = "file::memory:?_pragma=busy_timeout(5000)&_txlock=immediate"
	for _, store := range []*sqlstore.Store{
		{DB: open(memory, 0), Dialect: sqlstore.SQLite},
		{DB: open(memory, 1), ReadDB: open(memory, 4), Dialect: sqlstore.SQLite},
	} {
		require.ErrorContains(
			t,
			store.Migrate(t.Context()),
			"sqlstore: Store.DB: is a SQLite in memory of which each connection has its own, must",
		)
		require.ErrorContains(t, store.Start(t.Context()), "sqlstore: Store.DB: is a SQLite in memory of which each connection has its own, must")
	}
	shared := &sqlstore.Store{
		DB: open("file:/"+t.Name()+"?vfs=memdb&_pragma=busy_timeout(5000)&_txlock=immediate", 0), Dialect: sqlstore.SQLite,
	}
	require.NoError(t, shared.Migrate(t.Context()))
	require.NoError(t, shared.Migrate(t.Context()), "the look has left no lock")

	other := &sqlstore.Store{DB: open("file:"+filepath.Join(t.TempDir(), "app.db"), 1), Dialect: sqlstore.PostgreSQL}
	const want = "sqlstore: Store.Dialect: is PostgreSQL, must be SQLite: DB is a SQLite 3."
	require.ErrorContains(t, other.Migrate(t.Context()), want)
	require.ErrorContains(t, other.Start(t.Context()), want)
}

// TestASQLiteInMemoryIsNotWarnedAbout: it cannot be opened otherwise.
func TestASQLiteInMemoryIsNotWarnedAbout(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", ":memory:")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	db.SetMaxOpenConns(1)
	var log bytes.Buffer
	store := &sqlstore.Store{DB: db, Dialect: sqlstore.SQLite, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	require.NoError(t, store.Migrate(t.Context()))
	require.Empty(t, log.String())
}

// TestASQLiteThatIsOpenedOtherwiseIsWarnedAbout names the option that is missing, and no other.
func TestASQLiteThatIsOpenedOtherwiseIsWarnedAbout(t *testing.T) {
	t.Parallel()
	for options, want := range map[string]string{
		"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate":    "",
		"?_pragma=busy_timeout(5000)&_pragma=journal_mode(DELETE)&_txlock=immediate": "right=_pragma=journal_mode(WAL)",
		"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)":                      "right=_txlock=immediate",
		"?_pragma=busy_timeout(999)&_pragma=journal_mode(WAL)&_txlock=immediate":     "is=999 right=_pragma=busy_timeout(5000)",
		"?_pragma=busy_timeout(1000)&_pragma=journal_mode(WAL)&_txlock=immediate":    "",
		"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=exclusive":    "",
	} {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "app.db")+options)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		var log bytes.Buffer
		store := &sqlstore.Store{DB: db, Dialect: sqlstore.SQLite, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		require.NoError(t, store.Migrate(t.Context()))
		if want == "" {
			require.Empty(t, log.String(), options)
			continue
		}
		require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), "%s: %s", options, log.String())
		require.Contains(t, strings.ReplaceAll(log.String(), `"`, ""), want, options)
		var milliseconds int
		require.NoError(t, db.QueryRowContext(t.Context(), `PRAGMA busy_timeout`).Scan(&milliseconds))
		require.Contains(t, options, fmt.Sprintf("busy_timeout(%d)", milliseconds), "the connection that looked is as before")
	}
}
