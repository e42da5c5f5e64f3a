package audit

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

const (
	// Retention is how long an entry is kept, unless [Log.Retention] says otherwise.
	Retention = 365 * 24 * time.Hour
	// MaxEntries is how many of a log are kept, unless [Log.MaxEntries] says otherwise.
	MaxEntries = 100_000
	// OutsideRetention is how long an entry of agents, or of a refused credential, is kept at most.
	OutsideRetention = 90 * 24 * time.Hour

	// every is the time between two searches for entries that are too old.
	every = 10 * time.Minute
)

// Log is the entries of a database. It is safe for concurrent use.
type Log struct {
	// Database has the entries. Required.
	Database *db.Database
	// Retention is how long an entry is kept. Zero: [Retention].
	Retention time.Duration
	// MaxEntries is how many entries of each log are kept, the newest. Zero: [MaxEntries].
	// There may be more for the ten minutes between two removals.
	MaxEntries int
	// Logger gets a line when entries are removed. Nil: nothing is logged.
	Logger *slog.Logger
}

// Filter chooses entries. The zero value chooses all.
type Filter struct {
	// Log is one of [Logs]. Empty: any.
	Log string
	// Kind and Name are the object. A Name chooses what belongs to the object, too. Empty:
	// any.
	Kind, Name string
	// Verb is the operation. Empty: any.
	Verb string
	// Actor is the client that made the change: the whole actor, or the part before its first slash.
	// Empty: any.
	Actor string
	// Since is the time of the oldest. Zero: no limit.
	Since time.Time
	// Before is the id that all are older than. Empty: no limit.
	Before string
}

// List returns the chosen entries, the newest first, at most limit, and whether there are
// older ones.
func (l *Log) List(ctx context.Context, f Filter, limit int) (list []Entry, more bool, err error) {
	where, args := f.where()
	query := `SELECT id, log, at, actor, source, verb, kind, name, outcome, request_id FROM audit` + where + ` ORDER BY id DESC LIMIT ?`
	list, err = db.List(ctx, l.Database, query, append(args, limit+1), func(rows *sql.Rows, e *Entry) error {
		var at int64
		err := rows.Scan(&e.ID, &e.Log, &at, &e.Actor, &e.From, &e.Verb, &e.Kind, &e.Name, &e.Outcome, &e.RequestID)
		e.At = time.UnixMilli(at).UTC()
		return err
	})
	if err != nil {
		return nil, false, fmt.Errorf("audit: %w", err)
	}
	if len(list) > limit {
		return list[:limit], true, nil
	}
	return list, false, nil
}

func (f Filter) where() (text string, args []any) {
	var conditions []string
	add := func(condition string, values ...any) {
		conditions, args = append(conditions, condition), append(args, values...)
	}
	if f.Log != "" {
		add(`log = ?`, f.Log)
	}
	if f.Kind != "" {
		add(`kind = ?`, f.Kind)
	}
	if f.Name != "" {
		below := f.Name + "/"
		add(`(name = ? OR substr(name, 1, ?) = ?)`, f.Name, len(below), below)
	}
	if f.Verb != "" {
		add(`verb = ?`, f.Verb)
	}
	switch below := f.Actor + "/"; {
	case strings.Contains(f.Actor, "/"): // whose name may have more of them
		add(`actor = ?`, f.Actor)
	case f.Actor != "":
		add(`(actor = ? OR substr(actor, 1, ?) = ?)`, f.Actor, len(below), below)
	}
	if !f.Since.IsZero() {
		add(`at >= ?`, f.Since.UnixMilli())
	}
	if f.Before != "" {
		add(`id < ?`, f.Before)
	}
	if len(conditions) == 0 {
		return "", nil
	}
	return ` WHERE ` + strings.Join(conditions, ` AND `), args
}

// Prune removes the entries of each log that are too old or too many, and returns how many.
// With nothing to remove it only reads.
func (l *Log) Prune(ctx context.Context) (n int64, err error) {
	for _, log := range Logs() {
		removed, err := l.prune(ctx, log)
		if err != nil {
			return n, fmt.Errorf("prune audit: %w", err)
		}
		n += removed
	}
	return n, nil
}

func (l *Log) prune(ctx context.Context, log string) (n int64, err error) {
	retention := cmp.Or(l.Retention, Retention)
	if log == Agents || log == Refused {
		retention = min(retention, OutsideRetention)
	}
	then := time.Now().Add(-retention).UnixMilli()
	most := cmp.Or(l.MaxEntries, MaxEntries)
	var count int
	var oldest sql.NullInt64
	err = l.Database.Read(ctx, func(tx *db.Tx) error {
		return tx.QueryRowContext(ctx, `SELECT count(*), min(at) FROM audit WHERE log = ?`, log).Scan(&count, &oldest)
	})
	if err != nil || count == 0 || count <= most && oldest.Int64 >= then {
		return 0, err
	}
	err = l.Database.Write(ctx, func(tx *db.Tx) error {
		n = 0
		n, err = tx.Affected(
			ctx,
			`DELETE FROM audit WHERE log = ? AND (at < ? OR id < (SELECT min(id) FROM (SELECT id FROM audit WHERE log = ? ORDER BY id DESC LIMIT ?) kept))`,
			log,
			then,
			log,
			most,
		)
		return err
	})
	return n, err
}

// Start prunes every few minutes until ctx ends.
func (l *Log) Start(ctx context.Context) error {
	logger := cmp.Or(l.Logger, slog.New(slog.DiscardHandler))
	loop := reconcile.Loop{
		Name: "audit", Interval: every, Jitter: 0.1, Logger: logger,
		Reconciler: reconcile.Func(func(ctx context.Context) (reconcile.Result, error) {
			n, err := l.Prune(ctx)
			if n > 0 {
				logger.InfoContext(ctx, "audit entries removed", slog.Int64("entries", n))
			}
			return reconcile.Result{}, err
		}),
	}
	return loop.Start(ctx)
}
