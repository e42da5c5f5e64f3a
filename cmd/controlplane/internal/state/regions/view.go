package regions

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// Resource is the desired state of one resource with its reported state.
type Resource struct {
	// Collection is deployments, sentinels or policies.
	Collection string `json:"collection"`
	ID         string `json:"id"`
	Namespace  string `json:"k8s_namespace"`
	Name       string `json:"k8s_name"`
	// DesiredState is running, archived or the like.
	DesiredState string `json:"desired_state"`
	// Health and AvailableReplicas are those that the agent reported of a sentinel.
	Health            string `json:"health,omitempty"`
	AvailableReplicas int64  `json:"available_replicas,omitempty"`
	// Instances are the instances of a deployment.
	Instances []Instance `json:"instances,omitempty"`
}

// Instance is one pod of a deployment.
type Instance struct {
	Name    string `json:"k8s_name"`
	Address string `json:"address"`
	CPU     int64  `json:"cpu_millicores"`
	Memory  int64  `json:"memory_mib"`
	// Status is pending, running, failed or inactive. All instances of a region
	// that is silent read as inactive.
	Status string `json:"status"`
	// Reason is why the status is failed. Empty: the agent has reported none.
	Reason string `json:"reason,omitempty"`
	// Restarts is the number of restarts of the pod's containers.
	Restarts   int64     `json:"restarts,omitempty"`
	ReportedAt time.Time `json:"reported_at"`

	deploymentID string
}

// resourceRows select the resources of a region, by collection: the columns of a Resource.
var resourceRows = map[string]string{ //nolint:gochecknoglobals // a table
	deployments: `SELECT 'deployments', d.id, d.k8s_namespace, d.k8s_name, t.desired_state, '', 0
		FROM deployment_topology t JOIN deployments d ON d.id = t.deployment_id WHERE t.region_id = ?`,
	policies: `SELECT 'policies', id, k8s_namespace, k8s_name, CASE deleted WHEN 0 THEN 'running' ELSE 'archived' END, '', 0
		FROM cilium_network_policies WHERE region_id = ?`,
	sentinels: `SELECT 'sentinels', id, k8s_namespace, k8s_name, desired_state, health, available_replicas
		FROM sentinels WHERE region_id = ?`,
}

func scanResource(rows *sql.Rows, r *Resource) error {
	return rows.Scan(&r.Collection, &r.ID, &r.Namespace, &r.Name, &r.DesiredState, &r.Health, &r.AvailableReplicas)
}

// Resources returns the region and all its resources, sorted by collection and
// id.
func (s *Store) Resources(ctx context.Context, regionID string) (region Region, resources []Resource, err error) {
	const and = ` UNION ALL `
	query := resourceRows[deployments] + and + resourceRows[policies] + and + resourceRows[sentinels] + ` ORDER BY 1, 2`
	err = s.Database.Read(ctx, func(tx *db.Tx) error {
		row := tx.QueryRowContext(ctx, `SELECT `+regionColumns+` FROM regions r WHERE r.id = ?`, regionID)
		if err := db.Missing(scanRegion(row.Scan, &region), ErrUnknownRegion); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, query, regionID, regionID, regionID)
		if resources, err = db.Collect(rows, err, scanResource); err != nil {
			return err
		}
		instances, err := instancesOf(ctx, tx, region, "")
		for i := range resources {
			if resources[i].Collection == deployments {
				resources[i].Instances = instances[resources[i].ID]
			}
		}
		return err
	})
	if err != nil {
		return Region{}, nil, fmt.Errorf("region %s: %w", regionID, err)
	}
	return region, resources, nil
}

// instancesOf returns the instances of one deployment of the region, or of all if that is empty.
func instancesOf(ctx context.Context, tx *db.Tx, region Region, deploymentID string) (map[string][]Instance, error) {
	which, args := `region_id = ?`, []any{region.ID}
	if deploymentID != "" {
		which, args = which+` AND deployment_id = ?`, append(args, deploymentID)
	}
	rows, err := tx.QueryContext(
		ctx,
		`SELECT deployment_id, k8s_name, address, cpu_millicores, memory_mib, status, reason, restarts, reported_at
		FROM instances WHERE `+which+` ORDER BY k8s_name`,
		args...,
	)
	list, err := db.Collect(rows, err, func(rows *sql.Rows, i *Instance) error {
		var at int64
		err := rows.Scan(&i.deploymentID, &i.Name, &i.Address, &i.CPU, &i.Memory, &i.Status, &i.Reason, &i.Restarts, &at)
		i.ReportedAt = time.UnixMilli(at).UTC()
		if region.Silent {
			i.Status, i.Reason = "inactive", ""
		}
		return err
	})
	byDeployment := map[string][]Instance{}
	for _, i := range list {
		byDeployment[i.deploymentID] = append(byDeployment[i.deploymentID], i)
	}
	return byDeployment, err
}
