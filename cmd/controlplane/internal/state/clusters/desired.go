package clusters

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// Version returns the version of the cluster's desired state without reading
// the state.
func (s *Store) Version(ctx context.Context, clusterID string) (version string, err error) {
	err = s.Database.Read(ctx, func(tx *db.Tx) error {
		var epoch, nonce string
		var generation int64
		err := tx.QueryRowContext(ctx, `SELECT epoch, generation, nonce FROM clusters WHERE id = ?`, clusterID).Scan(&epoch, &generation, &nonce)
		version = starbase.Version(epoch, generation, nonce)
		return db.Missing(err, ErrUnknownCluster)
	})
	if err != nil {
		return "", fmt.Errorf("version of cluster %s: %w", clusterID, err)
	}
	return version, nil
}

// DesiredState returns the cluster's desired state at one point in time,
// sealed and sorted.
func (s *Store) DesiredState(ctx context.Context, clusterID string) (*starbase.DesiredState, error) {
	var state *starbase.DesiredState
	err := s.Database.Read(ctx, func(tx *db.Tx) error {
		cluster, err := clusterByID(ctx, tx, clusterID)
		if err != nil {
			return err
		}
		state = &starbase.DesiredState{
			ClusterID: cluster.ClusterID, Epoch: cluster.Epoch, Generation: cluster.Generation, Nonce: cluster.nonce,
			ApprovedDeletions: cluster.ApprovedDeletions,
			ClusterConfig:     starbase.ClusterConfig{LBSizeUnits: cluster.LBSizeUnits},
		}
		if state.Projects, err = servedProjects(ctx, tx, clusterID); err != nil {
			return err
		}
		var attached map[starbase.Identity][]starbase.ServiceVarGroup
		if state.VarGroups, attached, err = s.servedVarGroups(ctx, tx, clusterID); err != nil {
			return err
		}
		state.Services, err = servedServices(ctx, tx, clusterID)
		for i := range state.Services {
			state.Services[i].VarGroups = attached[state.Services[i].Identity()]
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("desired state of cluster %s: %w", clusterID, err)
	}
	return state, state.Seal()
}

func servedProjects(ctx context.Context, tx *db.Tx, clusterID string) ([]starbase.Project, error) {
	rows, err := tx.QueryContext(
		ctx,
		`SELECT id, workspace_id, slug, namespace, settings, deleted FROM projects WHERE cluster_id = ? ORDER BY id`,
		clusterID,
	)
	return db.Collect(rows, err, func(rows *sql.Rows, p *starbase.Project) error {
		var text string
		if err := rows.Scan(&p.ProjectID, &p.WorkspaceID, &p.Slug, &p.Namespace, &text, &p.Deleted); err != nil {
			return err
		}
		var settings projectSettings
		if err := json.Unmarshal([]byte(text), &settings); err != nil {
			return fmt.Errorf("project %s: %w", p.ProjectID, err)
		}
		p.Quota, p.Limits, p.Egress = settings.Quota, settings.Limits, settings.Egress
		return nil
	})
}

func servedServices(ctx context.Context, tx *db.Tx, clusterID string) ([]starbase.Service, error) {
	rows, err := tx.QueryContext(ctx, `SELECT p.workspace_id, s.project_id, s.environment, s.service_id, s.spec, s.deleted
		FROM services s JOIN projects p ON p.id = s.project_id WHERE p.cluster_id = ?
		ORDER BY s.project_id, s.environment, s.service_id`, clusterID)
	return db.Collect(rows, err, func(rows *sql.Rows, s *starbase.Service) error {
		var workspaceID, spec string
		var id starbase.Identity
		var deleted bool
		if err := rows.Scan(&workspaceID, &id.ProjectID, &id.Environment, &id.ServiceID, &spec, &deleted); err != nil {
			return err
		}
		if !deleted { // of a tombstone only the identity counts
			if err := json.Unmarshal([]byte(spec), s); err != nil {
				return fmt.Errorf("service %s: %w", id, err)
			}
		}
		s.WorkspaceID, s.Deleted = workspaceID, deleted
		s.ProjectID, s.Environment, s.ServiceID = id.ProjectID, id.Environment, id.ServiceID
		return nil
	})
}
