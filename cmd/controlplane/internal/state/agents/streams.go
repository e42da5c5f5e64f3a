package agents

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// ErrRevoked ends the streams of a token that is not valid any more.
var ErrRevoked = errors.New("the credential was revoked")

// RevokeInterval is how often the tokens of open streams are checked. One query checks the
// tokens of all streams.
const RevokeInterval = 2 * time.Second

// Streams are the open streams of agents that have tokens of their own. The zero value has none. It is
// safe for concurrent use.
type Streams struct {
	mu   sync.Mutex
	open map[*Agent]context.CancelCauseFunc
}

// Open returns a context that ends with [ErrRevoked] once the token of its agent is revoked.
// Close must be called.
func (s *Streams) Open(ctx context.Context) (ended context.Context, closed func()) {
	agent := Of(ctx)
	if agent.Hash == "" { // the shared token, which the process has for life
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[*Agent]context.CancelCauseFunc{}
	}
	s.open[&agent] = cancel
	return ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		cancel(nil)
		delete(s.open, &agent)
	}
}

// IDs returns the scopes whose agents have open streams, in order, each once.
func (s *Streams) IDs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]string, 0, len(s.open))
	for agent := range s.open {
		ids = append(ids, agent.ID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Len returns how many streams are open.
func (s *Streams) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// EndRevoked ends the streams whose token is not valid any more, here or in another replica. While
// the database cannot be read, they go on. Without open streams it asks nothing.
func (s *Streams) EndRevoked(ctx context.Context, scopes Scopes, logger *slog.Logger) {
	if s.Len() == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, RevokeInterval)
	defer cancel()
	valid, err := scopes.Valid(ctx)
	if err != nil {
		logger.WarnContext(ctx, "credentials of open streams not checked", slog.Any("error", err))
		return
	}
	s.mu.Lock()
	open := maps.Clone(s.open)
	s.mu.Unlock()
	ended := 0
	for agent, cancel := range open {
		if !valid[agent.Hash] {
			cancel(ErrRevoked)
			ended++
		}
	}
	if ended > 0 {
		logger.WarnContext(ctx, "streams ended: their credential was revoked", slog.Int("streams", ended))
	}
}

// LogRoute describes a path at which a [statesync.Handler] serves the items of a scope.
func LogRoute(path, name, summary string) adminapi.Route {
	number := map[string]any{"type": "integer", "format": "uint64", "minimum": 0}
	text, duration := map[string]any{"type": "string"}, map[string]any{"type": "string", "pattern": `^[0-9.]+(ms|s|m)$`}
	route := adminapi.Route{Method: http.MethodGet, Path: path, Operation: adminapi.Operation{
		Name: name, Summary: summary,
		Query: []adminapi.Parameter{
			{Name: "after", Description: "The version of the cursor. Without it: from the beginning.", Schema: number},
			{Name: "epoch", Description: "The epoch of the cursor.", Schema: text},
			{Name: "floor", Description: "The floor of the cursor.", Schema: number},
			{Name: "mark", Description: "The mark of the cursor.", Schema: text},
			{Name: "limit", Description: "How many items a page has at most: 1 to 1000, by default 500.", Schema: number},
			{Name: "wait", Description: "How long to wait for a page with items, at most 60s.", Schema: duration},
			{Name: "watch", Description: "Answer with a stream of frames, one a line.", Schema: text},
			{Name: "heartbeat", Description: "The longest time between two frames of a stream, 1s to 60s.", Schema: duration},
			{
				Name: "collection", Description: "Items of this collection alone. May be given several times.",
				Schema: map[string]any{"type": "array", "items": text},
			},
		},
		Answers: map[int]any{http.StatusOK: statesync.Frame{}},
	}}
	return route.Refuses(http.StatusNotFound, "unknown_scope").Refuses(http.StatusGone, "resync_required").
		Refuses(http.StatusTooManyRequests, "too_many_requests").Refuses(http.StatusServiceUnavailable, "end", "unavailable")
}
