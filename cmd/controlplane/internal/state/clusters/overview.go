package clusters

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// ClusterOverview is one cluster with its services and reports, counted.
type ClusterOverview struct {
	Cluster
	// Services are those that are wanted in the cluster or reported from it,
	// sorted by identity.
	Services []ServiceState
	// Latest is the newest capacity report; nil for none.
	Latest *CapacityPoint
	// Low and Peak are the fewest and the most pods of the capacity reports of a time; nil
	// without reports.
	Low, Peak *int64
	// Snapshots are the minutes of the last hour that have billing records, ascending.
	Snapshots []SnapshotMinute
}

// SnapshotMinute is how many billing records of a cluster there are about a minute.
type SnapshotMinute struct {
	// At is the begin of the minute.
	At      time.Time
	Records int64
}

// Overview returns every cluster, sorted by region and id, all as of one
// moment. Low and Peak are of the reports since then.
func (s *Store) Overview(ctx context.Context, since time.Time) (list []ClusterOverview, err error) {
	err = s.Database.Read(ctx, func(tx *db.Tx) error {
		if list, err = standings(ctx, tx, false); err != nil {
			return err
		}
		byID := make(map[string]*ClusterOverview, len(list))
		for i := range list {
			byID[list[i].ClusterID] = &list[i]
		}
		if err := capacities(ctx, tx, byID, since); err != nil {
			return err
		}
		return snapshotMinutes(ctx, tx, byID, time.Hour)
	})
	if err != nil {
		return nil, fmt.Errorf("overview: %w", err)
	}
	return list, nil
}

// Standings returns every cluster with its services and the names of all these, sorted by
// region and id, as of one moment. The rest of the overview is not set.
func (s *Store) Standings(ctx context.Context) (list []ClusterOverview, err error) {
	err = s.Database.Read(ctx, func(tx *db.Tx) error {
		list, err = standings(ctx, tx, true)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("standings: %w", err)
	}
	return list, nil
}

func standings(ctx context.Context, tx *db.Tx, allNames bool) ([]ClusterOverview, error) {
	rows, err := tx.QueryContext(ctx, `SELECT `+clusterColumns+` FROM clusters ORDER BY region, id`)
	list, err := db.Collect(rows, err, func(rows *sql.Rows, c *ClusterOverview) error { return scanCluster(rows.Scan, &c.Cluster) })
	for i := range list {
		if list[i].Services, err = standingServices(ctx, tx, list[i].Cluster, allNames); err != nil {
			return nil, err
		}
	}
	return list, err
}

// Detail returns one cluster with its services, the names of all these, and its newest capacity
// report, as of one moment. The rest of the overview is not set.
func (s *Store) Detail(ctx context.Context, clusterID string) (c ClusterOverview, err error) {
	err = s.Database.Read(ctx, func(tx *db.Tx) error {
		c = ClusterOverview{}
		if c.Cluster, err = clusterByID(ctx, tx, clusterID); err != nil {
			return err
		}
		if c.Services, err = standingServices(ctx, tx, c.Cluster, true); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, latestCapacityQuery+` AND c.id = ?`, clusterID)
		latest, err := db.Collect(rows, err, scanPoint)
		if len(latest) > 0 {
			c.Latest = &latest[0].point
		}
		return err
	})
	if err != nil {
		return ClusterOverview{}, fmt.Errorf("cluster %s: %w", clusterID, err)
	}
	return c, nil
}

