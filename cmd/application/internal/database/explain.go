package database

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
)

// lockTimeout is the code of a statement that waited too long for a lock.
const lockTimeout = "55P03"

// explain wraps an error with what its cure depends on. The text is for those who may read
// an Application: it has no password, and neither the name nor the address of the
// administrator, which are in the log alone.
func (s *Server) explain(ctx context.Context, what string, err error) error {
	if err == nil || explained(err) {
		return err
	}
	if !errors.Is(ctx.Err(), context.Canceled) {
		s.notice(ctx, what, err.Error())
	}
	failure, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok:
		return fmt.Errorf("database: %s: %w: %w", what, external.ErrUnreachable, connection(err))
	case strings.HasPrefix(failure.Code, "28"):
		return fmt.Errorf(
			"database: %s: %w: the server refuses the login; correct the user or the password of DB_ADMIN_URL",
			what,
			external.ErrDenied,
		)
	case failure.Code == "3D000":
		return fmt.Errorf("database: %s: %w: the server has no such database; correct the database of DB_ADMIN_URL", what, external.ErrDenied)
	case failure.Code == "42501":
		return fmt.Errorf(
			"database: %s: %w: %s; the administrator of DB_ADMIN_URL needs CREATEROLE, and CREATE on the database",
			what,
			external.ErrDenied,
			s.scrub(failure.Message),
		)
	case failure.Code == "53200" && strings.Contains(failure.Message, "shared memory"):
		return fmt.Errorf(
			"database: %s: %w: the server has no room for more locks; end the session that holds many, or raise max_locks_per_transaction",
			what,
			external.ErrUnreachable,
		)
	case strings.HasPrefix(failure.Code, "57P"), strings.HasPrefix(failure.Code, "53"), strings.HasPrefix(failure.Code, "08"):
		return fmt.Errorf("database: %s: %w: %s", what, external.ErrUnreachable, s.scrub(failure.Message))
	default:
		text := failure.Message
		if failure.Detail != "" {
			text += ": " + strings.ReplaceAll(failure.Detail, "\n", ", ")
		}
		return &serverError{text: fmt.Sprintf("database: %s: %s (SQLSTATE %s)", what, s.scrub(text), failure.Code), code: failure.Code}
	}
}

// serverError is an error of the server that has no cure of its own.
type serverError struct{ text, code string }

func (e *serverError) Error() string { return e.text }

// explained reports whether an error has been wrapped already.
func explained(err error) bool {
	return strings.HasPrefix(err.Error(), "database: ") || errors.Is(err, external.ErrOwnedByOther)
}

// connection returns what a connection fails with in words without an address.
func connection(err error) error {
	_, unknown := errors.AsType[*net.DNSError](err)
	network, timed := errors.AsType[net.Error](err)
	text := "the connection fails"
	switch {
	case unknown:
		text = "the name of its host is not found"
	case errors.Is(err, syscall.ECONNREFUSED):
		text = "it refuses the connection"
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), timed && network.Timeout():
		text = "it does not answer in time"
	case strings.Contains(err.Error(), "tls"), strings.Contains(err.Error(), "x509"), strings.Contains(err.Error(), "TLS"):
		text = "TLS fails"
	}
	return errors.New(text + "; the whole error is in the log of this program")
}

// scrub replaces the names of the administrator and of the host in a text of the server.
func (s *Server) scrub(text string) string {
	config := s.pool.Config().ConnConfig
	hosts := []string{config.Host}
	for _, fallback := range config.Fallbacks {
		hosts = append(hosts, fallback.Host)
	}
	replace := func(name, by string) {
		for range 2 { // a separator between two of them is part of the first match
			if name == "" {
				return
			}
			text = regexp.MustCompile(`(^|[^A-Za-z0-9_.-])"?`+regexp.QuoteMeta(name)+`"?($|[^A-Za-z0-9_-])`).ReplaceAllString(text, "${1}"+by+"${2}")
		}
	}
	replace(config.User, "the administrator")
	for _, host := range hosts {
		replace(host, "the server")
	}
	return text
}

// waits adds to a lock timeout the relations of the schema that are locked, and the roles
// that hold the locks.
func (s *Server) waits(ctx context.Context, want Want, err error) error {
	failure, ok := errors.AsType[*serverError](err)
	if !ok || failure.code != lockTimeout {
		return err
	}
	rows, queryErr := s.pool.Query(ctx, `
SELECT DISTINCT pg_catalog.format('%s is locked by role %s', c.relname, a.usename)
FROM pg_catalog.pg_locks l
	JOIN pg_catalog.pg_class c ON c.oid = l.relation
	JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
	LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE n.nspname = $1 AND l.granted AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
ORDER BY 1 LIMIT 5`, want.Schema)
	if queryErr != nil {
		return err
	}
	held, queryErr := pgx.CollectRows(rows, pgx.RowTo[string])
	if queryErr != nil || len(held) == 0 {
		return err
	}
	return fmt.Errorf("%w: in database %s, schema %s: %s", err, s.at.database, want.Schema, s.scrub(strings.Join(held, ", ")))
}

// notices are the messages that were logged recently.
type notices struct {
	mu   sync.Mutex
	last map[string]time.Time
	open []string
}

// again is how long the same notice is not logged again.
const again = 10 * time.Minute

// notice logs something for administrators. The same is logged once in a while: each pass of
// each application has it.
func (s *Server) notice(ctx context.Context, what, detail string) {
	if s.options.Logger == nil {
		return
	}
	s.said.mu.Lock()
	now := time.Now()
	for text, at := range s.said.last {
		if now.Sub(at) > again {
			delete(s.said.last, text)
		}
	}
	_, known := s.said.last[detail]
	if s.said.last == nil {
		s.said.last = map[string]time.Time{}
	}
	if !known {
		s.said.last[detail] = now
	}
	s.said.mu.Unlock()
	if !known {
		s.options.Logger.WarnContext(ctx, "database operation failed", slog.String("doing", what), slog.String("error", detail))
	}
}

// reportOpen logs the other databases of the server that every role may connect to, when
// they are others than before. Nothing in them is the operator's to change.
func (s *Server) reportOpen(ctx context.Context, open []string) {
	s.said.mu.Lock()
	changed := !slices.Equal(open, s.said.open)
	s.said.open = open
	s.said.mu.Unlock()
	if s.options.Logger == nil || !changed || len(open) == 0 {
		return
	}
	s.options.Logger.WarnContext(
		ctx,
		"the roles of applications may connect to other databases of the server; REVOKE CONNECT ON DATABASE ... FROM PUBLIC ends that",
		slog.Any("databases", open),
	)
}
