package pgxtx_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/statesync"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore/pgxlisten"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore/pgxtx"
	"github.com/seed-9e1ffd66/trueup/statesync/statesynctest"
)

// pooled is a started store on a pool of pgx.
func pooled(t *testing.T) (*pgxpool.Pool, *sqlstore.Store) {
	t.Helper()
	config, err := pgxpool.ParseConfig(pgtest.NewDatabase(t))
	require.NoError(t, err)
	config.MaxConns = 24
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	db := stdlib.OpenDBFromPool(pool)
	store := &sqlstore.Store{
		DB: db, Dialect: sqlstore.PostgreSQL, Listen: pgxlisten.On(db), Retention: time.Nanosecond, Poll: 20 * time.Millisecond,
	}
	require.NoError(t, store.Migrate(t.Context()))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- store.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, errors.Join(<-done, db.Close()))
	})
	return pool, store
}

type open struct {
	pgx.Tx
	store *sqlstore.Store
}

func (tx open) Append(ctx context.Context, changes ...statesync.Change) error {
	return tx.store.Append(ctx, pgxtx.Of(tx.Tx), changes...)
}

func (tx open) Commit() error {
	defer tx.store.Wake()
	return tx.Tx.Commit(context.Background())
}

func (tx open) Rollback() error { return pgxtx.Of(tx.Tx).Rollback() }

func TestAStoreConformsWithTransactionsOfPgx(t *testing.T) {
	t.Parallel()
	statesynctest.Run(t, func(t *testing.T) statesynctest.Store {
		t.Helper()
		pool, store := pooled(t)
		begin := func(ctx context.Context) (statesynctest.Tx, error) {
			tx, err := pool.Begin(ctx)
			return open{tx, store}, err
		}
		return statesynctest.Store{
			Log: store,
			AddScope: func(ctx context.Context, scope string) error {
				defer store.Wake()
				return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return store.AddScope(ctx, pgxtx.Of(tx), scope) })
			},
			Commit: func(ctx context.Context, changes []statesync.Change) error {
				defer store.Wake()
				return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return store.Append(ctx, pgxtx.Of(tx), changes...) })
			},
			Begin: begin, Readers: store, Lease: 24 * time.Hour,
			Prune:    func(ctx context.Context, _ string) error { return store.Prune(ctx) },
			NewEpoch: func(ctx context.Context, _ string) error { return store.NewEpoch(ctx) },
		}
	})
}

// TestAppendIsPartOfTheTransaction has a statement that fails, also below a savepoint.
func TestAppendIsPartOfTheTransaction(t *testing.T) {
	t.Parallel()
	pool, store := pooled(t)
	change := func(id string) statesync.Change {
		return statesync.Change{Scope: "eu", Key: statesync.Key{Collection: "things", ID: id}, Value: []byte("1")}
	}
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		failed := pgx.BeginFunc(t.Context(), tx, func(inner pgx.Tx) error {
			require.NoError(t, store.Append(t.Context(), pgxtx.Of(inner), change("lost")))
			_, err := inner.Exec(t.Context(), "SELECT 1/0")
			return err
		})
		require.ErrorContains(t, failed, "division by zero")
		return store.Append(t.Context(), pgxtx.Of(tx), change("kept"))
	}))
	store.Wake()
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(t.Context()))
	require.ErrorIs(t, store.Append(t.Context(), pgxtx.Of(tx), change("late")), pgx.ErrTxClosed)
	require.ErrorIs(t, store.Append(t.Context(), pgxtx.Of(tx), statesync.Change{}), statesync.ErrInvalid)
	ctx, cancel := context.WithTimeout(t.Context(), statesynctest.Limit)
	defer cancel()
	for {
		page, err := store.Read(ctx, "eu", 0, 10)
		if errors.Is(err, statesync.ErrUnknownScope) {
			continue
		}
		require.NoError(t, err)
		require.Equal(t, uint64(1), page.Head)
		require.Equal(t, "kept", page.Items[0].ID)
		return
	}
}

// TestTheListenerLeavesThePoolNoSubscription would find it in a connection that is handed out again.
func TestTheListenerLeavesThePoolNoSubscription(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(pgtest.NewDatabase(t))
	require.NoError(t, err)
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	ctx, cancel := context.WithCancel(t.Context())
	require.Error(t, pgxlisten.On(db)(ctx, []string{"news"}, cancel, func(string, string) {}))
	var channels int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_listening_channels()").Scan(&channels))
	require.Zero(t, channels)
}
