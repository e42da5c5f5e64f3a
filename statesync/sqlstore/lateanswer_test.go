package sqlstore_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/statesync"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
)

// TestAnAnswerThatComesLateHidesNoChange waits for a change that is committed after the
// database has read the position of the scope, and before its answer arrives.
func TestAnAnswerThatComesLateHidesNoChange(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t)
	batches := make(chan sqlstore.Batch, 16)
	// Neither polling nor notifications help.
	s := openPostgreSQL(t, url, &sqlstore.Store{Poll: time.Hour, OnBatch: func(b sqlstore.Batch) { batches <- b }})
	s.Listen = nil
	config, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	var held heldConn
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		held.Conn = conn
		return &held, err
	}
	s.ReadDB = stdlib.OpenDB(*config)
	t.Cleanup(func() { require.NoError(t, s.ReadDB.Close()) })
	s.ReadDB.SetMaxOpenConns(1)
	start(t, s)
	ctx := ctxWithin(t)
	require.NoError(t, s.Commit(ctx, change("s", "a", `1`), change("t", "a", `1`)))
	at := head(t, s, "s", 1)
	// The question is prepared once for each connection.
	require.NoError(t, s.Wait(ctx, "t", statesync.Position{}))
	for n := 0; n < 2; n += (<-batches).Changes { // readers may have a batch before it is reported
	}

	arrived, release := held.holdNext()
	waits := make(chan error, 1)
	go func() { waits <- s.Wait(ctx, "s", at) }()
	<-arrived
	require.NoError(t, s.Commit(ctx, change("s", "a", `2`)))
	require.Equal(t, 1, (<-batches).Changes)
	close(release)
	require.NoError(t, <-waits)
}

// heldConn is a connection of which one answer can be held back.
type heldConn struct {
	net.Conn
	mu               sync.Mutex
	arrived, release chan struct{}
}

// holdNext holds back the next answer. The first channel is closed once it has come;
// the caller closes the second to let it through.
func (c *heldConn) holdNext() (arrived <-chan struct{}, release chan<- struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arrived, c.release = make(chan struct{}), make(chan struct{})
	return c.arrived, c.release
}

func (c *heldConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	arrived, release := c.arrived, c.release
	if n > 0 {
		c.arrived, c.release = nil, nil
	}
	c.mu.Unlock()
	if arrived != nil && n > 0 {
		close(arrived)
		<-release
	}
	return n, err
}
