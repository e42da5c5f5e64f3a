package clusters

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/usage"
)

// MaxCapacityPoints is how many capacity reports of a cluster are kept, the
// newest: one a minute for [starbase.CapacityRetention].
const MaxCapacityPoints = 2880

// CapacityPoint is how full a cluster was at one time.
type CapacityPoint struct {
	// TakenAt is when the agent counted.
	TakenAt time.Time
	// Pods and SoftLimit are what it counted, and what the cluster is meant for.
	Pods, SoftLimit int64
}

func (s *Server) postCapacity(w http.ResponseWriter, r *http.Request) error {
	clusterID := r.PathValue("cluster_id")
	var report starbase.CapacityReport
	// An agent may be newer than this server and send more.
	if err := adminapi.Decode(w, r, &report, false); err != nil {
		return err
	}
	taken, fields := report.Validate(clusterID, time.Now())
	if len(fields) > 0 {
		return adminapi.Invalid(fields...)
	}
	point := CapacityPoint{TakenAt: taken, Pods: *report.CurrentPodCount, SoftLimit: *report.SoftLimit}
	if err := s.store.SaveCapacity(r.Context(), clusterID, point); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// SaveCapacity keeps the point. A second one of the same millisecond replaces
// the first, so a report may be sent again. What is older than
// [starbase.CapacityRetention], or not among the newest [MaxCapacityPoints] of
// the cluster, is forgotten.
func (s *Store) SaveCapacity(ctx context.Context, clusterID string, point CapacityPoint) error {
	err := s.Database.Write(ctx, func(tx *db.Tx) error {
		// Locks the cluster, so that no two writers count at once.
		if _, err := clusterByID(ctx, tx, clusterID); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO capacity_reports (cluster_id, taken_at, current_pod_count, soft_limit) VALUES (?, ?, ?, ?)
			ON CONFLICT (cluster_id, taken_at) DO UPDATE SET current_pod_count = excluded.current_pod_count, soft_limit = excluded.soft_limit`,
			clusterID, point.TakenAt.UnixMilli(), point.Pods, point.SoftLimit); err != nil {
			return err
		}
		if err := usage.Report(ctx, tx, clusterID, point.TakenAt, point.Pods); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `DELETE FROM capacity_reports WHERE cluster_id = ? AND (taken_at < ? OR taken_at <=
			(SELECT taken_at FROM capacity_reports WHERE cluster_id = ? ORDER BY taken_at DESC LIMIT 1 OFFSET ?))`,
			clusterID, time.Now().Add(-starbase.CapacityRetention).UnixMilli(), clusterID, MaxCapacityPoints)
		return err
	})
	if err != nil {
		return fmt.Errorf("save capacity of cluster %s: %w", clusterID, err)
	}
	return nil
}
