package usage

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/internal/pause"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/statesync/sqlstore"
)

const (
	// RecordRetention is how long a billing record is kept, if [Maintainer] does not say otherwise:
	// an invoice of a month can be looked into.
	RecordRetention = 62 * 24 * time.Hour
	// Retention is how long the sums are kept, if [Maintainer] does not say otherwise: an invoice
	// can be made of each month of a year.
	Retention = 400 * 24 * time.Hour
	// MinRetention is how long it takes until the sums of a day are final.
	MinRetention = day + starbase.SnapshotMaxAge

	// every is the time between two searches for what is too old, and slice is how many rows
	// one transaction changes: agents, which write at the same time, wait that long at most.
	every = time.Minute
	slice = 1000
)

// Maintainer adds to the sums what a program of before has stored, and removes what is too old:
// records by the day on PostgreSQL, all else a slice at a time. Start one in each replica.
type Maintainer struct {
	// Database has the tables. Required.
	Database *db.Database
	// RecordRetention is how long a billing record is kept, Retention how long the sums are.
	// Zero: [RecordRetention] and [Retention].
	RecordRetention, Retention time.Duration
	// Logger gets a line when something is removed. Nil: nothing is logged.
	Logger *slog.Logger
	// Failures counts the passes that fail; see [NewFailures]. Nil: none does.
	Failures prometheus.Counter

	told sync.Once // that there are no partitions
}

// Prune removes what is too old. With nothing to remove it only reads.
func (m *Maintainer) Prune(ctx context.Context) error {
	now, sums := time.Now(), cmp.Or(m.Retention, Retention)
	errs := []error{m.Partition(ctx)}
	tables, err := m.sliced(ctx)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, table := range append(tables, []table{
		{"snapshot_minutes", "cluster_id, minute", "minute", now.Add(-keptMinutes)},
		{"usage_days", "day, cluster_id, workspace_id, project_id, environment, service_id, phase", "day", now.Add(-sums).Add(-day)},
		{"usage_hours", "cluster_id, hour", "hour", now.Add(-sums).Add(-time.Hour)},
	}...) {
		n, err := m.prune(ctx, table.name, table.keys, table.time, table.before)
		if n > 0 && m.Logger != nil {
			m.Logger.InfoContext(ctx, "usage removed", slog.String("table", table.name), slog.Int64("rows", n), slog.Time("before", table.before))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("prune %s: %w", table.name, err))
		}
	}
	return errors.Join(errs...)
}

// table is one of which rows are removed that are older than a time.
type table struct {
	name, keys, time string
	before           time.Time
}

// partitioned reports whether the records of a day are a table of their own.
func (m *Maintainer) partitioned() bool { return m.Database.Log.Dialect == sqlstore.PostgreSQL }

// recordsBefore is the time before which no record is kept.
func (m *Maintainer) recordsBefore(now time.Time) time.Time {
	return now.Add(-cmp.Or(m.RecordRetention, RecordRetention))
}

// sliced returns the tables of records that are removed one by one, but for what is in no sum.
func (m *Maintainer) sliced(ctx context.Context) (tables []table, err error) {
	names := []string{"snapshots"}
	if m.partitioned() {
		if names, err = m.undivided(ctx); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		tables = append(tables, table{name, "snapshot_id, taken_at", "summed = 1 AND taken_at", m.recordsBefore(time.Now())})
	}
	return tables, nil
}

// prune removes the rows of a table of before that time.
func (m *Maintainer) prune(ctx context.Context, table, keys, column string, before time.Time) (n int64, err error) {
	old := table + ` WHERE ` + column + ` < ?`
	return m.inSlices(ctx, old, []any{before.UnixMilli()}, func(tx *db.Tx) (int64, error) {
		return tx.Affected(ctx, `DELETE FROM `+table+` WHERE (`+keys+`) IN (SELECT `+keys+` FROM `+old+` LIMIT ?)`, before.UnixMilli(), slice)
	})
}

