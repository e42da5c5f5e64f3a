package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/statesync"
)

// Defaults of a [Store].
const (
	defaultPrefix    = "trueup_"
	defaultPoll      = 250 * time.Millisecond
	defaultRetention = 7 * 24 * time.Hour
	defaultLease     = 24 * time.Hour
	defaultPrune     = time.Hour
	defaultLimit     = 10 * time.Second
	defaultBatch     = 5000
)

// Store is a [statesync.Log] in tables of the caller's database, and its
// [statesync.Readers]. See the package for how it works. Its fields must not be changed
// after first use, except Logger, Poll, OnBatch and OnEvent, which may be set until Start. It
// is safe for concurrent use.
//
// Call Migrate first, and run Start in every process that uses the store: it assigns
// versions to committed changes, wakes the callers of Wait, and prunes.
type Store struct {
	// DB is the database. Required. On SQLite it may be limited to one connection: then
	// its writers cannot fail on each other's locks. On PostgreSQL Start keeps up to
	// three connections for itself.
	DB *sql.DB
	// ReadDB is the database of Read, Readers and Wait. Nil: DB. On SQLite, a second
	// pool on the same file lets readers go on while there is a writer. It must
	// not be a replica that lags behind.
	ReadDB *sql.DB
	// Dialect is the kind of the database. Required.
	Dialect Dialect
	// Prefix begins the name of each table: a lower-case letter or _, then up to
	// 30 of those and digits. Empty: "trueup_".
	Prefix string
	// Listen receives PostgreSQL's notifications until ctx ends or the
	// connection fails: it calls listening once it cannot miss any, and heard for each.
	// Package pgxlisten has one for pgx. Nil: the changes of other processes are found
	// by polling only. Set it in all processes or in none.
	Listen func(ctx context.Context, channels []string, listening func(), heard func(channel, payload string)) error
	// Poll is the poll interval when no Wake or notification arrives. Zero: 250 ms. On PostgreSQL
	// with Listen a change whose notification is lost is seen within eight of them, or within half
	// the time after which Wait fails.
	Poll time.Duration
	// Retention is the min time that a tombstone is kept. Zero: 7 days.
	Retention time.Duration
	// Lease is how long after its last report a reader holds back the pruning
	// of tombstones that it has not applied. Zero: 24 h.
	Lease time.Duration
	// PruneEvery is how often Start prunes. Zero: 1 h.
	PruneEvery time.Duration
	// Logger receives failures that are retried, and a line for each Event. Nil: no
	// log.
	Logger *slog.Logger
	// OnBatch, if not nil, is called after each batch that moved a change or failed, by
	// one goroutine at a time. It must return soon.
	OnBatch func(Batch)
	// OnEvent, if not nil, is called for each Event, from any goroutine. It must
	// return soon.
	OnEvent func(Event)

	setup    sync.Once
	setupErr error
	sql      statements
	wake     chan struct{}
	watcher  watcher
	progress progress
	// limit and maxBatch are set by tests; zero stands for the defaults.
	limit    time.Duration
	maxBatch int
}

