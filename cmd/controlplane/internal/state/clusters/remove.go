package clusters

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// Why a cluster cannot be removed.
var (
	// ErrNotEmpty is a cluster with projects that are not deleted.
	ErrNotEmpty = errors.New("the cluster has projects")
	// ErrAlive is a cluster whose agent asks for its desired state.
	ErrAlive = errors.New("the agent of the cluster is alive")
)

// RemoveCluster removes a cluster and all that is stored of it. What its agent has made
// there stays. It must have no project that is not deleted, unless abandon is true, and no
// agent that is alive: that one would take the removal for a loss, and delete nothing.
func (s *Store) RemoveCluster(ctx context.Context, clusterID string, abandon bool) error {
	err := s.Database.Write(ctx, func(tx *db.Tx) error {
		cluster, err := clusterByID(ctx, tx, clusterID)
		if err != nil {
			return err
		}
		var projects int
		var token string
		if err := tx.QueryRowContext(ctx, `SELECT token_hash, (SELECT count(*) FROM projects WHERE cluster_id = clusters.id AND deleted = 0) FROM clusters WHERE id = ?`, clusterID).
			Scan(&token, &projects); err != nil {
			return err
		}
		silent := time.Since(cluster.Contact())
		switch {
		case projects > 0 && !abandon:
			return fmt.Errorf("%w: %d", ErrNotEmpty, projects)
		case silent < adminapi.Silence:
			return fmt.Errorf("%w: %s ago", ErrAlive, silent.Round(time.Second))
		}
		if err := dropVarGroups(ctx, tx, `IN (SELECT id FROM projects WHERE cluster_id = ?)`, clusterID); err != nil {
			return err
		}
		for _, statement := range []string{
			`DELETE FROM service_status WHERE cluster_id = ?`,
			`DELETE FROM capacity_reports WHERE cluster_id = ?`,
			`DELETE FROM snapshot_minutes WHERE cluster_id = ?`,
			`DELETE FROM services WHERE project_id IN (SELECT id FROM projects WHERE cluster_id = ?)`,
			`DELETE FROM projects WHERE cluster_id = ?`,
			`DELETE FROM clusters WHERE id = ?`,
		} {
			if _, err := tx.ExecContext(ctx, statement, clusterID); err != nil {
				return err
			}
		}
		return audit.Record(
			ctx,
			tx,
			audit.Change{Verb: audit.Removal(abandon), Kind: audit.KindCluster, Name: clusterID, Outcome: audit.Deleted, Ended: tokens.Mark(token)},
		)
	})
	if err != nil {
		return fmt.Errorf("remove cluster %s: %w", clusterID, err)
	}
	return nil
}
