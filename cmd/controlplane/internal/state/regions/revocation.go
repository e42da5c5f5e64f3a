package regions

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
)

// errRevoked ends the streams of a credential that is not valid any more.
var errRevoked = errors.New("the credential was revoked")

// revokeInterval is how often the credentials of open streams are checked. One query
// checks the credentials of all streams.
const revokeInterval = 2 * time.Second

// opened are the open streams with a credential of the database, by its hash.
type opened struct {
	mu     sync.Mutex
	byHash map[string]map[*context.CancelCauseFunc]struct{}
}

// open returns a context that ends with errRevoked once the credential of its agent is revoked.
// Close must be called.
func (o *opened) open(ctx context.Context) (ended context.Context, closed func()) {
	hash := agents.Of(ctx).Hash
	if hash == "" { // the shared token, which the process has for life
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byHash == nil {
		o.byHash = map[string]map[*context.CancelCauseFunc]struct{}{}
	}
	if o.byHash[hash] == nil {
		o.byHash[hash] = map[*context.CancelCauseFunc]struct{}{}
	}
	o.byHash[hash][&cancel] = struct{}{}
	return ctx, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		cancel(nil)
		if delete(o.byHash[hash], &cancel); len(o.byHash[hash]) == 0 {
			delete(o.byHash, hash)
		}
	}
}

func (o *opened) any() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.byHash) > 0
}

// revoke ends the streams whose credential is not among the valid ones, and returns how
// many.
func (o *opened) revoke(valid map[string]bool) (ended int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for hash, streams := range o.byHash {
		if valid[hash] {
			continue
		}
		for cancel := range streams {
			(*cancel)(errRevoked)
			ended++
		}
	}
	return ended
}

// Start ends streams within a few seconds after their credential was revoked, here or in
// another replica, until ctx ends. While the database cannot be read, they go on. It also
// forgets the messages of regions that have had no stream for a minute.
func (s *Service) Start(ctx context.Context) error {
	ticker := time.NewTicker(revokeInterval)
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
	if s.opened.any() {
		s.endRevoked(ctx)
	}
}

func (s *Service) endRevoked(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, revokeInterval)
	defer cancel()
	valid, err := s.gate.Scopes.Valid(ctx)
	if err != nil {
		s.logger.WarnContext(ctx, "credentials of open streams not checked", slog.Any("error", err))
		return
	}
	if ended := s.opened.revoke(valid); ended > 0 {
		s.logger.WarnContext(ctx, "streams ended: their credential was revoked", slog.Int("streams", ended))
	}
}

// revoked returns the error of a stream whose ctx has ended because its credential was
// revoked, nil for any other.
func revoked(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), errRevoked) {
		return connect.NewError(connect.CodeUnauthenticated, errRevoked)
	}
	return nil
}
