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
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
)

// Server is a database on a server of PostgreSQL, as an administrator uses it. Make it
// with Open. It is safe for concurrent use.
type Server struct {
	options Options
	at      location
	pool    *pgxpool.Pool
	said    notices
}

// Options say how a server is reached.
type Options struct {
	// URL is the URL of an administrator: DB_ADMIN_URL. Required.
	URL string
	// Timeout bounds each call of a method. Default 15 s.
	Timeout time.Duration
	// Connections is how many are open at most. Default 8.
	Connections int32
	// RoleConnections is how many connections the role of one app may have at a time.
	// Default 50.
	RoleConnections int
	// RoleStatementTimeout is how long a statement of an app may take, unless its session
	// sets another limit. Default 5 minutes.
	RoleStatementTimeout time.Duration
	// Logger receives what administrators should know: whole errors of the server, of which
	// returned errors have neither the administrator's name nor an address, and databases
	// that every role may connect to. Default none.
	Logger *slog.Logger
	// Tracer, if set, sees every statement.
	Tracer pgx.QueryTracer
}

// Open reads the options. It does not connect: the server need not be there. The caller
// must Close it.
func Open(ctx context.Context, options Options) (*Server, error) {
	config, at, err := parse(options.URL)
	if err != nil {
		return nil, err
	}
	options.Timeout = cmp.Or(options.Timeout, 15*time.Second)
	options.RoleConnections = cmp.Or(options.RoleConnections, 50)
	options.RoleStatementTimeout = cmp.Or(options.RoleStatementTimeout, 5*time.Minute)
	config.MaxConns = cmp.Or(options.Connections, 8)
	config.MaxConnIdleTime = time.Minute
	config.ConnConfig.ConnectTimeout = 5 * time.Second
	config.ConnConfig.Tracer = options.Tracer
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = applicationName
	}
	config.ConnConfig.RuntimeParams["lock_timeout"] = "5s"
	config.ConnConfig.RuntimeParams["statement_timeout"] = strconv.FormatInt(options.Timeout.Milliseconds(), 10)
	// Not even a schema that has the administrator's name, the first of the default search
	// path, decides what a statement of the administrator means.
	config.ConnConfig.RuntimeParams["search_path"] = searchPath
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	return &Server{options: options, at: at, pool: pool}, nil
}

// CheckURL returns an error that names DB_ADMIN_URL unless the text can be a URL of [Options].
// It shows no part of the text.
func CheckURL(text string) error {
	_, _, err := parse(text)
	return err
}

func parse(text string) (*pgxpool.Config, location, error) {
	config, err := pgxpool.ParseConfig(text)
	if err != nil {
		return nil, location{}, errors.New(wrongURL + ": it cannot be parsed") // the driver's error may show a part of it
	}
	at, err := locate(text, &config.ConnConfig.Config)
	if err != nil {
		return nil, at, err
	}
	if config.ConnConfig.Database == "" || config.ConnConfig.User == "" {
		return nil, at, errors.New(wrongURL + ", with a user and a database")
	}
	return config, at, nil
}

const (
	wrongURL        = `DB_ADMIN_URL: is "(hidden)", must be a URL such as postgresql://admin:password@host:5432/database`
	applicationName = "plattr-operator"
	searchPath      = "pg_catalog"
)

// Close ends all connections.
func (s *Server) Close() { s.pool.Close() }

// Want is the desired state of an application's part of the database.
type Want struct {
	// Schema, App and Anon are names: of the schema, of the role that the app logs in
	// with, of the role of anonymous readers. Required.
	Schema, App, Anon string
	// Password of the app's role. Required for Apply.
	Password string
	// AnonRead lets anonymous readers select from the tables that the app makes.
	AnonRead bool
	// Mark says whose it is. Required.
	Mark external.Mark

	verifier string // what the server keeps of the password
	// connections and statementTimeout bound what the app's role may use.
	connections      int
	statementTimeout time.Duration
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
		return State{}, s.explain(ctx, "read", err)
	}
	s.reportOpen(ctx, state.Open)
	if state.App.Exists && state.App.Login && want.Password != "" && want.Mark.Claim(state.App.Comment) == external.Ours {
		if state.PasswordDiffers, err = s.refuses(ctx, want); err != nil {
			return State{}, err
		}
	}
	return state, nil
}

