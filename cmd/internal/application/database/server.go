// Package database makes and removes the PostgreSQL schema of an application with its
// two roles: one that the app logs in with, and one for anonymous readers.
//
// It reads first, plans by a pure function, and executes the plan in one transaction,
// under a lock of the schema: killed anywhere, either all of a plan is done or none. At
// rest it sends two reads and no write: the state, and a login as the app's role, because
// a server shows no password. It needs no superuser: CREATEROLE and CREATE on the
// database are enough.
//
// What exists under a wanted name and has another mark, or none, is never touched.
package database

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/application/outside"
)

// Server is a database on a server of PostgreSQL, as an administrator uses it. Make it
// with Open. It is safe for concurrent use.
type Server struct {
	options Options
	pool    *pgxpool.Pool
}

// Options say how a server is reached.
type Options struct {
	// URL is that of an administrator: DB_ADMIN_URL. Required.
	URL string
	// Timeout bounds each call of a method. Default 15 s.
	Timeout time.Duration
	// Connections is how many are open at most. Default 8.
	Connections int32
	// Tracer, if set, sees every statement.
	Tracer pgx.QueryTracer
}

// Open reads the options. It does not connect: the server need not be there. The caller
// must Close it.
func Open(ctx context.Context, options Options) (*Server, error) {
	config, err := pgxpool.ParseConfig(options.URL)
	if err != nil {
		return nil, fmt.Errorf("DB_ADMIN_URL: must be a URL such as postgresql://admin:password@host:5432/database: %w", withoutCause(err))
	}
	if config.ConnConfig.Database == "" || config.ConnConfig.User == "" {
		return nil, errors.New("DB_ADMIN_URL: must name a user and a database, as postgresql://admin:password@host:5432/database does")
	}
	options.Timeout = cmp.Or(options.Timeout, 15*time.Second)
	config.MaxConns = cmp.Or(options.Connections, 8)
	config.MaxConnIdleTime = time.Minute
	config.ConnConfig.ConnectTimeout = 5 * time.Second
	config.ConnConfig.Tracer = options.Tracer
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "plattr-operator"
	}
	config.ConnConfig.RuntimeParams["lock_timeout"] = "5s"
	config.ConnConfig.RuntimeParams["statement_timeout"] = strconv.FormatInt(options.Timeout.Milliseconds(), 10)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	return &Server{options: options, pool: pool}, nil
}

// withoutCause returns an error that shows nothing of a URL.
func withoutCause(err error) error {
	if parse, ok := errors.AsType[*pgconn.ParseConfigError](err); ok && parse.Unwrap() != nil {
		return errors.New("it cannot be parsed")
	}
	return err
}

// Close ends all connections.
func (s *Server) Close() { s.pool.Close() }

// Address returns where apps find the database.
func (s *Server) Address() (host string, port int, database string) {
	config := s.pool.Config().ConnConfig
	return config.Host, int(config.Port), config.Database
}

// Want is what an application's part of the database is to be.
type Want struct {
	// Schema, App and Anon are names: of the schema, of the role that the app logs in
	// with, of the role of anonymous readers. Required.
	Schema, App, Anon string
	// Password of the app's role. Required for Apply.
	Password string
	// AnonRead lets anonymous readers select from the tables that the app makes.
	AnonRead bool
	// Mark says whose it is. Required.
	Mark outside.Mark

	verifier string // what the server keeps of the password
}

