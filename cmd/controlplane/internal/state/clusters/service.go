package clusters

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// PutService creates, changes or revives the service, which must be valid. The stored
// workspace is the workspace of its project; the service's own is ignored.
func (s *Store) PutService(ctx context.Context, service starbase.Service) (change Change, err error) {
	id := service.Identity()
	spec, err := encodeService(service)
	if err != nil {
		return Change{}, fmt.Errorf("put service %s: %w", id, err)
	}
	err = s.Database.Write(ctx, func(tx *db.Tx) error {
		change = Change{}
		project, err := projectByID(ctx, tx, id.ProjectID)
		if err != nil {
			return err
		}
		if project.deleted {
			return ErrProjectDeleted
		}
		have, deleted, err := serviceByID(ctx, tx, id)
		change.Created = errors.Is(err, ErrUnknownService)
		if err != nil && !change.Created {
			return err
		}
		change.Changed = change.Created || deleted || have != spec
		if err := change.number(ctx, tx, project.clusterID); err != nil || !change.Changed {
			return err
		}
		if err := hostnameFree(ctx, tx, project.clusterID, id, service.Hostname); err != nil {
			return err
		}
		if _, err = tx.ExecContext(ctx, `INSERT INTO services
			(project_id, environment, service_id, spec, hostname, deleted, generation, updated_at)
			VALUES (?, ?, ?, ?, ?, 0, ?, ?)
			ON CONFLICT (project_id, environment, service_id) DO UPDATE SET spec = excluded.spec,
			hostname = excluded.hostname, deleted = 0, generation = excluded.generation, updated_at = excluded.updated_at`,
			id.ProjectID, id.Environment, id.ServiceID, spec, service.Hostname, change.Generation, time.Now().UnixMilli()); err != nil {
			return err
		}
		return audit.Record(
			ctx,
			tx,
			audit.Change{Verb: "put", Kind: audit.KindService, Name: AuditName(id), Outcome: audit.CreatedOr(change.Created || deleted)},
		)
	})
	if err != nil {
		return Change{}, fmt.Errorf("put service %s: %w", id, err)
	}
	return change, nil
}

// hostnameFree returns [ErrHostnameTaken] if another service of the cluster has the hostname: of two routes of
// one name the older one gets the requests, and if it is made again, the other. The number of the change
// has locked the cluster.
func hostnameFree(ctx context.Context, tx *db.Tx, clusterID string, id starbase.Identity, hostname string) error {
	if hostname == "" {
		return nil
	}
	rows, err := tx.QueryContext(ctx, `SELECT s.spec FROM services s JOIN projects p ON p.id = s.project_id
		WHERE s.hostname = ? AND p.cluster_id = ?
		AND NOT (s.project_id = ? AND s.environment = ? AND s.service_id = ?)`,
		hostname, clusterID, id.ProjectID, id.Environment, id.ServiceID)
	specs, err := db.Collect(rows, err, func(rows *sql.Rows, spec *string) error { return rows.Scan(spec) })
	for _, spec := range specs {
		// A replica of an older version changes and deletes services without a look at the column.
		var other struct {
			Hostname string `json:"hostname"`
		}
		if err := json.Unmarshal([]byte(spec), &other); err != nil {
			return err
		}
		if other.Hostname == hostname {
			return ErrHostnameTaken
		}
	}
	return err
}

// DeleteService makes a tombstone of the service. It keeps the identity alone.
func (s *Store) DeleteService(ctx context.Context, id starbase.Identity) (change Change, err error) {
	err = s.Database.Write(ctx, func(tx *db.Tx) error {
		change = Change{}
		project, err := projectByID(ctx, tx, id.ProjectID)
		if err != nil {
			return err
		}
		_, deleted, err := serviceByID(ctx, tx, id)
		if err != nil {
			return err
		}
		change.Changed = !deleted
		if err := change.number(ctx, tx, project.clusterID); err != nil || deleted {
			return err
		}
		if err := detachAll(ctx, tx, id); err != nil {
			return err
		}
		if _, err = tx.ExecContext(ctx, `UPDATE services SET deleted = 1, spec = '{}', hostname = '', generation = ?, updated_at = ?
			WHERE project_id = ? AND environment = ? AND service_id = ?`,
			change.Generation, time.Now().UnixMilli(), id.ProjectID, id.Environment, id.ServiceID); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Change{Verb: "delete", Kind: audit.KindService, Name: AuditName(id), Outcome: audit.Deleted})
	})
	if err != nil {
		return Change{}, fmt.Errorf("delete service %s: %w", id, err)
	}
	return change, nil
}

// AuditName is the name of a service in the audit: its path below the project.
func AuditName(id starbase.Identity) string {
	return id.ProjectID + "/" + id.Environment + "/" + id.ServiceID
}

func serviceByID(ctx context.Context, tx *db.Tx, id starbase.Identity) (spec string, deleted bool, err error) {
	err = tx.QueryRowContext(ctx, `SELECT spec, deleted FROM services WHERE project_id = ? AND environment = ? AND service_id = ?`+tx.Lock,
		id.ProjectID, id.Environment, id.ServiceID).Scan(&spec, &deleted)
	return spec, deleted, db.Missing(err, ErrUnknownService)
}

// encodeService returns the service as it is stored: without the fields that have
// columns of their own. Equal services have equal texts.
func encodeService(service starbase.Service) (string, error) {
	service.WorkspaceID, service.ProjectID, service.ServiceID, service.Environment, service.Deleted = "", "", "", "", false
	text, err := json.Marshal(service)
	return string(text), err
}
