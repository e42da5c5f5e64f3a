package regions

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// Health is a region with what shows whether it is well, without its resources.
type Health struct {
	Region
	// Known, Head, Reported and Applied mean what they do in [RegionOverview].
	Known    bool
	Head     uint64
	Reported bool
	Applied  uint64
	// Failed counts the failed instances, and Unhealthy the unhealthy sentinels that should run.
	// A region that is silent has none.
	Failed, Unhealthy int
}

// Healths returns every region with its health, sorted by name. It reads the rows of regions and
// of their logs, and the failed instances and unhealthy sentinels, whatever else there is.
func (s *Store) Healths(ctx context.Context) ([]Health, error) {
	failing := map[string]*Health{}
	found, err := s.positions(ctx, func(ctx context.Context, tx *db.Tx, _ map[string]*RegionOverview) (err error) {
		failing, err = countFailing(ctx, tx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("health of regions: %w", err)
	}
	list := make([]Health, len(found))
	for i := range found {
		r := &found[i]
		list[i] = Health{Region: r.Region, Known: r.Known, Head: r.Head, Reported: r.Reported, Applied: r.Applied}
		if f := failing[r.ID]; f != nil && !r.Silent {
			list[i].Failed, list[i].Unhealthy = f.Failed, f.Unhealthy
		}
	}
	return list, nil
}

// failingQuery counts what fails, by region.
const failingQuery = `SELECT region_id, count(*), 0 FROM instances WHERE status = 'failed' GROUP BY region_id
	UNION ALL SELECT region_id, 0, count(*) FROM sentinels WHERE health = 'unhealthy' AND desired_state = 'running' GROUP BY region_id`

func countFailing(ctx context.Context, tx *db.Tx) (map[string]*Health, error) {
	rows, err := tx.QueryContext(ctx, failingQuery)
	counts, err := db.Collect(rows, err, func(rows *sql.Rows, h *Health) error { return rows.Scan(&h.ID, &h.Failed, &h.Unhealthy) })
	byID := map[string]*Health{}
	for i := range counts {
		if have := byID[counts[i].ID]; have != nil {
			have.Failed, have.Unhealthy = have.Failed+counts[i].Failed, have.Unhealthy+counts[i].Unhealthy
			continue
		}
		byID[counts[i].ID] = &counts[i]
	}
	return byID, err
}

// objectQueries select the resources of a region, as [scanResource] reads them: those that fail,
// and all that are wanted. The last ? is how many, each other one is the region.
var objectQueries = []string{ //nolint:gochecknoglobals // never written to
	resourceRows[deployments] + ` AND d.id IN (SELECT deployment_id FROM instances WHERE region_id = ? AND status = 'failed')
		ORDER BY 2 LIMIT ?`,
	resourceRows[sentinels] + ` AND health = 'unhealthy' ORDER BY 2 LIMIT ?`,
	resourceRows[deployments] + ` ORDER BY 2 LIMIT ?`,
	resourceRows[sentinels] + ` ORDER BY 2 LIMIT ?`,
	resourceRows[policies] + ` ORDER BY 2 LIMIT ?`,
}

// Objects returns the first resources of the region, at most limit of each collection, those that
// fail first, with the instances of deployments. more is true if there are others.
func (s *Store) Objects(ctx context.Context, regionID string, limit int) (list []Resource, more bool, err error) {
	err = s.Database.Read(ctx, func(tx *db.Tx) error {
		list, more = nil, false
		var region Region
		row := tx.QueryRowContext(ctx, `SELECT `+regionColumns+` FROM regions r WHERE r.id = ?`, regionID)
		if err := db.Missing(scanRegion(row.Scan, &region), ErrUnknownRegion); err != nil {
			return err
		}
		count := map[string]int{}
		for _, query := range objectQueries {
			args := append(slices.Repeat([]any{regionID}, strings.Count(query, "?")-1), limit+1)
			rows, err := tx.QueryContext(ctx, query, args...)
			found, err := db.Collect(rows, err, scanResource)
			if err != nil {
				return err
			}
			for _, r := range found {
				switch {
				case slices.ContainsFunc(list, func(have Resource) bool { return have.Collection == r.Collection && have.ID == r.ID }):
				case count[r.Collection] == limit:
					more = true
				default:
					count[r.Collection]++
					list = append(list, r)
				}
			}
		}
		for i := range list {
			if list[i].Collection != deployments {
				continue
			}
			instances, err := instancesOf(ctx, tx, region, list[i].ID)
			if err != nil {
				return err
			}
			list[i].Instances = instances[list[i].ID]
		}
		return nil
	})
	if err != nil {
		return nil, false, fmt.Errorf("objects of region %s: %w", regionID, err)
	}
	slices.SortStableFunc(list, func(a, b Resource) int { return cmp.Compare(a.trouble(), b.trouble()) })
	return list, more, nil
}

// trouble is 0 for a resource that fails, and 1 for any other.
func (r Resource) trouble() int {
	if r.Health == "unhealthy" || slices.ContainsFunc(r.Instances, func(i Instance) bool { return i.Status == "failed" }) {
		return 0
	}
	return 1
}

// Health returns one region with its health.
func (s *Store) Health(ctx context.Context, regionID string) (Health, error) {
	list, err := s.Healths(ctx)
	if err != nil {
		return Health{}, err
	}
	at := slices.IndexFunc(list, func(h Health) bool { return h.ID == regionID })
	if at < 0 {
		return Health{}, fmt.Errorf("region %s: %w", regionID, ErrUnknownRegion)
	}
	return list[at], nil
}
