package audit

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/db"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

const (
	// Retention is how long an entry is kept, unless [Log.Retention] says otherwise.
	Retention = 365 * 24 * time.Hour
	// MaxEntries is how many are kept, unless [Log.MaxEntries] says otherwise.
	MaxEntries = 100_000

	// every is the time between two looks for what is too old.
	every = 10 * time.Minute
)

// Log is the entries of a database. It is safe for concurrent use.
type Log struct {
	// Database has the entries. Required.
	Database *db.Database
	// Retention is how long an entry is kept. Zero: [Retention].
	Retention time.Duration
	// MaxEntries is how many entries are kept, the newest. Zero: [MaxEntries]. There may be
	// more for the ten minutes between two removals.
	MaxEntries int
	// Logger gets a line when entries are removed. Nil: nothing is logged.
	Logger *slog.Logger
}

// Filter chooses entries. The zero value chooses all.
type Filter struct {
	// Kind and Name are the object. A Name chooses what belongs to the object, too. Empty:
	// any.
	Kind, Name string
	// Actor is the client that changed it: all of it, or what is before its slash. Empty: any.
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
	err = l.Database.Read(ctx, func(tx *db.Tx) error {
		rows, err := tx.QueryContext(ctx, `SELECT id, at, actor, verb, kind, name, outcome, request_id FROM audit`+where+` ORDER BY id DESC LIMIT ?`, append(args, limit+1)...)
		list, err = db.Collect(rows, err, func(rows *sql.Rows, e *Entry) error {
			var at int64
			err := rows.Scan(&e.ID, &at, &e.Actor, &e.Verb, &e.Kind, &e.Name, &e.Outcome, &e.RequestID)
			e.At = time.UnixMilli(at).UTC()
			return err
		})
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
	if f.Kind != "" {
		add(`kind = ?`, f.Kind)
	}
	if f.Name != "" {
		below := f.Name + "/"
		add(`(name = ? OR substr(name, 1, ?) = ?)`, f.Name, len(below), below)
	}
	if f.Actor != "" {
		below := f.Actor + "/"
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

// Prune removes the entries that are too old or too many, and returns how many. With
// nothing to remove it only reads.
func (l *Log) Prune(ctx context.Context) (n int64, err error) {
	then := time.Now().Add(-cmp.Or(l.Retention, Retention)).UnixMilli()
	most := cmp.Or(l.MaxEntries, MaxEntries)
	var count int
	var oldest sql.NullInt64
	err = l.Database.Read(ctx, func(tx *db.Tx) error {
		return tx.QueryRowContext(ctx, `SELECT count(*), min(at) FROM audit`).Scan(&count, &oldest)
	})
	if err == nil && count > 0 && (count > most || oldest.Int64 < then) {
		err = l.Database.Write(ctx, func(tx *db.Tx) error {
			n = 0
			result, err := tx.ExecContext(ctx, `DELETE FROM audit WHERE at < ? OR id < (SELECT min(id) FROM (SELECT id FROM audit ORDER BY id DESC LIMIT ?) kept)`, then, most)
			if err != nil {
				return err
			}
			n, err = result.RowsAffected()
			return err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("prune audit: %w", err)
	}
	return n, nil
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
