package clusters

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/usage"
)

const (
	// askedProjects is how many projects one statement asks for.
	askedProjects = 500
	// maxShownFields is how many wrong fields an answer lists.
	maxShownFields = 20
)

// TakenSnapshot is a valid billing record, and its place in the batch.
type TakenSnapshot struct {
	usage.Record
	place int
}

// postSnapshots stores the records that are right and lists the others. A batch without
// a right one is refused.
func (s *Server) postSnapshots(w http.ResponseWriter, r *http.Request) error {
	clusterID := r.PathValue("cluster_id")
	var batch starbase.SnapshotBatch
	if err := adminapi.Decode(w, r, &batch, false); err != nil {
		return err
	}
	if batch.Snapshots == nil {
		return adminapi.Invalid(starbase.FieldError{Field: "snapshots", Value: "missing", Want: "a list of records"})
	}
	records, wrong := s.readSnapshots(clusterID, batch.Snapshots)
	accepted, foreign, err := s.store.SaveSnapshots(r.Context(), clusterID, records)
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
		records = append(records, TakenSnapshot{usage.Record{Snapshot: record, TakenAt: taken}, place})
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
// the records about projects that live on another cluster, which are not stored.
func (s *Store) SaveSnapshots(
	ctx context.Context,
	clusterID string,
	records []TakenSnapshot,
) (accepted int, foreign []TakenSnapshot, err error) {
	err = s.Database.Write(ctx, func(tx *db.Tx) error {
		foreign = nil
		elsewhere, err := projectsElsewhere(ctx, tx, clusterID, records)
		if err != nil {
			return err
		}
		var own []usage.Record
		for _, record := range records {
			if elsewhere[record.ProjectID] {
				foreign = append(foreign, record)
			} else {
				own = append(own, record.Record)
			}
		}
		accepted, err = usage.Save(ctx, tx, clusterID, own)
		return err
	})
	if err != nil {
		return 0, nil, fmt.Errorf("save snapshots of cluster %s: %w", clusterID, err)
	}
	return accepted, foreign, nil
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
	for some := range slices.Chunk(ids, askedProjects) {
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
