package clusters

import (
	"context"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// tombstoneAge is how long a tombstone is kept at least.
const tombstoneAge = 7 * 24 * time.Hour

// dropped counts the tombstones that a report has ended.
type dropped struct{ services, projects int64 }

// dropTombstones drops the tombstones of services and projects that a complete report
// shows to be gone: it is about the generation that deleted them or a newer one, and no
// report mentions them. A project needs in addition that no service of it is kept. It
// returns how many it dropped; any at all raise the generation, because the agent is
// served another body.
func dropTombstones(ctx context.Context, tx *db.Tx, clusterID string, report starbase.StatusReport) (n dropped, err error) {
	then := time.Now().Add(-tombstoneAge).UnixMilli()
	n.services, err = tx.Affected(ctx, `DELETE FROM services WHERE deleted = 1 AND generation <= ? AND updated_at <= ?
		AND project_id IN (SELECT id FROM projects WHERE cluster_id = ?)
		AND NOT EXISTS (SELECT 1 FROM service_status r WHERE r.cluster_id = ? AND r.project_id = services.project_id
			AND r.environment = services.environment AND r.service_id = services.service_id)`,
		report.Generation, then, clusterID, clusterID)
	if err != nil {
		return n, err
	}
	// One statement for all: there may be thousands.
	query := `DELETE FROM projects WHERE cluster_id = ? AND deleted = 1 AND generation <= ? AND updated_at <= ?
		AND NOT EXISTS (SELECT 1 FROM services s WHERE s.project_id = projects.id)
		AND NOT EXISTS (SELECT 1 FROM service_status r WHERE r.cluster_id = projects.cluster_id AND r.project_id = projects.id)`
	args := []any{clusterID, report.Generation, then}
	if len(report.LeftProjects) > 0 { // at most starbase.MaxStatusServices
		query += ` AND id NOT IN (?` + strings.Repeat(`, ?`, len(report.LeftProjects)-1) + `)`
		for _, id := range report.LeftProjects {
			args = append(args, id)
		}
	}
	if n.projects, err = tx.Affected(ctx, query, args...); err != nil {
		return n, err
	}
	if n == (dropped{}) {
		return n, nil
	}
	if _, err = raise(ctx, tx, clusterID); err != nil {
		return n, err
	}
	return n, audit.Record(ctx, tx, audit.Change{Verb: "drop-tombstones", Kind: audit.KindCluster, Name: clusterID})
}
