package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"syscall"
	"time"

	"github.com/seed-9e1ffd66/trueup/internal/pause"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// invalid adds ErrInvalid to an error that lacks it.
func invalid(err error) error {
	if errors.Is(err, statesync.ErrInvalid) {
		return err
	}
	return fmt.Errorf("%w: %w", statesync.ErrInvalid, err)
}

// Retryable reports whether the same transaction may succeed when it is run again from
// its beginning: after a deadlock, a serialisation failure, a lock timeout, a lost
// connection, a stop or start of the server, a connection to a server that has become
// read-only, as the primary of before a failover. A lost connection may have committed.
func Retryable(err error) bool {
	var postgres interface{ SQLState() string }
	if errors.As(err, &postgres) {
		code := postgres.SQLState()
		switch code {
		case "40001", "40P01", "55P03", "25006", "25P03", "57P01", "57P02", "57P03":
			return true
		}
		return len(code) == 5 && code[:2] == "08"
	}
	var lite interface{ Code() int }
	if errors.As(err, &lite) {
		const primary, busy, locked = 0xff, 5, 6
		return lite.Code()&primary == busy || lite.Code()&primary == locked
	}
	return lostConnection(err)
}

// permanent reports whether a person must act: the tables are missing, the role lacks a
// right, the file is damaged. The sequencer retries after any other error.
func permanent(err error) bool {
	var postgres interface{ SQLState() string }
	if errors.As(err, &postgres) {
		code := postgres.SQLState()
		// Invalid authorization, invalid catalog or schema name, syntax error or
		// access rule violation.
		for _, class := range []string{"28", "3D", "3F", "42"} {
			if len(code) == 5 && code[:2] == class {
				return true
			}
		}
		return false
	}
	var lite interface{ Code() int }
	if errors.As(err, &lite) {
		switch lite.Code() & 0xff {
		case 1, 3, 8, 11, 20, 21, 23, 25, 26: // error, perm, readonly, corrupt, mismatch, misuse, auth, range, notadb
			return true
		}
	}
	return false
}

// retry runs do again, with growing pauses, as long as its error is Retryable.
func (s *Store) retry(ctx context.Context, do func() error) error {
	for pause := (backoff{}); ; {
		err := do()
		if err == nil || !Retryable(err) || ctx.Err() != nil || pause.n >= 10 {
			return err
		}
		s.logger().WarnContext(ctx, "database operation failed, retrying", slog.Any("error", err))
		if !pause.wait(ctx) {
			return err
		}
	}
}

// backoff computes pauses that grow from 5 ms to 5 s, each shortened at random by
// up to a half.
type backoff struct{ n int }

// wait returns false if ctx ended.
func (b *backoff) wait(ctx context.Context) bool {
	d := min(5*time.Millisecond<<min(b.n, 10), 5*time.Second)
	b.n++
	d -= time.Duration(rand.Int64N(int64(d) / 2))
	return pause.For(ctx, d)
}

// lockKey is the number of an advisory lock of PostgreSQL.
func (s *Store) lockKey(purpose string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("trueup/sqlstore\x00" + s.prefix() + "\x00" + purpose))
	return int64(h.Sum64()) //nolint:gosec // any number will do
}

func lostConnection(err error) bool {
	var network net.Error
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.As(err, &network) ||
		errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
