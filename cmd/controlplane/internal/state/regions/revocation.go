package regions

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
)

// Start ends streams within a few seconds after their credential was revoked, here or in
// another replica, until ctx ends. While the database cannot be read, they go on. It also
// forgets the messages of regions that have had no stream for a minute.
func (s *Service) Start(ctx context.Context) error {
	ticker := time.NewTicker(agents.RevokeInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		s.tidy(ctx, time.Now())
	}
}

// tidy drops the messages that no stream needs as of now, and ends revoked streams.
func (s *Service) tidy(ctx context.Context, now time.Time) {
	s.caches.drop(now.Add(-linger))
	s.opened.EndRevoked(ctx, s.gate.Scopes, s.logger)
}

// revoked returns the error of a stream whose ctx has ended because its credential was
// revoked, nil for any other.
func revoked(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), agents.ErrRevoked) {
		return connect.NewError(connect.CodeUnauthenticated, agents.ErrRevoked)
	}
	return nil
}
