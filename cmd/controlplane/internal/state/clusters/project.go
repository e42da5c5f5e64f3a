package clusters

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// Project is what an administrator puts for a project.
type Project struct {
	// ClusterID is the cluster the project lives on, for life.
	ClusterID string `json:"cluster_id"`
	// WorkspaceID is the billing boundary, a UUID.
	WorkspaceID string `json:"workspace_id"`
	// WorkspaceSlug distinguishes projects of the same slug.
	WorkspaceSlug string `json:"workspace_slug"`
	// Slug is the short name; the namespace is made from the first one.
	Slug string `json:"slug"`
	// Quota, Limits and Egress are as in [starbase.Project].
	Quota  map[string]string `json:"quota"`
	Limits starbase.Limits   `json:"limits"`
	Egress []starbase.Egress `json:"egress"`
}

// ProjectChange is the outcome of [Store.PutProject].
type ProjectChange struct {
	Change
	// Namespace is the namespace of the project, decided when the project was
	// first put and the same ever after.
	Namespace string `json:"namespace"`
}

// projectSettings is the part of a project that is kept as JSON.
type projectSettings struct {
	Quota  map[string]string `json:"quota,omitempty"`
	Limits starbase.Limits   `json:"limits,omitzero"`
	Egress []starbase.Egress `json:"egress,omitempty"`
}

// projectRow is a project as the database has it.
type projectRow struct {
	clusterID, workspaceID, workspaceSlug, slug, namespace, settings string
	deleted                                                          bool
}

// PutProject creates, changes or revives the project. It must be valid.
func (s *Store) PutProject(ctx context.Context, projectID string, project Project) (change ProjectChange, err error) {
	settings, err := json.Marshal(projectSettings{Quota: project.Quota, Limits: project.Limits, Egress: project.Egress})
	if err != nil {
		return ProjectChange{}, fmt.Errorf("put project %s: %w", projectID, err)
	}
	want := projectRow{
		clusterID: project.ClusterID, workspaceID: project.WorkspaceID, workspaceSlug: project.WorkspaceSlug,
		slug: project.Slug, settings: string(settings),
	}
	err = s.Database.Write(ctx, func(tx *db.Tx) error {
		change = ProjectChange{}
		if _, err := clusterByID(ctx, tx, project.ClusterID); err != nil {
			return err
		}
		have, err := projectByID(ctx, tx, projectID)
		switch {
		case errors.Is(err, ErrUnknownProject):
			change.Created = true
			if want.namespace, err = freeNamespace(ctx, tx, projectID, project); err != nil {
				return err
			}
		case err != nil:
			return err
		case have.clusterID != project.ClusterID:
			return fmt.Errorf("%w: %s", ErrProjectMoved, have.clusterID)
		default:
			want.namespace = have.namespace
		}
		change.Namespace, change.Changed = want.namespace, change.Created || have != want
		if err := change.number(ctx, tx, project.ClusterID); err != nil || !change.Changed {
			return err
		}
		if _, err = tx.ExecContext(ctx, `INSERT INTO projects
			(id, cluster_id, workspace_id, workspace_slug, slug, namespace, settings, deleted, generation, updated_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?, ?)
			ON CONFLICT (id) DO UPDATE SET workspace_id = excluded.workspace_id, workspace_slug = excluded.workspace_slug,
			slug = excluded.slug, settings = excluded.settings, deleted = 0, generation = excluded.generation, updated_at = excluded.updated_at`,
			projectID, want.clusterID, want.workspaceID, want.workspaceSlug, want.slug, want.namespace, want.settings,
			change.Generation, time.Now().UnixMilli()); err != nil {
			return err
		}
		return audit.Record(
			ctx,
			tx,
			audit.Change{Verb: "put", Kind: audit.KindProject, Name: projectID, Outcome: audit.CreatedOr(change.Created || have.deleted)},
		)
	})
	if err != nil {
		return ProjectChange{}, fmt.Errorf("put project %s: %w", projectID, err)
	}
	return change, nil
}

// DeleteProject makes tombstones of the project and of all its services, and deletes its
// var groups.
func (s *Store) DeleteProject(ctx context.Context, projectID string) (change Change, err error) {
	err = s.Database.Write(ctx, func(tx *db.Tx) error {
		change = Change{}
		project, err := projectByID(ctx, tx, projectID)
		if err != nil {
			return err
		}
		change.Changed = !project.deleted
		if err := change.number(ctx, tx, project.clusterID); err != nil || project.deleted {
			return err
		}
		if err := tx.ExecEach(ctx, projectID, varGroupsOf(`= ?`)...); err != nil {
			return err
		}
		now := time.Now().UnixMilli()
		if _, err := tx.ExecContext(
			ctx,
			`UPDATE services SET deleted = 1, spec = '{}', hostname = '', generation = ?, updated_at = ? WHERE project_id = ? AND deleted = 0`,
			change.Generation,
			now,
			projectID,
		); err != nil {
			return err
		}
		if _, err = tx.ExecContext(
			ctx,
			`UPDATE projects SET deleted = 1, generation = ?, updated_at = ? WHERE id = ?`,
			change.Generation,
			now,
			projectID,
		); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Change{Verb: "delete", Kind: audit.KindProject, Name: projectID, Outcome: audit.Deleted})
	})
	if err != nil {
		return Change{}, fmt.Errorf("delete project %s: %w", projectID, err)
	}
	return change, nil
}

func projectByID(ctx context.Context, tx *db.Tx, projectID string) (p projectRow, err error) {
	err = tx.QueryRowContext(ctx, `SELECT cluster_id, workspace_id, workspace_slug, slug, namespace, settings, deleted FROM projects WHERE id = ?`+tx.Lock, projectID).
		Scan(&p.clusterID, &p.workspaceID, &p.workspaceSlug, &p.slug, &p.namespace, &p.settings, &p.deleted)
	return p, db.Missing(err, ErrUnknownProject)
}

// freeNamespace returns the first of the project's possible namespaces that
// no other project of the cluster has. Tombstones count: their namespace may
// still be there.
func freeNamespace(ctx context.Context, tx *db.Tx, projectID string, project Project) (string, error) {
	candidates := namespaces(projectID, project)
	for _, namespace := range candidates {
		var taken int
		err := tx.QueryRowContext(ctx, `SELECT count(*) FROM projects WHERE cluster_id = ? AND namespace = ?`, project.ClusterID, namespace).
			Scan(&taken)
		if err != nil {
			return "", err
		}
		if taken == 0 {
			return namespace, nil
		}
	}
	return "", fmt.Errorf("no free namespace among %q", candidates)
}

// namespaces returns the possible namespaces of the project, the best first:
// proj-<slug>, proj-<workspace slug>-<slug>, and, for when both are taken or
// longer than Kubernetes allows, the slug cut and followed by a hash of the
// project id.
func namespaces(projectID string, project Project) []string {
	const longest = 63 // RFC 1123 label
	var names []string
	for _, name := range []string{starbase.NamespacePrefix + project.Slug, starbase.NamespacePrefix + project.WorkspaceSlug + "-" + project.Slug} {
		if len(name) <= longest {
			names = append(names, name)
		}
	}
	sum := sha256.Sum256([]byte(projectID))
	tail := "-" + hex.EncodeToString(sum[:4])
	head := starbase.NamespacePrefix + project.Slug
	head = strings.TrimRight(head[:min(len(head), longest-len(tail))], "-")
	return append(names, head+tail)
}
