package pgxlisten_test

import (
	"context"
	"database/sql"
	"net/url"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore/pgxlisten"
)

func TestNotificationsAreHeardUntilTheConnectionEnds(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Options{})
	db, err := sql.Open("pgx", server.Database(t))
	require.NoError(t, err)
	defer db.Close()
	heard, ended := make(chan string), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	listen := func() {
		ready := make(chan struct{})
		go func() {
			ended <- pgxlisten.On(db)(ctx, []string{"one", `T"wo`}, func() { close(ready) }, func(channel, payload string) { heard <- channel + " " + payload })
		}()
		<-ready
	}
	listen()
	_, err = db.ExecContext(t.Context(), `SELECT pg_notify('one', 'a'), pg_notify('other', 'b'), pg_notify('T"wo', '')`)
	require.NoError(t, err)
	require.Equal(t, "one a", <-heard)
	require.Equal(t, `T"wo `, <-heard)

	server.Kill()
	require.Error(t, <-ended)
	require.NoError(t, server.Start(t.Context()))
	listen()
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Zero(t, db.Stats().InUse)
}

// TestAConnectionThatIsReadOnlyIsGivenUp: after a failover it may lead to the primary of before, which is silent.
func TestAConnectionThatIsReadOnlyIsGivenUp(t *testing.T) {
	if testing.Short() {
		t.Skip("long: waits for 30 seconds")
	}
	t.Parallel()
	source, err := url.Parse(pgtest.NewDatabase(t))
	require.NoError(t, err)
	query := source.Query()
	query.Set("default_transaction_read_only", "on")
	source.RawQuery = query.Encode()
	db, err := sql.Open("pgx", source.String())
	require.NoError(t, err)
	defer db.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	err = pgxlisten.On(db)(ctx, []string{"one"}, func() {}, func(string, string) {})
	require.ErrorContains(t, err, "the connection is read-only")
	require.Zero(t, db.Stats().InUse)
}

func TestAnotherDriverIsAnError(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", ":memory:")
	require.NoError(t, err)
	defer db.Close()
	err = pgxlisten.On(db)(t.Context(), nil, nil, nil)
	require.ErrorContains(t, err, "not the one of pgx")
}