// Observe reads how the schema and the roles are, and whether the password is that of
// the app's role.
func (s *Server) Observe(ctx context.Context, want Want) (State, error) {
	if err := want.check(); err != nil {
		return State{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	state, err := observe(ctx, s.pool, want)
	if err != nil {
		return State{}, s.explain("read", err)
	}
	if state.App.Exists && state.App.Login && want.Password != "" && want.Mark.Claim(state.App.Comment) == outside.Ours {
		if state.PasswordDiffers, err = s.refuses(ctx, want); err != nil {
			return State{}, err
		}
	}
	return state, nil
}

// Apply makes the schema and the roles as they are wanted, and returns what it has done:
// nothing if there was nothing to do.
func (s *Server) Apply(ctx context.Context, want Want) (done []string, err error) {
	state, err := s.Observe(ctx, want)
	if err != nil {
		return nil, err
	}
	first, err := Plan(state, want)
	if err != nil || len(first) == 0 {
		return nil, err
	}
	if want.Password == "" {
		return nil, errors.New("database: a password is required")
	}
	if want.verifier, err = verifier(want.Password); err != nil {
		return nil, err
	}
	return s.execute(ctx, want, func(now State) ([]Statement, error) {
		now.PasswordDiffers = state.PasswordDiffers
		return Plan(now, want)
	})
}

// Delete removes what is of the mark, or with retain leaves it for the next of its name,
// with a role that cannot log in. What is of another is left alone and is no error. When
// it returns no error, nothing is left to do.
func (s *Server) Delete(ctx context.Context, want Want, retain bool) (done []string, err error) {
	want.Password = ""
	state, err := s.Observe(ctx, want)
	if err != nil {
		return nil, err
	}
	plan := func(now State) ([]Statement, error) { return PlanDelete(now, want, retain) }
	if first, err := plan(state); err != nil || len(first) == 0 {
		return nil, err
	}
	return s.execute(ctx, want, plan)
}

// execute does what the plan says about the state under the lock of the schema, in one
// transaction.
func (s *Server) execute(ctx context.Context, want Want, plan func(State) ([]Statement, error)) (done []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*s.options.Timeout)
	defer cancel()
	failed := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", "platform.internal/"+want.Schema); err != nil {
			return s.explain("lock schema "+want.Schema, err)
		}
		state, err := observe(ctx, tx, want)
		if err != nil {
			return s.explain("read", err)
		}
		statements, err := plan(state)
		if err != nil {
			return err
		}
		for _, statement := range statements {
			if _, err := tx.Exec(ctx, statement.SQL); err != nil {
				return s.explain(statement.What, err)
			}
			done = append(done, statement.What)
		}
		return nil
	})
	if failed != nil {
		return nil, s.explain("commit", failed)
	}
	return done, nil
}

// refuses reports whether the server refuses the password of the app's role.
func (s *Server) refuses(ctx context.Context, want Want) (bool, error) {
	config := s.pool.Config().ConnConfig
	config.User, config.Password, config.Tracer = want.App, want.Password, nil
	config.RuntimeParams = map[string]string{"application_name": "plattr-operator"}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err == nil {
		return false, s.explain("close", conn.Close(ctx))
	}
	const invalidPassword, invalidAuthorization = "28P01", "28000"
	failure, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case ok && failure.Code == invalidPassword:
		return true, nil
	case ok && failure.Code == invalidAuthorization:
		return false, fmt.Errorf("database: log in as %s: %w: %s; allow the operator's address in pg_hba.conf", want.App, outside.ErrDenied, failure.Message)
	default:
		return false, s.explain("log in as "+want.App, err)
	}
}

// explain wraps an error with what its cure depends on. It never shows a password: the
// driver's errors name user, host and database alone.
func (s *Server) explain(what string, err error) error {
	if err == nil || explained(err) {
		return err
	}
	failure, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok:
		return fmt.Errorf("database: %s: %w: %w", what, outside.ErrUnreachable, err)
	case strings.HasPrefix(failure.Code, "28"):
		return fmt.Errorf("database: %s: %w: %s; correct the user or the password of DB_ADMIN_URL", what, outside.ErrDenied, failure.Message)
	case failure.Code == "3D000":
		return fmt.Errorf("database: %s: %w: %s; correct the database of DB_ADMIN_URL", what, outside.ErrDenied, failure.Message)
	case failure.Code == "42501":
		return fmt.Errorf("database: %s: %w: %s; the administrator of DB_ADMIN_URL needs CREATEROLE, and CREATE on the database", what, outside.ErrDenied, failure.Message)
	case strings.HasPrefix(failure.Code, "57P"), strings.HasPrefix(failure.Code, "53"), strings.HasPrefix(failure.Code, "08"):
		return fmt.Errorf("database: %s: %w: %s", what, outside.ErrUnreachable, failure.Message)
	default:
		return fmt.Errorf("database: %s: %s (SQLSTATE %s)", what, failure.Message, failure.Code)
	}
}

// explained reports whether an error has been wrapped already.
func explained(err error) bool {
	return strings.HasPrefix(err.Error(), "database: ") || errors.Is(err, outside.ErrOwnedByOther)
}

// URL returns how the app's role connects, with the schema as its search path. It holds
// the password.
func (s *Server) URL(want Want) string { return s.PostgRESTURL(want) + "?search_path=" + want.Schema }

// PostgRESTURL is URL without the query, which libpq refuses.
func (s *Server) PostgRESTURL(want Want) string {
	host, port, database := s.Address()
	at := url.URL{Scheme: "postgresql", User: url.UserPassword(want.App, want.Password), Host: net.JoinHostPort(host, strconv.Itoa(port)), Path: "/" + database}
	return at.String()
}

// Check returns an error if Apply could never make what is wanted: something is of
// another, or the administrator lacks a right. It writes nothing.
func (s *Server) Check(ctx context.Context, want Want) error {
	want.Password = ""
	state, err := s.Observe(ctx, want)
	if err == nil {
		_, err = Plan(state, want)
	}
	return err
}
