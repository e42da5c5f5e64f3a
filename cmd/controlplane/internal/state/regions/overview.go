package regions

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// RegionOverview is one region with its resources and reports, counted.
type RegionOverview struct {
	Region
	// Known is false for a region that is not the one its log was made for, or
	// whose log cannot be read yet.
	Known bool
	// Head is the version of the newest change of its log.
	Head uint64
	// Reported is true when an agent has reported its position in this epoch
	// within a day, and Applied is the lowest position reported.
	Reported bool
	Applied  uint64
	// Deployments and Sentinels are how many of them should run.
	Deployments, Sentinels int
	// Instances counts the instances by status. All instances of a region that
	// is silent are inactive.
	Instances map[string]int
	// Failed are the failed instances by name, at most MaxFailed. None of a region
	// that is silent.
	Failed []Instance
	// Unhealthy are the sentinels that should run and are unhealthy, by name, at most
	// MaxFailed. A silent region has none.
	Unhealthy []Resource
	// Health counts the sentinels that should run by health. The health of a silent
	// region is unknown.
	Health map[string]int
}

// MaxFailed is how many failed instances, and unhealthy sentinels, of each region an overview
// names.
const MaxFailed = 20

// Overview returns every region, sorted by scope.
func (s *Store) Overview(ctx context.Context) (list []RegionOverview, err error) {
	if list, err = s.positions(ctx, countResources, nameFailed, nameUnhealthy); err != nil {
		return nil, fmt.Errorf("overview: %w", err)
	}
	return list, nil
}

// positions returns every region with the position of its agent, sorted by scope, and what is read
// in addition.
func (s *Store) positions(
	ctx context.Context,
	more ...func(context.Context, *db.Tx, map[string]*RegionOverview) error,
) (list []RegionOverview, err error) {
	err = s.Database.Read(ctx, func(tx *db.Tx) error {
		rows, err := tx.QueryContext(ctx, `SELECT `+regionColumns+`, l.scope IS NOT NULL FROM regions r
			LEFT `+withLog+` ORDER BY `+regionScope)
		list, err = db.Collect(rows, err, func(rows *sql.Rows, r *RegionOverview) error {
			return scanRegion(func(columns ...any) error { return rows.Scan(append(columns, &r.Known)...) }, &r.Region)
		})
		byID := make(map[string]*RegionOverview, len(list))
		for i := range list {
			list[i].Instances, list[i].Health = map[string]int{}, map[string]int{}
			byID[list[i].ID] = &list[i]
		}
		for _, read := range more {
			if err == nil {
				err = read(ctx, tx, byID)
			}
		}
		return err
	})
	byScope := map[string]*RegionOverview{}
	for i := range list {
		if list[i].Known {
			byScope[list[i].Scope] = &list[i]
		}
		list[i].Known = false // until its log is read
	}
	if err == nil {
		err = s.progress(ctx, byScope)
	}
	return list, err
}

func countResources(ctx context.Context, tx *db.Tx, regions map[string]*RegionOverview) error {
	type row struct {
		collection, regionID, state, status string
		count                               int
	}
	rows, err := tx.QueryContext(
		ctx,
		`SELECT 'deployments', region_id, desired_state, '', count(*) FROM deployment_topology GROUP BY region_id, desired_state
		UNION ALL SELECT 'sentinels', region_id, desired_state, health, count(*) FROM sentinels GROUP BY region_id, desired_state, health
		UNION ALL SELECT 'instances', region_id, '', status, count(*) FROM instances GROUP BY region_id, status`,
	)
	counts, err := db.Collect(rows, err, func(rows *sql.Rows, r *row) error {
		return rows.Scan(&r.collection, &r.regionID, &r.state, &r.status, &r.count)
	})
	for _, c := range counts {
		r := regions[c.regionID]
		wanted := kindOf(c.collection, c.state) == "apply"
		switch {
		case r == nil:
		case c.collection == "instances" && r.Silent:
			r.Instances["inactive"] += c.count
		case c.collection == "instances":
			r.Instances[c.status] += c.count
		case wanted && c.collection == deployments:
			r.Deployments += c.count
		case wanted && r.Silent:
			r.Sentinels += c.count
			r.Health["unknown"] += c.count
		case wanted:
			r.Sentinels += c.count
			r.Health[c.status] += c.count
		}
	}
	return err
}

