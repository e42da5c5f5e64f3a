package server

import (
	"context"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/db"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/starbase"
)

// tombstoneAge is how long a tombstone is kept at least.
const tombstoneAge = 7 * 24 * time.Hour

// dropTombstones drops the tombstones of services that a complete report shows to be
// gone: it is about the generation that deleted them or a newer one, and no report
// mentions them. It returns how many it dropped; any at all raise the generation,
// because the agent is served another body.
func dropTombstones(ctx context.Context, tx *db.Tx, clusterID string, report starbase.StatusReport) (int64, error) {
	result, err := tx.ExecContext(ctx, `DELETE FROM services WHERE deleted = 1 AND generation <= ? AND updated_at <= ?
		AND project_id IN (SELECT id FROM projects WHERE cluster_id = ?)
		AND NOT EXISTS (SELECT 1 FROM service_status r WHERE r.cluster_id = ? AND r.project_id = services.project_id
			AND r.environment = services.environment AND r.service_id = services.service_id)`,
		report.Generation, time.Now().Add(-tombstoneAge).UnixMilli(), clusterID, clusterID)
	if err != nil {
		return 0, err
	}
	dropped, err := result.RowsAffected()
	if err != nil || dropped == 0 {
		return 0, err
	}
	_, err = raise(ctx, tx, clusterID)
	return dropped, err
}
