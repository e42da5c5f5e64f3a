package usage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

const (
	// RecordRetention is how long a billing record is kept, if [Pruner] does not say otherwise:
	// an invoice of a month can be looked into.
	RecordRetention = 62 * 24 * time.Hour
	// Retention is how long the sums are kept, if [Pruner] does not say otherwise: an invoice
	// can be made of each month of a year.
	Retention = 400 * 24 * time.Hour
	// MinRetention is how long it takes until the sums of a day are final.
	MinRetention = day + starbase.SnapshotMaxAge

	// every is the time between two searches for what is too old, and slice is how many rows
	// one transaction removes: agents, which write at the same time, wait for no more.
	every = time.Minute
	slice = 5000
)

// Pruner removes what is too old, a slice at a time. Start one in each replica.
type Pruner struct {
	// Database has the tables. Required.
	Database *db.Database
	// RecordRetention is how long a billing record is kept, Retention how long the sums are.
	// Zero: [RecordRetention] and [Retention].
	RecordRetention, Retention time.Duration
	// Logger gets a line when something is removed. Nil: nothing is logged.
	Logger *slog.Logger
}

// Prune removes what is too old. With nothing to remove it only reads.
func (p *Pruner) Prune(ctx context.Context) error {
	now, sums := time.Now(), cmp.Or(p.Retention, Retention)
	var errs []error
	for _, table := range []struct {
		name, keys, time string
		before           time.Time
	}{
		{"snapshots", "snapshot_id", "taken_at", now.Add(-cmp.Or(p.RecordRetention, RecordRetention))},
		{"snapshot_minutes", "cluster_id, minute", "minute", now.Add(-keptMinutes)},
		{"usage_days", "day, cluster_id, workspace_id, project_id, environment, service_id, phase", "day", now.Add(-sums).Add(-day)},
		{"usage_hours", "cluster_id, hour", "hour", now.Add(-sums).Add(-time.Hour)},
	} {
		n, err := p.prune(ctx, table.name, table.keys, table.time, table.before)
		if n > 0 && p.Logger != nil {
			p.Logger.InfoContext(ctx, "usage removed", slog.String("table", table.name), slog.Int64("rows", n), slog.Time("before", table.before))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("prune %s: %w", table.name, err))
		}
	}
	return errors.Join(errs...)
}

// prune removes the rows of a table of before that time.
func (p *Pruner) prune(ctx context.Context, table, keys, column string, before time.Time) (n int64, err error) {
	for {
		var old int64
		if err := p.Database.Read(ctx, func(tx *db.Tx) error {
			return tx.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT 1 FROM `+table+` WHERE `+column+` < ? LIMIT 1) found`, before.UnixMilli()).
				Scan(&old)
		}); err != nil || old == 0 {
			return n, err
		}
		if err := p.Database.Write(ctx, func(tx *db.Tx) (err error) {
			old, err = tx.Affected(ctx, `DELETE FROM `+table+` WHERE (`+keys+`) IN
				(SELECT `+keys+` FROM `+table+` WHERE `+column+` < ? ORDER BY `+column+` LIMIT ?)`, before.UnixMilli(), slice)
			return err
		}); err != nil {
			return n, err
		}
		n += old
	}
}

// Start prunes every minute until ctx ends.
func (p *Pruner) Start(ctx context.Context) error {
	loop := reconcile.Loop{
		Name: "usage", Interval: every, Jitter: 0.1, Logger: cmp.Or(p.Logger, slog.New(slog.DiscardHandler)),
		Reconciler: reconcile.Func(func(ctx context.Context) (reconcile.Result, error) { return reconcile.Result{}, p.Prune(ctx) }),
	}
	return loop.Start(ctx)
}
