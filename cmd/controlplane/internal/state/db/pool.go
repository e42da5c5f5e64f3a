package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// ErrReadOnly is a PostgreSQL that takes no writes, on new connections either: its volume is
// full, or a failover has left this address on a standby.
var ErrReadOnly = errors.New("database is read-only")

// readOnlyTransaction is what a write in a read-only session is refused with.
const readOnlyTransaction = "25006"

// lifetime is how long a connection is used: one that leads to the server of before, as
// through a pooler, ends without an error of its own.
const lifetime = 30 * time.Minute

// generations drops the connections of a pool that have become read-only. Their server may be a
// former primary: only a new connection finds the new one.
type generations struct {
	mu      sync.Mutex
	current int
	changed time.Time
	// between is how often all connections are replaced at most. A database that is read-only on
	// new connections, too, would have each write that fails replace all.
	between time.Duration
}

// generation is the key of the generation in the data of a connection.
const generation = "trueup.generation"

// open returns a pool of such connections.
func (g *generations) open(config pgx.ConnConfig) *sql.DB {
	before := config.OnPgError
	config.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		if err.Code == readOnlyTransaction {
			g.end()
			return false // closes this one
		}
		return before == nil || before(conn, err)
	}
	pool := stdlib.OpenDB(
		config,
		stdlib.OptionAfterConnect(func(_ context.Context, conn *pgx.Conn) error {
			conn.PgConn().CustomData()[generation] = g.now()
			return nil
		}),
		stdlib.OptionResetSession(func(_ context.Context, conn *pgx.Conn) error {
			if conn.PgConn().CustomData()[generation] != g.now() {
				return driver.ErrBadConn
			}
			return nil
		}),
	)
	pool.SetMaxOpenConns(maxConnections)
	pool.SetMaxIdleConns(maxConnections)
	pool.SetConnMaxLifetime(lifetime)
	return pool
}

func (g *generations) now() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.current
}

// end has every connection of now closed before its next use.
func (g *generations) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.changed) >= g.between {
		g.current++
		g.changed = time.Now()
	}
}

// writable returns an error if the pool has no connection that takes writes. It replaces those
// that take none.
func (g *generations) writable(ctx context.Context, pool *sql.DB) error {
	for attempt := 1; ; attempt++ {
		var readOnly bool
		const query = `SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean`
		if err := pool.QueryRowContext(ctx, query).Scan(&readOnly); err != nil {
			return classifyPostgreSQL(err)
		}
		if !readOnly {
			return nil
		}
		if attempt == attempts {
			return fmt.Errorf("%w: %w", ErrBusy, ErrReadOnly)
		}
		g.end()
	}
}
