package clusters

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// Named is an object that exists, and what people call it.
type Named struct {
	// Name is the region of a cluster, the slug of a project, or the name of a service; empty
	// for one without a name.
	Name string
	// Project is the slug of the project of a service.
	Project string
}

// Names returns what people call the objects that exist. A service is named by
// [AuditName].
func (s *Store) Names(ctx context.Context, clusterIDs, projectIDs []string, services []starbase.Identity) (
	clusters, projects, byIdentity map[string]Named, err error,
) {
	clusters, projects, byIdentity = map[string]Named{}, map[string]Named{}, map[string]Named{}
	err = s.Database.Read(ctx, func(tx *db.Tx) error {
		for _, kind := range []struct {
			query string
			ids   []string
			into  map[string]Named
		}{
			{`SELECT id, region FROM clusters WHERE id IN `, clusterIDs, clusters},
			{`SELECT id, slug FROM projects WHERE deleted = 0 AND id IN `, projectIDs, projects},
		} {
			if len(kind.ids) == 0 {
				continue
			}
			args := make([]any, len(kind.ids))
			for n, id := range kind.ids {
				args[n] = id
			}
			rows, err := tx.QueryContext(ctx, kind.query+tuples(1, len(args)), args...)
			found, err := db.Collect(rows, err, func(rows *sql.Rows, pair *[2]string) error { return rows.Scan(&pair[0], &pair[1]) })
			if err != nil {
				return err
			}
			for _, pair := range found {
				kind.into[pair[0]] = Named{Name: pair[1]}
			}
		}
		return serviceNames(ctx, tx, services, byIdentity)
	})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("names: %w", err)
	}
	return clusters, projects, byIdentity, nil
}

func serviceNames(ctx context.Context, tx *db.Tx, services []starbase.Identity, into map[string]Named) error {
	if len(services) == 0 {
		return nil
	}
	const columns = 3
	args := make([]any, 0, columns*len(services))
	for _, id := range services {
		args = append(args, id.ProjectID, id.Environment, id.ServiceID)
	}
	type row struct {
		starbase.Identity
		project, spec string
	}
	rows, err := tx.QueryContext(ctx, `SELECT s.project_id, s.environment, s.service_id, p.slug, s.spec
		FROM services s JOIN projects p ON p.id = s.project_id
		WHERE (s.project_id, s.environment, s.service_id) IN `+tuples(columns, len(services)), args...)
	found, err := db.Collect(rows, err, func(rows *sql.Rows, r *row) error {
		return rows.Scan(&r.ProjectID, &r.Environment, &r.ServiceID, &r.project, &r.spec)
	})
	for i := range found {
		var named struct {
			ServiceName string `json:"service_name"`
		}
		if err := json.Unmarshal([]byte(found[i].spec), &named); err != nil {
			return err
		}
		into[AuditName(found[i].Identity)] = Named{Name: named.ServiceName, Project: found[i].project}
	}
	return err
}

// tuples returns a list of so many tuples of parameters.
func tuples(columns, n int) string {
	one := `?` + strings.Repeat(`, ?`, columns-1)
	if columns > 1 {
		return `(VALUES (` + one + `)` + strings.Repeat(`, (`+one+`)`, n-1) + `)`
	}
	return `(` + one + strings.Repeat(`, ?`, n-1) + `)`
}
