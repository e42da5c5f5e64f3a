package clusters

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// SnapshotRetention is how long a billing record is kept, if [Config] does not say
// otherwise: an invoice of a month can be made, and looked into, from the records.
const SnapshotRetention = 62 * 24 * time.Hour

const (
	// snapshotRows is how many rows one statement has.
	snapshotRows = 500
	// maxShownFields is how many wrong fields an answer lists.
	maxShownFields = 20
)

// TakenSnapshot is a valid billing record, and the time it is about.
type TakenSnapshot struct {
	starbase.Snapshot
	// TakenAt is SnapshotTimestamp.
	TakenAt time.Time

	place int // in the batch
}

// postSnapshots stores the records that are right and lists the others. A batch without
// a right one is refused.
func (s *Server) postSnapshots(w http.ResponseWriter, r *http.Request) error {
	clusterID := r.PathValue("cluster_id")
	var batch starbase.SnapshotBatch
	if err := adminapi.DecodeBatch(w, r, &batch); err != nil {
		return err
	}
	if batch.Snapshots == nil {
		return adminapi.Invalid(starbase.FieldError{Field: "snapshots", Value: "missing", Want: "a list of records"})
	}
	records, wrong := s.readSnapshots(clusterID, batch.Snapshots)
	accepted, foreign, err := s.store.SaveSnapshots(r.Context(), clusterID, records, s.retention)
	if err != nil {
		return err
	}
	for _, record := range foreign {
		wrong = append(wrong, wrongSnapshot{record.place, record.SnapshotID, adminapi.Invalid(starbase.FieldError{
			Field: "project_id", Value: fmt.Sprintf("%q", record.ProjectID), Want: "a project of this cluster",
		})})
	}
	if len(wrong) > 0 && len(wrong) == len(batch.Snapshots) {
		return refuseAll(wrong)
	}
	receipt := starbase.SnapshotReceipt{
		Accepted: accepted, Duplicates: len(records) - len(foreign) - accepted, Rejected: make([]starbase.RejectedSnapshot, 0, len(wrong)),
	}
	slices.SortFunc(wrong, func(a, b wrongSnapshot) int { return cmp.Compare(a.place, b.place) })
	for _, record := range wrong {
		receipt.Rejected = append(receipt.Rejected, starbase.RejectedSnapshot{SnapshotID: record.id, Reason: record.reason()})
	}
	s.snapshots.WithLabelValues("accepted").Add(float64(receipt.Accepted))
	s.snapshots.WithLabelValues("duplicate").Add(float64(receipt.Duplicates))
	s.snapshots.WithLabelValues("rejected").Add(float64(len(receipt.Rejected)))
	return adminapi.WriteJSON(w, http.StatusOK, receipt)
}

// wrongSnapshot is a record that is rejected.
type wrongSnapshot struct {
	place int // in the batch
	id    string
	err   error
}

func (w *wrongSnapshot) reason() string {
	text := w.err.Error()
	if answer, ok := errors.AsType[*adminapi.Error](w.err); ok {
		text = answer.Message
	}
	return fmt.Sprintf("snapshots[%d]: %s", w.place, text)
}

// readSnapshots returns the records that are right, and those that are not.
func (s *Server) readSnapshots(clusterID string, list starbase.RawSnapshots) (records []TakenSnapshot, wrong []wrongSnapshot) {
	now := time.Now()
	for place, text := range list {
		record, err := starbase.DecodeSnapshot(text)
		if err != nil {
			wrong = append(wrong, wrongSnapshot{place, shorten(record.SnapshotID), adminapi.Describe(err)})
			continue
		}
		taken, fields := record.Validate(clusterID, now)
		if len(fields) > 0 {
			wrong = append(wrong, wrongSnapshot{place, shorten(record.SnapshotID), adminapi.Invalid(fields...)})
			continue
		}
		records = append(records, TakenSnapshot{record, taken, place})
	}
	return records, wrong
}

// shorten keeps an answer about thousands of records small.
func shorten(id string) string { return strings.ToValidUTF8(id[:min(len(id), 64)], "") }

// refuseAll is the answer to a batch without a record that is right: that to the first
// one, with the fields of more.
func refuseAll(wrong []wrongSnapshot) error {
	answer := adminapi.Error{Status: http.StatusBadRequest, Code: "invalid", Message: wrong[0].reason()}
	for n := range wrong {
		one, ok := errors.AsType[*adminapi.Error](wrong[n].err)
		if !ok {
			continue
		}
		if n == 0 {
			answer.Code = one.Code
		}
		for _, field := range one.Fields {
			field.Field = fmt.Sprintf("snapshots[%d].%s", wrong[n].place, field.Field)
			answer.Fields = append(answer.Fields, field)
		}
		if len(answer.Fields) >= maxShownFields {
			break
		}
	}
	answer.Fields = answer.Fields[:min(len(answer.Fields), maxShownFields)]
	return &answer
}

