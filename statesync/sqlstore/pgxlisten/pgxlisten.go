// Package pgxlisten receives PostgreSQL's notifications on a connection of
// github.com/jackc/pgx/v5/stdlib, for the field Listen of a sqlstore.Store.
package pgxlisten

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// On returns a function for the field Listen. It takes one connection of db,
// which must have been opened by the driver "pgx" or be of stdlib.OpenDBFromPool, and must not
// go through a pooler that hands out a connection for a transaction only.
func On(db *sql.DB) func(ctx context.Context, channels []string, listening func(), heard func(channel, payload string)) error {
	return func(ctx context.Context, channels []string, listening func(), heard func(channel, payload string)) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close() //nolint:errcheck // it is closed already: see below
		var failure error
		// ErrBadConn closes the connection instead of returning it to the pool with its
		// subscriptions.
		_ = conn.Raw(func(raw any) error {
			if c, ok := raw.(*stdlib.Conn); ok {
				failure = listen(ctx, c.Conn(), channels, listening, heard)
				// A pool of pgx would hand it out again, with its subscriptions.
				closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), answer)
				defer cancel()
				_ = c.Conn().Close(closing) // the reason why it ended matters more
			} else {
				failure = fmt.Errorf("the driver is %T, not the one of pgx", raw)
			}
			return driver.ErrBadConn
		})
		return failure
	}
}

func listen(ctx context.Context, conn *pgx.Conn, channels []string, listening func(), heard func(channel, payload string)) error {
	for _, channel := range channels {
		if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
			return err
		}
	}
	listening()
	for {
		n, err := wait(ctx, conn)
		switch {
		case err != nil:
			return err
		case n != nil:
			heard(n.Channel, n.Payload)
		}
	}
}

// errReadOnly has the caller listen on another connection.
var errReadOnly = errors.New("the connection is read-only: its server is not the primary, or not now")

// silence is how long a connection may be silent before it is asked, and answer how
// long that may take.
const (
	silence = 30 * time.Second
	answer  = 10 * time.Second
)

// wait returns the next notification, or nil if there was none for a while and the
// server is still up and writable.
func wait(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	limited, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	n, err := conn.WaitForNotification(limited)
	if err == nil || ctx.Err() != nil || limited.Err() == nil {
		return n, err
	}
	asked, cancel := context.WithTimeout(ctx, answer)
	defer cancel()
	// After a failover the connection may lead to the primary of before, which announces nothing.
	var readOnly string
	if err := conn.QueryRow(asked, "SHOW transaction_read_only").Scan(&readOnly); err != nil {
		return nil, err
	}
	if readOnly == "on" {
		return nil, errReadOnly
	}
	return nil, nil
}
