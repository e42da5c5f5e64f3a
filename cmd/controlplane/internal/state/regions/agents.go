package regions

import (
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
)

// Agents returns what regions have in common with clusters: the tokens of their agents, the
// deletions that these hold, and their removal. The log of a region stays when it is removed, so
// that no other region is taken for it; see [Store.PutRegion].
func (s *Store) Agents() agents.Scopes {
	return agents.Scopes{
		Database: s.Database,
		Kind:     audit.KindRegion,
		Lifetime: s.TokenLifetime,
		Contact:  `heartbeat_at`,
		Wanted: `(SELECT count(*) FROM deployment_topology WHERE region_id = regions.id AND desired_state <> 'archived')
			+ (SELECT count(*) FROM sentinels WHERE region_id = regions.id AND desired_state <> 'archived')
			+ (SELECT count(*) FROM cilium_network_policies WHERE region_id = regions.id AND deleted = 0)`,
		Rows: []string{
			`DELETE FROM withdrawals WHERE region_id = ?`,
			`DELETE FROM instances WHERE region_id = ?`,
			`DELETE FROM deployment_topology WHERE region_id = ?`,
			`DELETE FROM sentinels WHERE region_id = ?`,
			`DELETE FROM cilium_network_policies WHERE region_id = ?`,
			`DELETE FROM regions WHERE id = ?`,
			`DELETE FROM deployments WHERE NOT EXISTS (SELECT 1 FROM deployment_topology t WHERE t.deployment_id = deployments.id)`,
		},
		Unknown:  ErrUnknownRegion,
		NotEmpty: "the region has resources that are not archived; delete them first, or give them up with ?abandon=true",
		Alive:    "the region's agent sends heartbeats; stop it, and wait two minutes",
	}
}
