package db_test

import (
	"database/sql"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
)

// TestConnectionsThatHaveBecomeReadOnlyAreReplaced has a server that is read-only for its sessions, as a
// standby or one with a full volume is, and then only for those that began meanwhile, as the primary of
// before a failover is.
func TestConnectionsThatHaveBecomeReadOnlyAreReplaced(t *testing.T) {
	ctx, source := t.Context(), pgtest.NewDatabase(t)
	place, err := url.Parse(source)
	require.NoError(t, err)
	name := strings.Trim(place.Path, "/")
	admin, err := sql.Open("pgx", source)
	require.NoError(t, err)
	defer admin.Close()
	admin.SetMaxOpenConns(1)
	do := func(statement string) {
		t.Helper()
		// The session of the statement itself may be read-only.
		_, err := admin.ExecContext(ctx, `SET default_transaction_read_only = off; `+statement)
		require.NoError(t, err)
	}
	const endOthers = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`
	database, err := db.PostgreSQL{URL: source}.ReplacingAtOnce().Open(ctx)
	require.NoError(t, err)
	defer database.Close()
	write := func(id string) error {
		return database.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.ExecContext(ctx, insert, id)
			return err
		})
	}
	// fill has the pool open all of its connections.
	fill := func() {
		t.Helper()
		const connections = 16
		var arrived, done sync.WaitGroup
		arrived.Add(connections)
		for range connections {
			done.Go(func() {
				here := sync.OnceFunc(arrived.Done)
				defer here()
				_ = database.Read(ctx, func(*db.Tx) error { // one that was ended fails, and is gone then
					here()
					arrived.Wait()
					return nil
				})
			})
		}
		done.Wait()
	}
	readOnly := func() {
		t.Helper()
		do(`ALTER DATABASE "` + name + `" SET default_transaction_read_only = on`)
		do(endOthers)
		fill()
		fill()
	}
	require.NoError(t, write("1"))

	readOnly()
	err = write("2")
	require.ErrorIs(t, err, db.ErrBusy)
	require.ErrorContains(t, err, "25006")
	require.ErrorIs(t, database.Ping(ctx), db.ErrReadOnly)
	var n int
	require.NoError(t, database.Read(ctx, func(tx *db.Tx) error {
		return tx.QueryRowContext(ctx, `SELECT count(*) FROM clusters`).Scan(&n)
	}), "reads go on")
	require.Equal(t, 1, n)

	fill()
	do(`ALTER DATABASE "` + name + `" RESET default_transaction_read_only`)
	for _, id := range []string{"3", "4", "5", "6"} {
		require.NoError(t, write(id), "one try is lost, unseen")
	}
	require.NoError(t, database.Ping(ctx))

	readOnly()
	do(`ALTER DATABASE "` + name + `" RESET default_transaction_read_only`)
	require.NoError(t, database.Ping(ctx), "a look alone replaces the connections, too")
	fill()
	require.NoError(t, write("7"))
}

// TestConnectionsAreReplacedOnceInAWhile: each write to a database that stays read-only finds it so.
func TestConnectionsAreReplacedOnceInAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		require.Equal(t, 3, db.Replaced(30, time.Second, 100*time.Millisecond))
		require.Equal(t, 30, db.Replaced(30, time.Second, time.Second))
	})
}
