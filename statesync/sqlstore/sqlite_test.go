package sqlstore_test

import (
	"context"
	"database/sql"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/seed-9e1ffd66/trueup/statesync"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
)

// openSQLite returns a migrated store on a file of its own, that of path if
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
