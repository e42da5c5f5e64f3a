package clusters

import (
	"context"
	"log/slog"
	"sync"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

// placed compares where agents say that they run with where their clusters are registered.
type placed struct {
	mu   sync.Mutex
	said map[string][2]string // by cluster, the two regions that were logged last
}

// check logs once that an agent has another region than its cluster: one of the two is wrong. An agent that tells
// none is not asked.
func (p *placed) check(ctx context.Context, store *Store, logger *slog.Logger, clusterID, region string) {
	if region == "" {
		return
	}
	var registered string
	err := store.Database.Read(ctx, func(tx *db.Tx) error {
		return tx.QueryRowContext(ctx, `SELECT region FROM clusters WHERE id = ?`, clusterID).Scan(&registered)
	})
	if err != nil {
		logger.DebugContext(ctx, "region of a cluster was not read", slog.String("cluster_id", clusterID), slog.Any("error", err))
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	pair := [2]string{region, registered}
	switch {
	case region == registered:
		delete(p.said, clusterID)
		return
	case p.said[clusterID] == pair:
		return
	case p.said == nil:
		p.said = map[string][2]string{}
	}
	p.said[clusterID] = pair
	logger.WarnContext(ctx, "the agent of a cluster has another region than the cluster: correct STARFORM_REGION, or put the cluster again",
		slog.String("cluster_id", clusterID), slog.String("agent", region), slog.String("cluster", registered))
}
