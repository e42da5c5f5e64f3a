package regions

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// nameQueries select the names of regions, and of the resources of a collection by region and id.
var nameQueries = map[string]string{ //nolint:gochecknoglobals // never written to
	"regions": `SELECT id, '', name FROM regions WHERE (id, '') IN `,
	deployments: `SELECT t.region_id, t.deployment_id, d.k8s_name FROM deployment_topology t JOIN deployments d ON d.id = t.deployment_id
		WHERE (t.region_id, t.deployment_id) IN `,
	sentinels: `SELECT region_id, id, k8s_name FROM sentinels WHERE (region_id, id) IN `,
	policies:  `SELECT region_id, id, k8s_name FROM cilium_network_policies WHERE (region_id, id) IN `,
}

// Names returns what people call the objects that exist, by collection: regions by
// their ids, and resources by the id of their region, a slash and their own.
func (s *Store) Names(ctx context.Context, ids map[string][]string) (names map[string]map[string]string, err error) {
	names = map[string]map[string]string{}
	err = s.Database.Read(ctx, func(tx *db.Tx) error {
		for collection, list := range ids {
			names[collection] = map[string]string{}
			if len(list) == 0 {
				continue
			}
			var args []any
			for _, id := range list {
				region, resource, _ := strings.Cut(id, "/")
				args = append(args, region, resource)
			}
			query := nameQueries[collection] + `(VALUES (?, ?)` + strings.Repeat(`, (?, ?)`, len(list)-1) + `)`
			rows, err := tx.QueryContext(ctx, query, args...)
			found, err := db.Collect(rows, err, func(rows *sql.Rows, r *[3]string) error { return rows.Scan(&r[0], &r[1], &r[2]) })
			if err != nil {
				return err
			}
			for _, r := range found {
				names[collection][strings.TrimSuffix(r[0]+"/"+r[1], "/")] = r[2]
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("names: %w", err)
	}
	return names, nil
}
