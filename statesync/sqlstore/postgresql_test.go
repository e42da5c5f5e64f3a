package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"sync"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore/pgxlisten"
	"github.com/seed-9e1ffd66/trueup/statesync/statesynctest"
)

// server is the PostgreSQL of all tests that do not kill it.
var server struct {
	sync.Once
	*pgtest.Server
	err error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if server.Server != nil {
		server.Stop()
	}
	os.Exit(code)
}

// database returns the URL of a database of the test's own.
func database(tb testing.TB) string {
	tb.Helper()
	server.Do(func() { server.Server, server.err = pgtest.Run(context.Background(), pgtest.Options{}) })
	if errors.Is(server.err, pgtest.ErrNotInstalled) && os.Getenv("TRUEUP_REQUIRE_SERVICES") != "1" {
		tb.Skip(server.err)
	}
	require.NoError(tb, server.err)
	return server.Database(tb)
}

func connect(tb testing.TB, url string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("pgx", url)
	require.NoError(tb, err)
	db.SetMaxIdleConns(16)
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// openPostgreSQL returns a migrated store in the database, which is not started.
func openPostgreSQL(tb testing.TB, url string, store *sqlstore.Store) *sqlstore.Store {
	tb.Helper()
	store.Dialect = sqlstore.PostgreSQL
	store.DB = connect(tb, url)
	store.Listen = pgxlisten.On(store.DB)
	require.NoError(tb, store.Migrate(tb.Context()))
	return store
}

func TestPostgreSQLConforms(t *testing.T) {
	t.Parallel()
	statesynctest.Run(t, func(t *testing.T) statesynctest.Store {
		return driven(t, openPostgreSQL(t, database(t), &sqlstore.Store{}))
	})
}
