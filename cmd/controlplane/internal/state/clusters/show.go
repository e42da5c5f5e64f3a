package clusters

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// StoredProject is a project as it was put, and what became of it.
type StoredProject struct {
	Project
	Namespace string `json:"namespace"`
	Deleted   bool   `json:"deleted"`
}

// Project returns a project as it was put.
func (s *Store) Project(ctx context.Context, projectID string) (project StoredProject, err error) {
	err = s.Database.Read(ctx, func(tx *db.Tx) error {
		row, err := projectByID(ctx, tx, projectID)
		if err != nil {
			return err
		}
		project, err = row.stored()
		return err
	})
	if err != nil {
		return StoredProject{}, fmt.Errorf("project %s: %w", projectID, err)
	}
	return project, nil
}

// stored returns the project as it was put.
func (p projectRow) stored() (StoredProject, error) {
	var settings projectSettings
	if err := json.Unmarshal([]byte(p.settings), &settings); err != nil {
		return StoredProject{}, err
	}
	return StoredProject{
		Project: Project{
			ClusterID: p.clusterID, WorkspaceID: p.workspaceID, WorkspaceSlug: p.workspaceSlug, Slug: p.slug,
			Quota: settings.Quota, Limits: settings.Limits, Egress: settings.Egress,
		},
		Namespace: p.namespace, Deleted: p.deleted,
	}, nil
}

// Service returns a service as it was put. A tombstone is Deleted.
func (s *Store) Service(ctx context.Context, id starbase.Identity) (service starbase.Service, err error) {
	err = s.Database.Read(ctx, func(tx *db.Tx) error {
		project, err := projectByID(ctx, tx, id.ProjectID)
		if err != nil {
			return err
		}
		spec, deleted, err := serviceByID(ctx, tx, id)
		if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(spec), &service); err != nil {
			return err
		}
		service.WorkspaceID, service.Deleted = project.workspaceID, deleted
		service.ProjectID, service.Environment, service.ServiceID = id.ProjectID, id.Environment, id.ServiceID
		return nil
	})
	if err != nil {
		return starbase.Service{}, fmt.Errorf("service %s: %w", id, err)
	}
	return service, nil
}

func (s *Server) showConfig(ctx context.Context, clusterID string) (config starbase.ClusterConfig, err error) {
	err = s.store.Database.Read(ctx, func(tx *db.Tx) error {
		cluster, err := clusterByID(ctx, tx, clusterID)
		config.LBSizeUnits = cluster.LBSizeUnits
		return err
	})
	return config, err
}
