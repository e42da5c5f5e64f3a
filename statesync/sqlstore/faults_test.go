package sqlstore_test

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
)

func TestNothingIsSkippedOnPostgreSQLWhateverFails(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t)
	one := openPostgreSQL(t, url, &sqlstore.Store{})
	// One that sequences under other defaults of its sessions.
	two := openPostgreSQL(t, with(with(url, "default_transaction_isolation", "serializable"), "synchronous_commit", "off"), &sqlstore.Store{})
	three := start(t, openPostgreSQL(t, url, &sqlstore.Store{}))
	admin := connect(t, url)
	s := &storm{
		db: connect(t, url), stores: []*sqlstore.Store{three, one}, writers: 16, commits: 20_000, naive: true,
		faults: []func(context.Context, *rand.Rand){
			restarts(t, one, 300*time.Millisecond),
			restarts(t, two, 500*time.Millisecond),
			// The store that sequences loses its connection.
			func(ctx context.Context, r *rand.Rand) {
				pause(ctx, time.Duration(r.IntN(400))*time.Millisecond)
				_, _ = admin.ExecContext(
					ctx,
					`SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
				)
			},
			// A stranger looks at the database, for long.
			func(ctx context.Context, r *rand.Rand) {
				tx, err := admin.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
				if err != nil {
					return
				}
				defer tx.Rollback() //nolint:errcheck // it has only read
				var n int
				_ = tx.QueryRowContext(ctx, `SELECT count(*) FROM state`).Scan(&n)
				pause(ctx, time.Duration(r.IntN(2000))*time.Millisecond)
			},
		},
	}
	s.run(t)
}

func TestNothingIsSkippedOnSQLiteWhateverFails(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log.db")
	one := openSQLite(t, path, &sqlstore.Store{})
	two := openSQLite(t, path, &sqlstore.Store{})
	three := start(t, openSQLite(t, path, &sqlstore.Store{}))
	three.DB.SetMaxOpenConns(4)
	s := &storm{
		db: three.DB, stores: []*sqlstore.Store{three, one}, writers: 16, commits: 10_000,
		faults: []func(context.Context, *rand.Rand){
			restarts(t, one, 300*time.Millisecond),
			restarts(t, two, 500*time.Millisecond),
			func(ctx context.Context, r *rand.Rand) {
				tx, err := three.ReadDB.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
				if err != nil {
					return
				}
				defer tx.Rollback() //nolint:errcheck // it has only read
				var n int
				_ = tx.QueryRowContext(ctx, `SELECT count(*) FROM state`).Scan(&n)
				pause(ctx, time.Duration(r.IntN(500))*time.Millisecond)
			},
		},
	}
	s.run(t)
	require.NoError(t, three.Migrate(t.Context()))
}
