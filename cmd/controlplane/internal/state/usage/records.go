package usage

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// Record is a valid billing record: a pod at one minute.
type Record struct {
	starbase.Snapshot
	// TakenAt is SnapshotTimestamp.
	TakenAt time.Time
}

// keptMinutes is how long it is known how many records there are about a minute.
const keptMinutes = 25 * time.Hour

// Save stores the records of a cluster, each SnapshotID once, adds those that are new to the
// sums, and returns how many these are.
func Save(ctx context.Context, tx *db.Tx, clusterID string, records []Record) (stored int, err error) {
	now := time.Now()
	// In one order, or two agents of a cluster would wait for each other.
	records = slices.SortedFunc(slices.Values(records), func(a, b Record) int { return strings.Compare(a.SnapshotID, b.SnapshotID) })
	var fresh []Record
	for rows := range slices.Chunk(records, statementRows) {
		inserted, err := insert(ctx, tx, clusterID, rows, now)
		if err != nil {
			return 0, err
		}
		fresh = append(fresh, inserted...)
	}
	if err := countMinutes(ctx, tx, clusterID, fresh, now); err != nil {
		return 0, err
	}
	return len(fresh), add(ctx, tx, clusterID, fresh)
}

// insert stores the rows that are not stored, and returns these as they are stored. The conflict has
// no columns, because the table of PostgreSQL has no key, but its partitions have.
func insert(ctx context.Context, tx *db.Tx, clusterID string, rows []Record, now time.Time) (stored []Record, err error) {
	const row = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)"
	args := make([]any, 0, len(rows)*13)
	for i := range rows {
		r := &rows[i]
		args = append(args, r.SnapshotID, clusterID, r.WorkspaceID, r.ProjectID, r.Environment, r.ServiceID, r.PodID,
			r.Tier, r.Phase, r.TakenAt.UnixMilli(), r.CPUMillis, r.MemoryBytes, now.UnixMilli())
	}
	inserted, err := tx.QueryContext(ctx, `INSERT INTO snapshots (snapshot_id, cluster_id, workspace_id, project_id, environment, service_id,
		pod_id, tier, phase, taken_at, cpu_millis, memory_bytes, received_at, summed) VALUES `+strings.Repeat(row+", ", len(rows)-1)+row+`
		ON CONFLICT DO NOTHING
		RETURNING workspace_id, project_id, environment, service_id, phase, taken_at, cpu_millis, memory_bytes`, args...)
	return db.Collect(inserted, err, func(rows *sql.Rows, r *Record) error {
		var millis int64
		err := rows.Scan(&r.WorkspaceID, &r.ProjectID, &r.Environment, &r.ServiceID, &r.Phase, &millis, &r.CPUMillis, &r.MemoryBytes)
		r.TakenAt = time.UnixMilli(millis).UTC()
		return err
	})
}

// countMinutes adds records to the counts of their minutes.
func countMinutes(ctx context.Context, tx *db.Tx, clusterID string, records []Record, now time.Time) error {
	oldest, minutes := now.Add(-keptMinutes), map[int64]int{}
	for i := range records {
		if at := records[i].TakenAt.Truncate(time.Minute); !at.Before(oldest) {
			minutes[at.UnixMilli()]++
		}
	}
	// In one order, as the records.
	for _, minute := range slices.Sorted(maps.Keys(minutes)) {
		if _, err := tx.ExecContext(ctx, `INSERT INTO snapshot_minutes (cluster_id, minute, records) VALUES (?, ?, ?)
			ON CONFLICT (cluster_id, minute) DO UPDATE SET records = snapshot_minutes.records + excluded.records`, clusterID, minute, minutes[minute]); err != nil {
			return err
		}
	}
	return nil
}
