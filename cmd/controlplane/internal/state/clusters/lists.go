package clusters

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// ListedProject is a project in a list.
type ListedProject struct {
	ProjectID string `json:"project_id"`
	StoredProject
}

// ProjectsAfter returns the projects of a cluster, or of all if it is empty, whose ids
// follow the given one, sorted by id, at most limit. Tombstones are among them.
func (s *Store) ProjectsAfter(ctx context.Context, clusterID, after string, limit int) (list []ListedProject, err error) {
	err = s.Database.Read(ctx, func(tx *db.Tx) error {
		rows, err := tx.QueryContext(ctx, `SELECT id, cluster_id, workspace_id, workspace_slug, slug, namespace, settings, deleted FROM projects
			WHERE id > ? AND (cluster_id = ? OR ? = '') ORDER BY id LIMIT ?`, after, clusterID, clusterID, limit)
		list, err = db.Collect(rows, err, func(rows *sql.Rows, p *ListedProject) error {
			var row projectRow
			if err := rows.Scan(
				&p.ProjectID,
				&row.clusterID,
				&row.workspaceID,
				&row.workspaceSlug,
				&row.slug,
				&row.namespace,
				&row.settings,
				&row.deleted,
			); err != nil {
				return err
			}
			var err error
			p.StoredProject, err = row.stored()
			return err
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list projects: %w", err)
	}
	return list, nil
}

// ServicesAfter returns the services of a project as they were put, sorted by environment
// and id, at most limit, and those that follow the given key alone. Tombstones are Deleted.
func (s *Store) ServicesAfter(ctx context.Context, projectID, after string, limit int) (list []starbase.Service, err error) {
	environment, serviceID, _ := strings.Cut(after, "/")
	err = s.Database.Read(ctx, func(tx *db.Tx) error {
		project, err := projectByID(ctx, tx, projectID)
		if err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, `SELECT environment, service_id, spec, deleted FROM services
			WHERE project_id = ? AND (environment > ? OR environment = ? AND service_id > ?) ORDER BY environment, service_id LIMIT ?`,
			projectID, environment, environment, serviceID, limit)
		list, err = db.Collect(rows, err, func(rows *sql.Rows, service *starbase.Service) error {
			var environment, serviceID, spec string
			var deleted bool
			if err := rows.Scan(&environment, &serviceID, &spec, &deleted); err != nil {
				return err
			}
			if err := json.Unmarshal([]byte(spec), service); err != nil {
				return err
			}
			service.WorkspaceID, service.Deleted = project.workspaceID, deleted
			service.ProjectID, service.Environment, service.ServiceID = projectID, environment, serviceID
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("services of project %s: %w", projectID, err)
	}
	return list, nil
}

// serviceKey is the key of a service in the list of its project.
func serviceKey(s *starbase.Service) string { return s.Environment + "/" + s.ServiceID }

// VarGroup returns one group of a project.
func (s *Store) VarGroup(ctx context.Context, projectID, groupID string) (group StoredVarGroup, err error) {
	groups, err := s.varGroups(ctx, projectID, `id = ?`, groupID)
	switch {
	case err != nil:
		return StoredVarGroup{}, err
	case len(groups) == 0:
		return StoredVarGroup{}, fmt.Errorf("var group %s of project %s: %w", groupID, projectID, ErrUnknownVarGroup)
	}
	return groups[0], nil
}

// VarGroupsAfter returns the groups of a project whose ids follow the given one, sorted by
// id, at most limit.
func (s *Store) VarGroupsAfter(ctx context.Context, projectID, after string, limit int) ([]StoredVarGroup, error) {
	return s.varGroups(ctx, projectID, `id > ? ORDER BY id LIMIT ?`, after, limit)
}

func (s *Store) varGroups(ctx context.Context, projectID, which string, args ...any) (groups []StoredVarGroup, err error) {
	err = s.Database.Read(ctx, func(tx *db.Tx) error {
		if _, err := projectByID(ctx, tx, projectID); err != nil {
			return err
		}
		rows, err := tx.QueryContext(
			ctx,
			`SELECT id, project_id, name, environment, checksum FROM var_groups WHERE project_id = ? AND `+which,
			append([]any{projectID}, args...)...)
		found, err := db.Collect(rows, err, func(rows *sql.Rows, g *varGroupRow) error {
			return rows.Scan(&g.id, &g.projectID, &g.name, &g.environment, &g.checksum)
		})
		groups = nil
		for _, row := range found {
			group, stored := s.stored(ctx, tx, row)
			if err = cmp.Or(err, stored); err != nil {
				return err
			}
			groups = append(groups, group)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("var groups of project %s: %w", projectID, err)
	}
	return groups, nil
}

var uuidParameter = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// listProjects lists the projects of all clusters, or of the one in the query.
func (s *Server) listProjects(w http.ResponseWriter, r *http.Request) error {
	query := adminapi.NewQuery(r)
	clusterID := query.Text("cluster_id", uuidParameter, "the UUID of a cluster")
	return adminapi.WritePart(r.Context(), w, query, "projects", func(p *ListedProject) string { return p.ProjectID },
		func(ctx context.Context, after string, limit int) ([]ListedProject, error) {
			if clusterID != "" {
				if _, err := s.store.Version(ctx, clusterID); err != nil {
					return nil, err
				}
			}
			return s.store.ProjectsAfter(ctx, clusterID, after, limit)
		})
}