// Sum adds the records to the sums that are in none: a replica of before, which runs beside this
// one, stores records alone. With nothing to add it only reads.
func (m *Maintainer) Sum(ctx context.Context) error {
	_, err := m.inSlices(ctx, `snapshots WHERE summed = 0`, nil, func(tx *db.Tx) (int64, error) { return sumSlice(ctx, tx) })
	if err != nil {
		return fmt.Errorf("sum records: %w", err)
	}
	return nil
}

// inSlices runs do, each time in a transaction of its own, until there are no such rows any
// more, and returns the sum of what it returned.
func (m *Maintainer) inSlices(ctx context.Context, rows string, args []any, do func(*db.Tx) (int64, error)) (n int64, err error) {
	for {
		var found, done int64
		begin := time.Now()
		if err := m.Database.Read(ctx, func(tx *db.Tx) error {
			return tx.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT 1 FROM `+rows+` LIMIT 1) found`, args...).Scan(&found)
		}); err != nil || found == 0 {
			return n, err
		}
		if err := m.Database.Write(ctx, func(tx *db.Tx) (err error) {
			done, err = do(tx)
			return err
		}); err != nil {
			return n, err
		}
		n += done
		// Agents, which write at the same time, have as much of it.
		if !pause.For(ctx, time.Since(begin)) {
			return n, ctx.Err()
		}
	}
}

// sumSlice adds some of the records that are in no sum, and returns how many.
func sumSlice(ctx context.Context, tx *db.Tx) (int64, error) {
	type row struct {
		clusterID string
		Record
	}
	rows, err := tx.QueryContext(ctx, `SELECT snapshot_id, cluster_id, workspace_id, project_id, environment, service_id, phase, taken_at,
		cpu_millis, memory_bytes FROM snapshots WHERE summed = 0 ORDER BY taken_at LIMIT ?`+tx.Lock, slice)
	found, err := db.Collect(rows, err, func(rows *sql.Rows, r *row) error {
		var millis int64
		err := rows.Scan(&r.SnapshotID, &r.clusterID, &r.WorkspaceID, &r.ProjectID, &r.Environment, &r.ServiceID, &r.Phase, &millis,
			&r.CPUMillis, &r.MemoryBytes)
		r.TakenAt = time.UnixMilli(millis).UTC()
		return err
	})
	if err != nil {
		return 0, err
	}
	clusters := map[string][]Record{}
	for _, r := range found {
		clusters[r.clusterID] = append(clusters[r.clusterID], r.Record)
	}
	for some := range slices.Chunk(found, statementRows) {
		args := make([]any, 0, len(some))
		for i := range some {
			args = append(args, some[i].SnapshotID)
		}
		if _, err := tx.ExecContext(
			ctx,
			`UPDATE snapshots SET summed = 1 WHERE snapshot_id IN (?`+strings.Repeat(", ?", len(some)-1)+`)`,
			args...); err != nil {
			return 0, err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(clusters)) {
		if err := add(ctx, tx, id, clusters[id]); err != nil {
			return 0, err
		}
	}
	return int64(len(found)), nil
}

// NewFailures returns a registered counter for [Maintainer].
func NewFailures(registerer prometheus.Registerer) (prometheus.Counter, error) {
	failures := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "trueup_controlplane_usage_passes_failed_total",
		Help: "Passes over the billing records that could not add to the sums, make or remove a partition, or remove what is too old.",
	})
	return failures, registerer.Register(failures)
}

// Start sums and prunes every minute until ctx ends.
func (m *Maintainer) Start(ctx context.Context) error {
	loop := reconcile.Loop{
		Name: "usage", Interval: every, Jitter: 0.1, Logger: cmp.Or(m.Logger, slog.New(slog.DiscardHandler)),
		Reconciler: reconcile.Func(func(ctx context.Context) (reconcile.Result, error) {
			err := errors.Join(m.Sum(ctx), m.Prune(ctx))
			if err != nil && m.Failures != nil {
				m.Failures.Inc()
			}
			return reconcile.Result{}, err
		}),
	}
	return loop.Start(ctx)
}
