package clusters

import (
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
)

// Agents returns what clusters have in common with regions: the tokens of their agents, the
// deletions that these hold, and their removal.
func (s *Store) Agents() agents.Scopes {
	const projects = `(SELECT id FROM projects WHERE cluster_id = ?)`
	return agents.Scopes{
		Database: s.Database,
		Kind:     audit.KindCluster,
		Lifetime: s.TokenLifetime,
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
		Unknown:  ErrUnknownCluster,
		NotEmpty: "the cluster has projects that are not deleted; delete them first, or give them up with ?abandon=true",
		Alive:    "the cluster's agent asks for its desired state; stop it, and wait two minutes",
	}
}