var validPrefix = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,30}$`)

// ready checks the configuration once.
func (s *Store) ready() error {
	s.setup.Do(func() {
		var errs []error
		if s.DB == nil {
			errs = append(errs, errors.New("sqlstore: Store.DB: is required"))
		}
		errs = append(errs, s.named()...)
		for _, field := range []struct {
			name  string
			value time.Duration
		}{{"Poll", s.Poll}, {"Retention", s.Retention}, {"Lease", s.Lease}, {"PruneEvery", s.PruneEvery}} {
			if field.value < 0 {
				errs = append(errs, fmt.Errorf("sqlstore: Store.%s: is %s, must not be negative", field.name, field.value))
			}
		}
		s.sql = s.Dialect.statements(s.prefix(), s.batchRows())
		s.wake = make(chan struct{}, 1)
		s.watcher = newWatcher()
		s.setupErr = errors.Join(errs...)
	})
	return s.setupErr
}

// named checks what the names of tables and files depend on.
func (s *Store) named() (errs []error) {
	if s.Dialect != SQLite && s.Dialect != PostgreSQL {
		errs = append(errs, fmt.Errorf("sqlstore: Store.Dialect: is %d, must be SQLite or PostgreSQL", int(s.Dialect)))
	}
	if !validPrefix.MatchString(s.prefix()) {
		errs = append(errs, fmt.Errorf("sqlstore: Store.Prefix: is %q, must match %s", s.Prefix, validPrefix))
	}
	return errs
}

func (s *Store) prefix() string           { return cmp.Or(s.Prefix, defaultPrefix) }
func (s *Store) poll() time.Duration      { return cmp.Or(s.Poll, defaultPoll) }
func (s *Store) retention() time.Duration { return cmp.Or(s.Retention, defaultRetention) }
func (s *Store) lease() time.Duration     { return cmp.Or(s.Lease, defaultLease) }
func (s *Store) readDB() *sql.DB          { return cmp.Or(s.ReadDB, s.DB) }

func (s *Store) logger() *slog.Logger {
	return cmp.Or(s.Logger, slog.New(slog.DiscardHandler))
}

// Tx is an open transaction of the caller: a [*sql.Tx], or one of pgx by package pgxtx.
type Tx interface {
	// ExecContext runs one statement.
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	// Rollback is not called. It keeps out a *sql.DB, whose statements are transactions of
	// their own: a reader could see a part of the changes.
	Rollback() error
}

// Append records the changes in the caller's transaction. They become readable,
// all at once, soon after that has committed, and never if it does not. The
// first change of a scope makes the scope. It returns [statesync.ErrInvalid],
// wrapped, before it has written anything, if a change is invalid.
//
// The versions of two transactions that change one key follow the order of their calls
// of Append. If the last commit must win, first lock the row with the key's state, by
// UPDATE or SELECT FOR UPDATE; a program with such a row does so anyway.
//
// Append takes no lock that another Append waits for. Call Wake after the commit. For a
// transaction of pgx, see package pgxtx.
func (s *Store) Append(ctx context.Context, tx Tx, changes ...statesync.Change) error {
	if err := s.ready(); err != nil {
		return err
	}
	return s.append(ctx, tx, changes, func() {})
}

// append calls done after each statement.
func (s *Store) append(ctx context.Context, tx Tx, changes []statesync.Change, done func()) error {
	var errs []error
	for _, c := range changes {
		if err := c.Validate(); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return invalid(err)
	}
	// Powers of two keep the number of different statements small, for drivers that
	// cache prepared ones.
	for size := maxRows; len(changes) > 0; {
		if size > len(changes) {
			size /= 2
			continue
		}
		if _, err := tx.ExecContext(ctx, s.sql.enqueue[size], rows(changes[:size])...); err != nil {
			return fmt.Errorf("append %d changes: %w", size, err)
		}
		done()
		changes = changes[size:]
	}
	return nil
}

func rows(changes []statesync.Change) []any {
	args := make([]any, 0, columns*len(changes))
	for _, c := range changes {
		var value []byte // NULL in a tombstone
		if !c.Deleted {
			value = c.Value
		}
		args = append(args, c.Scope, c.Collection, c.ID, c.Deleted, value)
	}
	return args
}

// AddScope makes the scopes that do not exist, soon after the caller's transaction has
// committed. An empty scope needs it; any other is made by its first change.
func (s *Store) AddScope(ctx context.Context, tx Tx, scopes ...string) error {
	if err := s.ready(); err != nil {
		return err
	}
	for _, scope := range scopes {
		if err := statesync.ValidScope(scope); err != nil {
			return invalid(err)
		}
	}
	for _, scope := range scopes {
		// A row without a collection asks for the scope alone. It goes through
		// the queue, because a row of the scopes table would make the sequencer
		// wait for this transaction.
		if _, err := tx.ExecContext(ctx, s.sql.enqueue[1], scope, "", "", false, nil); err != nil {
			return fmt.Errorf("add scope %q: %w", scope, err)
		}
	}
	return nil
}

// Commit appends the changes in a transaction of their own. It is for programs whose
// only state is the log: no row lock orders two commits that change one key at the same
// time.
func (s *Store) Commit(ctx context.Context, changes ...statesync.Change) error {
	if err := s.ready(); err != nil {
		return err
	}
	// Each statement has its time: how long all of them take depends on the changes.
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(s.statementLimit(), func() { cancel(context.DeadlineExceeded) })
	defer timer.Stop()
	err := s.transact(limited, func(tx *sql.Tx) error {
		return s.append(limited, tx, changes, func() { timer.Reset(s.statementLimit()) })
	})
	switch {
	case err == nil:
		s.Wake()
	case ctx.Err() != nil: // a driver may report a lost connection alone
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	case limited.Err() != nil:
		return fmt.Errorf("a statement took more than %v: %w: %w", s.statementLimit(), context.Cause(limited), err)
	}
	return err
}

// Wake notifies the sequencer of a commit. It is a hint: it never
// blocks, costs nothing when repeated, and without it Poll finds the change.
// The process must run Start.
func (s *Store) Wake() {
	if s.ready() == nil {
		signal(s.wake)
	}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// transact runs do in a transaction and commits it unless do returns an error.
func (s *Store) transact(ctx context.Context, do func(*sql.Tx) error) error {
	return s.transactOn(ctx, s.DB, do)
}

// beginner is a *sql.DB or *sql.Conn.
type beginner interface {
	BeginTx(ctx context.Context, options *sql.TxOptions) (*sql.Tx, error)
}

// statementLimit is how long a statement of this package may take, except a batch with
// one large transaction. It gives up a connection whose other side has vanished.
func (s *Store) statementLimit() time.Duration { return cmp.Or(s.limit, defaultLimit) }

// batchRows is how many changes a batch has at most.
func (s *Store) batchRows() int { return cmp.Or(s.maxBatch, defaultBatch) }

// within limits ctx to the time of a statement.
func (s *Store) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.statementLimit())
}

// maxVersion is the greatest version that a database stores.
const maxVersion = math.MaxInt64

func (s *Store) transactOn(ctx context.Context, on beginner, do func(*sql.Tx) error) error {
	// The session's default may differ: an isolation level with one snapshot for the
	// whole transaction would assign versions to rows that were moved already.
	var options *sql.TxOptions
	if s.Dialect == PostgreSQL {
		options = &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	}
	tx, err := on.BeginTx(ctx, options)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	if err := do(tx); err != nil {
		// The cause matters more than an error of the rollback.
		_ = tx.Rollback()
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}