// Standing returns one service with its standing, and the cluster where it should run, or
// is reported from.
func (s *Store) Standing(ctx context.Context, id starbase.Identity) (cluster Cluster, service ServiceState, err error) {
	err = s.Database.Read(ctx, func(tx *db.Tx) error {
		var clusterID string
		err := tx.QueryRowContext(ctx, `SELECT cluster_id FROM projects WHERE id = ? UNION ALL SELECT cluster_id FROM service_status
			WHERE project_id = ? AND environment = ? AND service_id = ? LIMIT 1`, id.ProjectID, id.ProjectID, id.Environment, id.ServiceID).
			Scan(&clusterID)
		if err != nil {
			return db.Missing(err, ErrUnknownService)
		}
		if cluster, err = clusterByID(ctx, tx, clusterID); err != nil {
			return err
		}
		services, err := standingServices(ctx, tx, cluster, true)
		at := slices.IndexFunc(services, func(s ServiceState) bool { return s.Identity() == id })
		if err != nil || at < 0 {
			return cmp.Or(err, ErrUnknownService)
		}
		service = services[at]
		return nil
	})
	if err != nil {
		return Cluster{}, ServiceState{}, fmt.Errorf("service %s: %w", id, err)
	}
	return cluster, service, nil
}

// clusterPoint is a capacity report of a cluster.
type clusterPoint struct {
	clusterID string
	point     CapacityPoint
}

func scanPoint(rows *sql.Rows, r *clusterPoint) error {
	var at int64
	err := rows.Scan(&r.clusterID, &at, &r.point.Pods, &r.point.SoftLimit)
	r.point.TakenAt = time.UnixMilli(at).UTC()
	return err
}

func capacities(ctx context.Context, tx *db.Tx, clusters map[string]*ClusterOverview, since time.Time) error {
	type row struct {
		clusterID string
		low, peak int64
	}
	rows, err := tx.QueryContext(ctx, `SELECT cluster_id, min(current_pod_count), max(current_pod_count)
		FROM capacity_reports WHERE taken_at >= ? GROUP BY 1`, since.UnixMilli())
	gathered, err := db.Collect(rows, err, func(rows *sql.Rows, r *row) error { return rows.Scan(&r.clusterID, &r.low, &r.peak) })
	if err != nil {
		return err
	}
	for i := range gathered {
		if c := clusters[gathered[i].clusterID]; c != nil {
			c.Low, c.Peak = &gathered[i].low, &gathered[i].peak
		}
	}
	return latestCapacities(ctx, tx, clusters)
}

// latestCapacityQuery looks up one report of each cluster. SQLite takes the order of a CROSS JOIN
// as it is.
const latestCapacityQuery = `SELECT r.cluster_id, r.taken_at, r.current_pod_count, r.soft_limit FROM clusters c
	CROSS JOIN capacity_reports r WHERE r.cluster_id = c.id AND r.taken_at = (SELECT max(taken_at) FROM capacity_reports WHERE cluster_id = c.id)`

// latestCapacities sets the newest report of each cluster.
func latestCapacities(ctx context.Context, tx *db.Tx, clusters map[string]*ClusterOverview) error {
	rows, err := tx.QueryContext(ctx, latestCapacityQuery)
	latest, err := db.Collect(rows, err, scanPoint)
	for i := range latest {
		if c := clusters[latest[i].clusterID]; c != nil {
			c.Latest = &latest[i].point
		}
	}
	return err
}

// snapshotMinutes sets the minutes of this long that have billing records.
func snapshotMinutes(ctx context.Context, tx *db.Tx, clusters map[string]*ClusterOverview, window time.Duration) error {
	type row struct {
		clusterID string
		minute    SnapshotMinute
	}
	rows, err := tx.QueryContext(
		ctx,
		`SELECT cluster_id, minute, records FROM snapshot_minutes WHERE minute >= ? ORDER BY 1, 2`,
		time.Now().Add(-window).UnixMilli(),
	)
	minutes, err := db.Collect(rows, err, func(rows *sql.Rows, r *row) error {
		var at int64
		err := rows.Scan(&r.clusterID, &at, &r.minute.Records)
		r.minute.At = time.UnixMilli(at).UTC()
		return err
	})
	for i := range minutes {
		if c := clusters[minutes[i].clusterID]; c != nil {
			c.Snapshots = append(c.Snapshots, minutes[i].minute)
		}
	}
	return err
}
