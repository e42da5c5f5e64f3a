package clusters

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// Health is a cluster with what shows whether it is well, without its services.
type Health struct {
	Cluster
	// Latest is the newest capacity report; nil for none.
	Latest *CapacityPoint
	// Failing counts the wanted services that have failed or are rejected, and Stuck those that
	// are on their way for too long.
	Failing, Stuck int
	// Since is since when the first of these is so. Zero: unknown.
	Since time.Time
	// Held counts the deleted services of which the agent reports objects.
	Held int

	undated bool // one of them is so since an unknown time
}

// Healths returns every cluster with its health, sorted by region and id, as of one moment. A
// service that is on its way since stuck, or for longer, makes no progress. It reads one row and
// one capacity report of each cluster, and those services that are not healthy or that a
// cluster lags behind with, whatever else there is.
func (s *Store) Healths(ctx context.Context, stuck time.Time) (list []Health, err error) {
	err = s.Database.Read(ctx, func(tx *db.Tx) error {
		rows, err := tx.QueryContext(ctx, `SELECT `+clusterColumns+` FROM clusters ORDER BY region, id`)
		list, err = db.Collect(rows, err, func(rows *sql.Rows, h *Health) error { return scanCluster(rows.Scan, &h.Cluster) })
		if err != nil {
			return err
		}
		byID := make(map[string]*Health, len(list))
		points := make(map[string]*ClusterOverview, len(list))
		for i := range list {
			byID[list[i].ClusterID], points[list[i].ClusterID] = &list[i], &ClusterOverview{}
		}
		if err := unwellServices(ctx, tx, byID, stuck); err != nil {
			return err
		}
		err = latestCapacities(ctx, tx, points)
		for i := range list {
			list[i].Latest = points[list[i].ClusterID].Latest
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("health of clusters: %w", err)
	}
	return list, nil
}

// unwellQueries are the services that are not as wanted: a cluster, whether the service has
// failed, is on its way for too long, or is deleted, and since when it is so.
var unwellQueries = []string{ //nolint:gochecknoglobals // never written to
	// The report is about what is wanted.
	`SELECT r.cluster_id, CASE WHEN s.deleted = 1 AND r.error_class = '` + starbase.ClassUnseen + `' THEN 'unseen'
		WHEN s.deleted = 1 THEN 'held' WHEN r.phase IN ('Failed', 'Rejected') THEN 'failing' ELSE 'stuck' END,
		count(*), min(r.since)
		FROM service_status r JOIN clusters c ON c.id = r.cluster_id JOIN projects p ON p.id = r.project_id AND p.cluster_id = r.cluster_id
		JOIN services s ON s.project_id = r.project_id AND s.environment = r.environment AND s.service_id = r.service_id
		WHERE r.phase <> 'Healthy' AND r.epoch = c.epoch AND r.generation >= s.generation
		AND (s.deleted = 1 OR r.phase IN ('Failed', 'Rejected') OR r.since > 0 AND r.since <= ?) GROUP BY 1, 2`,
	// The report is about what was wanted before. SQLite takes the order of a CROSS JOIN as it is:
	// first the clusters that lag behind.
	`SELECT c.id, 'stuck', count(*), min(s.updated_at) FROM clusters c CROSS JOIN projects p CROSS JOIN services s CROSS JOIN service_status r
		WHERE c.reported_epoch = c.epoch AND c.reported_generation < c.generation AND p.cluster_id = c.id AND s.project_id = p.id
		AND r.cluster_id = c.id AND r.project_id = s.project_id AND r.environment = s.environment AND r.service_id = s.service_id
		AND s.generation > c.reported_generation AND r.epoch = c.epoch AND s.deleted = 0 AND s.updated_at <= ? GROUP BY 1`,
}

func unwellServices(ctx context.Context, tx *db.Tx, clusters map[string]*Health, stuck time.Time) error {
	type row struct {
		clusterID, what string
		count           int
		since           int64
	}
	for _, query := range unwellQueries {
		rows, err := tx.QueryContext(ctx, query, stuck.UnixMilli())
		found, err := db.Collect(rows, err, func(rows *sql.Rows, r *row) error { return rows.Scan(&r.clusterID, &r.what, &r.count, &r.since) })
		if err != nil {
			return err
		}
		for _, f := range found {
			h := clusters[f.clusterID]
			switch f.what {
			case "unseen": // whether objects of it are left is not known
				continue
			case "held":
				h.Held += f.count
				continue
			case "failing":
				h.Failing += f.count
			default:
				h.Stuck += f.count
			}
			at := time.UnixMilli(f.since).UTC()
			switch h.undated = h.undated || f.since == 0; {
			case h.undated:
				h.Since = time.Time{}
			case h.Since.IsZero(), at.Before(h.Since):
				h.Since = at
			}
		}
	}
	return nil
}

// FullSince returns since when each of the clusters has had this much of its soft limit, in
// percent. One whose reports do not tell has no entry.
func (s *Store) FullSince(ctx context.Context, clusterIDs []string, percent int64) (since map[string]time.Time, err error) {
	err = s.Database.Read(ctx, func(tx *db.Tx) error {
		since = map[string]time.Time{}
		for _, id := range clusterIDs {
			var at sql.NullInt64
			if err := tx.QueryRowContext(ctx, `SELECT min(taken_at) FROM capacity_reports WHERE cluster_id = ? AND taken_at >
				(SELECT max(taken_at) FROM capacity_reports WHERE cluster_id = ? AND current_pod_count * 100 < soft_limit * ?)`, id, id, percent).
				Scan(&at); err != nil {
				return err
			}
			if at.Valid {
				since[id] = time.UnixMilli(at.Int64).UTC()
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("capacity of clusters: %w", err)
	}
	return since, nil
}
