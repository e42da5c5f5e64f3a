package clusters

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// fleetState is what the metrics show of one cluster.
type fleetState struct {
	// standings counts the services.
	standings map[Standing]int
	// tombstone is since when the oldest tombstone is there; zero for none.
	tombstone time.Time
	// latest is the newest capacity report; nil for none.
	latest *CapacityPoint
	// gaps are the minutes without billing records, of the 60 up to the newest record, by the
	// agent's clock; -1 without records.
	gaps int
}

// counted are the states that were counted last. At 160,000 services a count takes a second,
// and a scrape comes every 15 seconds: counts take a twentieth of the time at most.
type counted struct {
	mu     sync.Mutex
	states map[string]*fleetState
	until  time.Time
}

const (
	// shortCount is how long a count may take that is repeated for each scrape, and rests how
	// many times as long as a longer one its result is used.
	shortCount = 200 * time.Millisecond
	rests      = 20
)

// of returns the states of the clusters.
func (c *counted) of(ctx context.Context, store *Store, clusters []Cluster) (map[string]*fleetState, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	begin := time.Now()
	if begin.Before(c.until) {
		return c.states, nil
	}
	states, err := store.fleetStates(ctx, clusters)
	if err != nil {
		return nil, err
	}
	c.states, c.until = states, begin
	if took := time.Since(begin); took > shortCount {
		c.until = begin.Add(rests * took)
	}
	return states, nil
}

// billingWindow is how far back billing records are counted, and billingMinutes how many
// minutes of it are looked at.
const (
	billingWindow  = 2 * time.Hour
	billingMinutes = 60
)

// fleetStates returns the state of each cluster, counted in the database.
func (s *Store) fleetStates(ctx context.Context, clusters []Cluster) (map[string]*fleetState, error) {
	states := make(map[string]*fleetState, len(clusters))
	for i := range clusters {
		states[clusters[i].ClusterID] = &fleetState{standings: map[Standing]int{}, gaps: -1}
	}
	err := s.Database.Read(ctx, func(tx *db.Tx) error {
		if err := countStandings(ctx, tx, states); err != nil {
			return err
		}
		if err := oldestTombstones(ctx, tx, states); err != nil {
			return err
		}
		overviews := make(map[string]*ClusterOverview, len(states))
		for id := range states {
			overviews[id] = &ClusterOverview{}
		}
		if err := latestCapacities(ctx, tx, overviews); err != nil {
			return err
		}
		if err := snapshotMinutes(ctx, tx, overviews, billingWindow); err != nil {
			return err
		}
		for id, o := range overviews {
			states[id].latest, states[id].gaps = o.Latest, billingGaps(o.Snapshots)
		}
		return nil
	})
	return states, err
}

// countStandings counts the services by their standing, by the rules of
// [ServiceState.stand].
func countStandings(ctx context.Context, tx *db.Tx, states map[string]*fleetState) error {
	type row struct {
		clusterID string
		standing  Standing
		count     int
	}
	// A service is wanted, reported or both; known is that the report is about the wanted
	// state.
	rows, err := tx.QueryContext(ctx, `SELECT cluster_id, CASE
			WHEN deleted = 1 AND newest >= generation AND known = 0 THEN 'Deleted'
			WHEN phase = '' THEN 'Unknown'
			WHEN known = 0 THEN 'Pending'
			ELSE phase END AS standing, count(*)
		FROM (
			SELECT c.id AS cluster_id, s.deleted AS deleted, s.generation AS generation, coalesce(r.phase, '') AS phase,
				CASE WHEN c.reported_epoch = c.epoch THEN c.reported_generation ELSE 0 END AS newest,
				CASE WHEN r.epoch = c.epoch AND r.generation >= s.generation THEN 1 ELSE 0 END AS known
			FROM services s JOIN projects p ON p.id = s.project_id JOIN clusters c ON c.id = p.cluster_id
			LEFT JOIN service_status r ON r.cluster_id = c.id AND r.project_id = s.project_id
				AND r.environment = s.environment AND r.service_id = s.service_id
			UNION ALL
			SELECT c.id, 0, 0, r.phase, 0, CASE WHEN r.epoch = c.epoch THEN 1 ELSE 0 END
			FROM service_status r JOIN clusters c ON c.id = r.cluster_id
			LEFT JOIN projects p ON p.id = r.project_id AND p.cluster_id = r.cluster_id
			LEFT JOIN services s ON s.project_id = p.id AND s.environment = r.environment AND s.service_id = r.service_id
			WHERE s.service_id IS NULL
		) AS standings GROUP BY 1, 2`)
	counts, err := db.Collect(rows, err, func(rows *sql.Rows, r *row) error { return rows.Scan(&r.clusterID, &r.standing, &r.count) })
	for _, c := range counts {
		if state := states[c.clusterID]; state != nil {
			state.standings[c.standing] += c.count
		}
	}
	return err
}

func oldestTombstones(ctx context.Context, tx *db.Tx, states map[string]*fleetState) error {
	type row struct {
		clusterID string
		at        int64
	}
	rows, err := tx.QueryContext(ctx, `SELECT cluster_id, min(at) FROM (
			SELECT p.cluster_id AS cluster_id, s.updated_at AS at FROM services s JOIN projects p ON p.id = s.project_id WHERE s.deleted = 1
			UNION ALL SELECT cluster_id, updated_at FROM projects WHERE deleted = 1
		) AS tombstones GROUP BY 1`)
	oldest, err := db.Collect(rows, err, func(rows *sql.Rows, r *row) error { return rows.Scan(&r.clusterID, &r.at) })
	for _, o := range oldest {
		if state := states[o.clusterID]; state != nil {
			state.tombstone = time.UnixMilli(o.at)
		}
	}
	return err
}

// billingGaps returns how many of the minutes up to the newest have no record, or -1 if none
// has. A cluster whose first record is younger has no minutes before that one.
func billingGaps(found []SnapshotMinute) int {
	if len(found) == 0 {
		return -1
	}
	newest := found[len(found)-1].At
	first := newest.Add(-(billingMinutes - 1) * time.Minute)
	counted := slices.DeleteFunc(slices.Clone(found), func(m SnapshotMinute) bool { return m.At.Before(first) })
	if oldest := found[0].At; oldest.After(first) {
		first = oldest
	}
	return int(newest.Sub(first)/time.Minute) + 1 - len(counted)
}

// bodies are the sizes of the desired states that this process has served last.
type bodies struct {
	mu     sync.Mutex
	served map[string]int // by cluster
}

func (b *bodies) set(clusterID string, size int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.served == nil {
		b.served = map[string]int{}
	}
	b.served[clusterID] = size
}

// StateBytes returns the size of the desired state that this process has served last to the
// agent of the cluster; 0 if it has not served any.
func (s *Server) StateBytes(clusterID string) int {
	s.bodies.mu.Lock()
	defer s.bodies.mu.Unlock()
	return s.bodies.served[clusterID]
}

// of returns the sizes of these clusters, and forgets all others.
func (b *bodies) of(clusters []Cluster) map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := make(map[string]int, len(b.served))
	for i := range clusters {
		if size, ok := b.served[clusters[i].ClusterID]; ok {
			kept[clusters[i].ClusterID] = size
		}
	}
	b.served = kept
	return maps.Clone(kept)
}