// nameFailed sets the failed instances of the regions.
func nameFailed(ctx context.Context, tx *db.Tx, regions map[string]*RegionOverview) error {
	type row struct {
		regionID string
		Instance
	}
	rows, err := tx.QueryContext(ctx, `SELECT region_id, k8s_name, status, reason, restarts FROM (
			SELECT region_id, k8s_name, status, reason, restarts, row_number() OVER (PARTITION BY region_id ORDER BY k8s_name) AS place
			FROM instances WHERE status = 'failed') failed
		WHERE place <= ? ORDER BY region_id, k8s_name`, MaxFailed)
	found, err := db.Collect(rows, err, func(rows *sql.Rows, r *row) error {
		return rows.Scan(&r.regionID, &r.Name, &r.Status, &r.Reason, &r.Restarts)
	})
	for _, f := range found {
		if r := regions[f.regionID]; r != nil && !r.Silent {
			r.Failed = append(r.Failed, f.Instance)
		}
	}
	return err
}

// nameUnhealthy sets the unhealthy sentinels of the regions.
func nameUnhealthy(ctx context.Context, tx *db.Tx, regions map[string]*RegionOverview) error {
	type row struct {
		regionID string
		Resource
	}
	rows, err := tx.QueryContext(ctx, `SELECT region_id, id, k8s_namespace, k8s_name, desired_state, health, available_replicas FROM sentinels
		WHERE health = 'unhealthy' ORDER BY region_id, k8s_name`)
	found, err := db.Collect(rows, err, func(rows *sql.Rows, r *row) error {
		r.Collection = sentinels
		return rows.Scan(&r.regionID, &r.ID, &r.Namespace, &r.Name, &r.DesiredState, &r.Health, &r.AvailableReplicas)
	})
	for _, f := range found {
		r := regions[f.regionID]
		if r != nil && !r.Silent && len(r.Unhealthy) < MaxFailed && kindOf(sentinels, f.DesiredState) == "apply" {
			r.Unhealthy = append(r.Unhealthy, f.Resource)
		}
	}
	return err
}

// progress sets the heads of the regions' logs and the positions of their readers.
func (s *Store) progress(ctx context.Context, regions map[string]*RegionOverview) error {
	list, err := s.Database.Log.Progress(ctx)
	now := time.Now()
	for i := range list {
		r := regions[list[i].Scope]
		if r == nil {
			continue
		}
		r.Known, r.Head = true, list[i].Head
		for _, reader := range list[i].Readers {
			if reader.Applied.Epoch != list[i].Epoch || !reader.Alive(now, lease) {
				continue
			}
			if !r.Reported || reader.Applied.Version < r.Applied {
				r.Reported, r.Applied = true, reader.Applied.Version
			}
		}
	}
	return err
}

// openStreams counts the streams of this process by region, and by region and resource
// type. What has none has no entry and no series.
type openStreams struct {
	mu       sync.Mutex
	byRegion map[string]int
	byKind   map[[2]string]int
}

func (o *openStreams) add(gauge *prometheus.GaugeVec, region, resources string, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byRegion == nil {
		o.byRegion, o.byKind = map[string]int{}, map[[2]string]int{}
	}
	if o.byRegion[region] += n; o.byRegion[region] == 0 {
		delete(o.byRegion, region)
	}
	kind := [2]string{region, resources}
	if o.byKind[kind] += n; o.byKind[kind] == 0 {
		delete(o.byKind, kind)
		gauge.DeleteLabelValues(region, resources)
		return
	}
	gauge.WithLabelValues(region, resources).Set(float64(o.byKind[kind]))
}

// Streams returns how many streams of the region of that scope are open in this
// process.
func (s *Service) Streams(scope string) int {
	s.open.mu.Lock()
	defer s.open.mu.Unlock()
	return s.open.byRegion[scope]
}
