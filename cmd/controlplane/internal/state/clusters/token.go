package clusters

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
)

func (s *Store) tokens() tokens.Store {
	return tokens.Store{Database: s.Database, Table: "clusters", Kind: audit.KindCluster}
}

// AfterRestore revokes tokens of clusters; see [tokens.Store.AfterRestore].
func (s *Store) AfterRestore(ctx context.Context, revoke func(id, mark string) bool) ([]tokens.Restored, error) {
	return s.tokens().AfterRestore(ctx, revoke)
}

// Authenticate returns the id of the cluster whose token this is, or
// [tokens.ErrUnknown].
func (s *Store) Authenticate(ctx context.Context, token string) (clusterID string, err error) {
	return s.tokens().Authenticate(ctx, token)
}

// RotateToken gives the cluster a new token and returns it. The old token
// stays valid for overlap; zero revokes it at once. A token that was still
// valid from a rotation before is revoked in either case.
func (s *Store) RotateToken(ctx context.Context, clusterID string, overlap time.Duration) (token string, err error) {
	token, err = s.tokens().Rotate(ctx, clusterID, overlap)
	if err != nil {
		return "", fmt.Errorf("cluster %s: %w", clusterID, db.Missing(err, ErrUnknownCluster))
	}
	return token, nil
}
