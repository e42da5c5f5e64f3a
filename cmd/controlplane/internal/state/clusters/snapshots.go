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
	// wrong is set of a record that is not stored.
	wrong starbase.FieldError
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
		wrong = append(wrong, wrongSnapshot{record.place, record.SnapshotID, adminapi.Invalid(record.wrong)})
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
		records = append(records, TakenSnapshot{usage.Record{Snapshot: record, TakenAt: taken}, place, starbase.FieldError{}})
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
// the records about projects that live on another cluster, or that would bill a workspace without
// a project, which are not stored.
func (s *Store) SaveSnapshots(
	ctx context.Context,
	clusterID string,
	records []TakenSnapshot,
) (accepted int, foreign []TakenSnapshot, err error) {
	err = s.Database.Write(ctx, func(tx *db.Tx) error {
		foreign = nil
		projects, err := billedProjects(ctx, tx, records)
		if err != nil {
			return err
		}
		strangers, err := strangers(ctx, tx, projects, records)
		if err != nil {
			return err
		}
		var own []usage.Record
		for _, record := range records {
			project, known := projects[record.ProjectID]
			switch {
			case known && project.clusterID != clusterID:
				record.wrong = starbase.FieldError{Field: "project_id", Value: fmt.Sprintf("%q", record.ProjectID), Want: "a project of this cluster"}
				foreign = append(foreign, record)
			case strangers[record.WorkspaceID] && project.settled(record.WorkspaceID):
				record.wrong = starbase.FieldError{Field: "workspace_id", Value: fmt.Sprintf("%q", record.WorkspaceID), Want: "that of the project"}
				foreign = append(foreign, record)
			default:
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

// billedProject is where the project of a record lives, and who pays for it. The zero value is one that was dropped,
// and may have lived here.
type billedProject struct {
	id, clusterID, workspaceID string
	changed                    time.Time
}

// settled reports whether a record may not have another workspace. The one of before a change is in the records that
// the agent kept, and an agent that was cut off goes on with it.
func (p billedProject) settled(workspaceID string) bool {
	return p.id != "" && p.workspaceID != workspaceID && time.Since(p.changed) > starbase.SnapshotMaxAge
}

// billedProjects returns the projects of the records that are known.
func billedProjects(ctx context.Context, tx *db.Tx, records []TakenSnapshot) (map[string]billedProject, error) {
	ids := map[string]bool{}
	for i := range records {
		ids[records[i].ProjectID] = true
	}
	projects := map[string]billedProject{}
	for some := range slices.Chunk(slices.Sorted(maps.Keys(ids)), askedProjects) {
		args := make([]any, 0, len(some))
		for _, id := range some {
			args = append(args, id)
		}
		rows, err := tx.QueryContext(
			ctx,
			`SELECT id, cluster_id, workspace_id, updated_at FROM projects WHERE id IN (?`+strings.Repeat(", ?", len(some)-1)+`)`,
			args...)
		found, err := db.Collect(rows, err, func(rows *sql.Rows, p *billedProject) error {
			var changed int64
			err := rows.Scan(&p.id, &p.clusterID, &p.workspaceID, &changed)
			p.changed = time.UnixMilli(changed)
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, p := range found {
			projects[p.id] = p
		}
	}
	return projects, nil
}

// strangers returns the workspaces without a project. It checks the records whose workspace differs from
// that project's own. An agent sends no such record, so the database is rarely asked.
func strangers(ctx context.Context, tx *db.Tx, projects map[string]billedProject, records []TakenSnapshot) (map[string]bool, error) {
	unknown := map[string]bool{}
	for i := range records {
		if id := records[i].WorkspaceID; projects[records[i].ProjectID].settled(id) {
			unknown[id] = true
		}
	}
	for some := range slices.Chunk(slices.Sorted(maps.Keys(unknown)), askedProjects) {
		args := make([]any, 0, len(some))
		for _, id := range some {
			args = append(args, id)
		}
		rows, err := tx.QueryContext(
			ctx,
			`SELECT DISTINCT workspace_id FROM projects WHERE workspace_id IN (?`+strings.Repeat(", ?", len(some)-1)+`)`,
			args...)
		known, err := db.Collect(rows, err, func(rows *sql.Rows, id *string) error { return rows.Scan(id) })
		if err != nil {
			return nil, err
		}
		for _, id := range known {
			delete(unknown, id)
		}
	}
	return unknown, nil
}