// SaveSnapshots stores the records of a cluster, each SnapshotID once, and returns how
// many were stored: those that were there before are left as they were. Foreign are
// the records about projects that live on another cluster, which are not stored. Records
// of all clusters that are older than retention are dropped.
func (s *Store) SaveSnapshots(
	ctx context.Context,
	clusterID string,
	records []TakenSnapshot,
	retention time.Duration,
) (accepted int, foreign []TakenSnapshot, err error) {
	now := time.Now()
	err = s.Database.Write(ctx, func(tx *db.Tx) error {
		accepted, foreign = 0, nil
		elsewhere, err := projectsElsewhere(ctx, tx, clusterID, records)
		if err != nil {
			return err
		}
		var own []TakenSnapshot
		for _, record := range records {
			if elsewhere[record.ProjectID] {
				foreign = append(foreign, record)
			} else {
				own = append(own, record)
			}
		}
		// In one order, or two agents of a cluster would wait for each other.
		slices.SortFunc(own, func(a, b TakenSnapshot) int { return strings.Compare(a.SnapshotID, b.SnapshotID) })
		minutes := map[int64]int{}
		for rows := range slices.Chunk(own, snapshotRows) {
			stored, err := insertSnapshots(ctx, tx, clusterID, rows, now)
			if err != nil {
				return err
			}
			accepted += len(stored)
			for _, at := range stored {
				minutes[at.Truncate(time.Minute).UnixMilli()]++
			}
		}
		if err := countMinutes(ctx, tx, clusterID, minutes, now); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM snapshots WHERE taken_at < ?`, now.Add(-retention).UnixMilli())
		return err
	})
	if err != nil {
		return 0, nil, fmt.Errorf("save snapshots of cluster %s: %w", clusterID, err)
	}
	return accepted, foreign, nil
}

// insertSnapshots stores the rows that are not stored, and returns the times that those
// are about.
func insertSnapshots(
	ctx context.Context,
	tx *db.Tx,
	clusterID string,
	rows []TakenSnapshot,
	now time.Time,
) (stored []time.Time, err error) {
	const row = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
	args := make([]any, 0, len(rows)*13)
	for i := range rows {
		r := &rows[i]
		args = append(args, r.SnapshotID, clusterID, r.WorkspaceID, r.ProjectID, r.Environment, r.ServiceID, r.PodID,
			r.Tier, r.Phase, r.TakenAt.UnixMilli(), r.CPUMillis, r.MemoryBytes, now.UnixMilli())
	}
	inserted, err := tx.QueryContext(ctx, `INSERT INTO snapshots (snapshot_id, cluster_id, workspace_id, project_id, environment, service_id,
		pod_id, tier, phase, taken_at, cpu_millis, memory_bytes, received_at) VALUES `+strings.Repeat(row+", ", len(rows)-1)+row+
		` ON CONFLICT (snapshot_id) DO NOTHING RETURNING taken_at`, args...)
	return db.Collect(inserted, err, func(rows *sql.Rows, at *time.Time) error {
		var millis int64
		err := rows.Scan(&millis)
		*at = time.UnixMilli(millis)
		return err
	})
}

// keptMinutes is how long it is known how many records there are about a minute.
const keptMinutes = 25 * time.Hour

// countMinutes adds records to the counts of their minutes.
func countMinutes(ctx context.Context, tx *db.Tx, clusterID string, minutes map[int64]int, now time.Time) error {
	oldest := now.Add(-keptMinutes).UnixMilli()
	// In one order, as the records.
	for _, minute := range slices.Sorted(maps.Keys(minutes)) {
		if minute < oldest {
			continue
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO snapshot_minutes (cluster_id, minute, records) VALUES (?, ?, ?)
			ON CONFLICT (cluster_id, minute) DO UPDATE SET records = snapshot_minutes.records + excluded.records`, clusterID, minute, minutes[minute]); err != nil {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, `DELETE FROM snapshot_minutes WHERE minute < ?`, oldest)
	return err
}

// projectsElsewhere returns the projects of the records that live on another cluster.
// One that is not known, since it was dropped, may have lived here.
func projectsElsewhere(ctx context.Context, tx *db.Tx, clusterID string, records []TakenSnapshot) (map[string]bool, error) {
	seen := map[string]bool{}
	for i := range records {
		seen[records[i].ProjectID] = true
	}
	ids := make([]string, 0, len(seen))
	for id := range seen {
		ids = append(ids, id)
	}
	elsewhere := map[string]bool{}
	for some := range slices.Chunk(ids, snapshotRows) {
		args := []any{clusterID}
		for _, id := range some {
			args = append(args, id)
		}
		rows, err := tx.QueryContext(
			ctx,
			`SELECT id FROM projects WHERE cluster_id <> ? AND id IN (?`+strings.Repeat(", ?", len(some)-1)+`)`,
			args...)
		found, err := db.Collect(rows, err, func(rows *sql.Rows, id *string) error { return rows.Scan(id) })
		if err != nil {
			return nil, err
		}
		for _, id := range found {
			elsewhere[id] = true
		}
	}
	return elsewhere, nil
}