// Apply makes the schema and the roles as they are wanted, and returns what it has done:
// nothing if there was nothing to do.
func (s *Server) Apply(ctx context.Context, want Want) (done []string, err error) {
	want.connections, want.statementTimeout = s.options.RoleConnections, s.options.RoleStatementTimeout
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

// Delete removes the objects of the mark, or with retain leaves them for the next object of
// its name, with a role that cannot log in. Objects of another mark are left alone and are no
// error. When it returns no error, nothing is left to do. The error names what keeps a role
// from being dropped, by object, database and role.
func (s *Server) Delete(ctx context.Context, want Want, retain bool) (done []string, err error) {
	want.Password = ""
	state, err := s.Observe(ctx, want)
	if err != nil {
		return nil, err
	}
	if !retain {
		if done, err = s.close(ctx, want, state); err != nil {
			return done, err
		}
		s.thin(ctx, want, state)
	}
	remove := func() error {
		plan := func(now State) ([]Statement, error) { return PlanDelete(now, want, retain) }
		first, err := plan(state)
		if err != nil || len(first) == 0 {
			return err
		}
		more, err := s.execute(ctx, want, plan)
		done = append(done, more...)
		return err
	}
	if err = remove(); err != nil || retain {
		return done, err
	}
	if s.release(ctx, want, state) {
		if state, err = s.Observe(ctx, want); err == nil {
			err = remove()
		}
		if err != nil {
			return done, err
		}
	}
	return done, Held(state, want)
}

// tablesAtOnce is how many tables one transaction drops at most. Each costs some locks, of
// which a server has some thousands, so that a schema with very many cannot go at once.
const tablesAtOnce = 500

// thin drops tables of a schema that goes, until at most tablesAtOnce are left for the
// transaction that drops the rest. A table that something outside depends on is left to it,
// whose error names what that is.
func (s *Server) thin(ctx context.Context, want Want, state State) {
	if p := (planner{state: state, want: want}); !p.ours(state.Schema.Exists, state.Schema.Comment) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*s.options.Timeout)
	defer cancel()
	for {
		rows, err := s.pool.Query(ctx, `
SELECT pg_catalog.format('%I.%I', n.nspname, c.relname)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND pg_catalog.pg_get_userbyid(c.relowner) IN ($2, $3)
ORDER BY c.oid LIMIT 2 * $4::pg_catalog.int4`, want.Schema, want.App, want.Anon, tablesAtOnce)
		if err != nil {
			return // the drop of the schema has the same cause, and its error
		}
		tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || len(tables) <= tablesAtOnce {
			return
		}
		if _, err := s.pool.Exec(ctx, "DROP TABLE "+strings.Join(tables[:tablesAtOnce], ", ")); err != nil {
			s.notice(ctx, "drop tables of schema "+want.Schema, err.Error())
			return
		}
	}
}

// release gives up the rights in other databases of roles that go and own nothing there, and
// reports whether it did. Such rights are granted by others, who could keep a role, and with
// it an Application, from going. What a role owns there is left to people.
func (s *Server) release(ctx context.Context, want Want, state State) (released bool) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	p := planner{state: state, want: want}
	for _, part := range state.parts(want) {
		if part.role == nil || !p.ours(part.exists, part.comment) {
			continue
		}
		for _, database := range part.role.granted() {
			if err := s.disown(ctx, database, part.name); err != nil {
				s.notice(ctx, "revoke rights of role "+part.name+" in database "+database, err.Error())
				continue
			}
			released = true
		}
	}
	return released
}

// disown drops what a role owns in another database, nothing, and its rights there.
func (s *Server) disown(ctx context.Context, database, role string) error {
	config := s.pool.Config().ConnConfig
	config.Database = database
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "DROP OWNED BY "+identifier(role))
	return errors.Join(err, conn.Close(ctx))
}

// close ends the sessions of roles that are about to be dropped: one that holds a lock
// would hold up the deletion for as long as it likes.
func (s *Server) close(ctx context.Context, want Want, state State) (done []string, err error) {
	plan := func(now State) ([]Statement, error) { return PlanClose(now, want) }
	first, err := plan(state)
	if err != nil || len(first) == 0 {
		return nil, err
	}
	if done, err = s.execute(ctx, want, plan); err != nil {
		return done, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	const end = "SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity WHERE usename = ANY($1) AND pid <> pg_catalog.pg_backend_pid()"
	if _, err := s.pool.Exec(ctx, end, []string{want.App, want.Anon}); err != nil {
		// What they hold is named if it holds anything up.
		s.notice(ctx, "sessions of a role that goes are left", err.Error())
	}
	return done, nil
}

// execute does what the plan says about the state under the lock of the schema, in one
// transaction.
func (s *Server) execute(ctx context.Context, want Want, plan func(State) ([]Statement, error)) (done []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*s.options.Timeout)
	defer cancel()
	failed := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(
			ctx,
			"SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended($1, 0))",
			"platform.internal/"+want.Schema,
		); err != nil {
			return s.explain(ctx, "lock schema "+want.Schema, err)
		}
		state, err := observe(ctx, tx, want)
		if err != nil {
			return s.explain(ctx, "read", err)
		}
		statements, err := plan(state)
		if err != nil {
			return err
		}
		for _, statement := range statements {
			if _, err := tx.Exec(ctx, statement.SQL); err != nil {
				return s.explain(ctx, statement.What, err)
			}
			done = append(done, statement.What)
		}
		return nil
	})
	if failed != nil {
		return nil, s.waits(ctx, want, s.explain(ctx, "commit", failed))
	}
	return done, nil
}

// refuses reports whether the server refuses the password of the app's role.
func (s *Server) refuses(ctx context.Context, want Want) (bool, error) {
	config := s.pool.Config().ConnConfig
	config.User, config.Password, config.Tracer = want.App, want.Password, nil
	config.RuntimeParams = map[string]string{"application_name": applicationName, "search_path": searchPath}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err == nil {
		return false, s.explain(ctx, "close", conn.Close(ctx))
	}
	const invalidPassword, invalidAuthorization, tooMany = "28P01", "28000", "53300"
	failure, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case ok && failure.Code == invalidPassword:
		return true, nil
	case ok && failure.Code == tooMany && failure.Routine == "InitializeSessionUserId":
		return false, nil // the password was right; the role has all connections it may have
	case ok && failure.Code == invalidAuthorization:
		s.notice(ctx, "log in as "+want.App, failure.Error())
		return false, fmt.Errorf(
			"database: log in as %s: %w: the server lets the role in from other addresses only; allow the operator's address in pg_hba.conf",
			want.App,
			external.ErrDenied,
		)
	default:
		return false, s.explain(ctx, "log in as "+want.App, err)
	}
}

// Check returns an error if Apply can never reach the desired state: an object belongs to
// another, or the administrator lacks a right. It writes nothing.
func (s *Server) Check(ctx context.Context, want Want) error {
	want.Password = ""
	state, err := s.Observe(ctx, want)
	if err == nil {
		_, err = Plan(state, want)
	}
	return err
}
