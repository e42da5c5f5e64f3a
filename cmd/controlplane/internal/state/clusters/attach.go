package clusters

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// AttachVarGroups gives a service these groups and no others. Of two that have a key, the
// later one wins it.
func (s *Store) AttachVarGroups(ctx context.Context, id starbase.Identity, groupIDs []string) (change Change, err error) {
	err = s.Database.Write(ctx, func(tx *db.Tx) error {
		change = Change{}
		project, err := liveProject(ctx, tx, id.ProjectID)
		if err != nil {
			return err
		}
		have, err := attachedGroups(ctx, tx, id)
		if err != nil {
			return err
		}
		for i, groupID := range groupIDs {
			if err := mayAttach(ctx, tx, id, groupID); err != nil {
				return unfit(i, groupID, err)
			}
		}
		change.Changed = !slices.Equal(have, groupIDs)
		if err := change.number(ctx, tx, project.clusterID); err != nil || !change.Changed {
			return err
		}
		if err := detachAll(ctx, tx, id); err != nil {
			return err
		}
		for order, groupID := range groupIDs {
			if _, err := tx.ExecContext(
				ctx,
				`INSERT INTO service_var_groups (project_id, environment, service_id, var_group_id, attach_order) VALUES (?, ?, ?, ?, ?)`,
				id.ProjectID,
				id.Environment,
				id.ServiceID,
				groupID,
				order,
			); err != nil {
				return err
			}
		}
		return audit.Record(ctx, tx, audit.Change{Verb: "attach-var-groups", Kind: audit.KindService, Name: AuditName(id)})
	})
	if err != nil {
		return Change{}, fmt.Errorf("attach var groups to %s: %w", id, err)
	}
	return change, nil
}

// AttachedVarGroups returns the groups of a service in their order.
func (s *Store) AttachedVarGroups(ctx context.Context, id starbase.Identity) (groupIDs []string, err error) {
	err = s.Database.Read(ctx, func(tx *db.Tx) error {
		groupIDs, err = attachedGroups(ctx, tx, id)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("var groups of %s: %w", id, err)
	}
	return groupIDs, nil
}

// attachedGroups returns the groups of a service that is not deleted.
func attachedGroups(ctx context.Context, tx *db.Tx, id starbase.Identity) ([]string, error) {
	_, deleted, err := serviceByID(ctx, tx, id)
	switch {
	case err != nil:
		return nil, err
	case deleted:
		return nil, ErrUnknownService
	}
	rows, err := tx.QueryContext(
		ctx,
		`SELECT var_group_id FROM service_var_groups WHERE project_id = ? AND environment = ? AND service_id = ? ORDER BY attach_order`,
		id.ProjectID,
		id.Environment,
		id.ServiceID,
	)
	list, err := db.Collect(rows, err, func(rows *sql.Rows, groupID *string) error { return rows.Scan(groupID) })
	if list == nil {
		list = []string{}
	}
	return list, err
}

func mayAttach(ctx context.Context, tx *db.Tx, id starbase.Identity, groupID string) error {
	group, err := varGroupOf(ctx, tx, id.ProjectID, groupID)
	if err != nil {
		return err
	}
	if served := (starbase.VarGroup{ProjectID: group.projectID, Environment: group.environment}); !served.Fits(id) {
		return fmt.Errorf("%w: it is one of %s alone", errUnfit, group.environment)
	}
	return nil
}

var errUnfit = errors.New("the group is of another environment")

// unfit is the answer for a group that cannot be attached.
func unfit(i int, groupID string, err error) error {
	var want string
	switch {
	case errors.Is(err, ErrUnknownVarGroup):
		want = "the id of a var group of the project"
	case errors.Is(err, errUnfit):
		want = "a var group of this environment or of all; " + err.Error()
	default:
		return err
	}
	answer := adminapi.Invalid(starbase.FieldError{Field: fmt.Sprintf("var_groups[%d]", i), Value: fmt.Sprintf("%q", groupID), Want: want})
	answer.Status = http.StatusUnprocessableEntity
	return answer
}

// detachAll takes all groups from a service.
func detachAll(ctx context.Context, tx *db.Tx, id starbase.Identity) error {
	_, err := tx.ExecContext(
		ctx,
		`DELETE FROM service_var_groups WHERE project_id = ? AND environment = ? AND service_id = ?`,
		id.ProjectID,
		id.Environment,
		id.ServiceID,
	)
	return err
}

// varGroupsOf returns the statements that delete the groups of projects: those whose id is
// "= ?", say.
func varGroupsOf(projects string) []string {
	return []string{
		`DELETE FROM service_var_groups WHERE project_id ` + projects,
		`DELETE FROM var_group_entries WHERE var_group_id IN (SELECT id FROM var_groups WHERE project_id ` + projects + `)`,
		`DELETE FROM var_groups WHERE project_id ` + projects,
	}
}

// servedVarGroups returns the groups of a cluster with their entries, and the groups of each
// service.
func (s *Store) servedVarGroups(
	ctx context.Context,
	tx *db.Tx,
	clusterID string,
) (groups []starbase.VarGroup, attached map[starbase.Identity][]starbase.ServiceVarGroup, err error) {
	rows, err := tx.QueryContext(
		ctx,
		`SELECT g.id, g.project_id, g.environment, g.checksum FROM var_groups g JOIN projects p ON p.id = g.project_id
		WHERE p.cluster_id = ? AND p.deleted = 0 ORDER BY g.id`,
		clusterID,
	)
	groups, err = db.Collect(rows, err, func(rows *sql.Rows, g *starbase.VarGroup) error {
		return rows.Scan(&g.VarGroupID, &g.ProjectID, &g.Environment, &g.Checksum)
	})
	if err != nil || len(groups) == 0 {
		return groups, nil, err
	}
	rows, err = tx.QueryContext(ctx, `SELECT e.var_group_id, e.name, e.secret, e.key_id, e.sealed FROM var_group_entries e
		JOIN var_groups g ON g.id = e.var_group_id JOIN projects p ON p.id = g.project_id WHERE p.cluster_id = ?`, clusterID)
	entries, err := s.open(rows, err)
	if err != nil {
		return nil, nil, err
	}
	for i := range groups {
		groups[i].Entries = map[string]string{}
		for name, e := range entries[groups[i].VarGroupID] {
			groups[i].Entries[name] = e.value
		}
	}
	type row struct {
		id    starbase.Identity
		group starbase.ServiceVarGroup
	}
	rows, err = tx.QueryContext(
		ctx,
		`SELECT a.project_id, a.environment, a.service_id, a.var_group_id, a.attach_order FROM service_var_groups a
		JOIN projects p ON p.id = a.project_id WHERE p.cluster_id = ? ORDER BY a.project_id, a.environment, a.service_id, a.attach_order`,
		clusterID,
	)
	list, err := db.Collect(rows, err, func(rows *sql.Rows, r *row) error {
		return rows.Scan(&r.id.ProjectID, &r.id.Environment, &r.id.ServiceID, &r.group.VarGroupID, &r.group.AttachOrder)
	})
	attached = map[starbase.Identity][]starbase.ServiceVarGroup{}
	for _, r := range list {
		attached[r.id] = append(attached[r.id], r.group)
	}
	return groups, attached, err
}
