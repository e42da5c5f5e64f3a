package clusters

import (
	"errors"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
)

// Why a cluster cannot be removed.
var (
	// ErrNotEmpty is a cluster with projects that are not deleted.
	ErrNotEmpty = errors.New("the cluster has projects")
	// ErrAlive is a cluster whose agent asks for its desired state.
	ErrAlive = errors.New("the agent of the cluster is alive")
)

// Agents returns what clusters have in common with regions: the tokens of their agents, the
// deletions that these hold, and their removal.
func (s *Store) Agents() agents.Scopes {
	const projects = `(SELECT id FROM projects WHERE cluster_id = ?)`
	return agents.Scopes{
		Database: s.Database,
		Kind:     audit.KindCluster,
		Contact:  `CASE WHEN reported_at > last_pull_at THEN reported_at ELSE last_pull_at END`,
		Wanted:   `(SELECT count(*) FROM projects WHERE cluster_id = clusters.id AND deleted = 0)`,
		Rows: append(
			varGroupsOf(`IN `+projects),
			`DELETE FROM service_status WHERE cluster_id = ?`,
			`DELETE FROM capacity_reports WHERE cluster_id = ?`,
			`DELETE FROM snapshot_minutes WHERE cluster_id = ?`,
			`DELETE FROM services WHERE project_id IN `+projects,
			`DELETE FROM projects WHERE cluster_id = ?`,
			`DELETE FROM clusters WHERE id = ?`,
		),
		Unknown: ErrUnknownCluster, NotEmpty: ErrNotEmpty, Alive: ErrAlive,
	}
}
