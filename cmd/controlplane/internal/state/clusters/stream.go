package clusters

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// itemsPath is where a [statesync.Client] whose URL is a cluster's finds the version.
const itemsPath = "scopes/" + starbase.VersionScope + "/items"

// contactEvery is how often an open stream counts as a contact of its agent: as often as a pull.
const contactEvery = 30 * time.Second

// streams reports whether a request of an agent may last.
func streams(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, agentPrefix) && strings.HasSuffix(r.URL.Path, "/"+itemsPath)
}

// streamVersion answers with the version of the desired state, and with each later one.
func (s *Server) streamVersion(w http.ResponseWriter, r *http.Request) error {
	control := http.NewResponseController(w)
	_, _ = control.SetReadDeadline(time.Time{}), control.SetWriteDeadline(time.Time{}) // recorders have none
	ctx, closed := s.streams.Open(r.Context())
	defer closed()
	if r.URL.Query().Has("watch") {
		within, opened, err := s.gate.Door.Open(ctx)
		if err != nil {
			return err
		}
		defer opened()
		ctx, w = within, agents.OnWrite(w, opened)
	}
	r = r.Clone(ctx)
	r.URL.Path, r.URL.RawPath = "/scopes/"+r.PathValue("cluster_id")+"/items", ""
	s.items.ServeHTTP(w, r)
	return agents.Slow(ctx)
}

// Start serves the streams of agents until ctx ends, then ends them and returns nil. All else is
// answered without it.
func (s *Server) Start(ctx context.Context) error {
	group := reconcile.Group{Members: []reconcile.Member{
		{Name: "versions", Starter: s.versions},
		{Name: "feed", Starter: s.items.Server},
		{Name: "streams", Starter: reconcile.StarterFunc(s.tend)},
	}}
	return group.Start(ctx)
}

// tend ends streams within a few seconds after their token was revoked, and notes contacts.
func (s *Server) tend(ctx context.Context) error {
	revoke, contact := time.NewTicker(agents.RevokeInterval), time.NewTicker(contactEvery)
	defer revoke.Stop()
	defer contact.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-revoke.C:
			s.streams.EndRevoked(ctx, s.gate.Scopes, s.logger)
		case <-contact.C:
			if err := s.store.recordContacts(ctx, s.streams.IDs()); err != nil {
				s.logger.WarnContext(ctx, "contacts of open streams not recorded", slog.Any("error", err))
			}
		}
	}
}

// recordContacts notes that the agents of the clusters are there.
func (s *Store) recordContacts(ctx context.Context, clusterIDs []string) error {
	if len(clusterIDs) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return s.Database.Write(ctx, func(tx *db.Tx) error {
		for _, id := range clusterIDs { // in order: another replica may write the same rows
			if _, err := tx.ExecContext(ctx, `UPDATE clusters SET last_pull_at = ? WHERE id = ?`, time.Now().UnixMilli(), id); err != nil {
				return err
			}
		}
		return nil
	})
}

// newItems serves the versions over HTTP, to callers that were admitted before.
func newItems(log statesync.Log, heartbeat time.Duration, logger *slog.Logger) *statesync.Handler {
	return &statesync.Handler{
		Server:    &statesync.Server{Log: log, Heartbeat: heartbeat, Logger: logger},
		Authorize: func(*http.Request, string) (string, error) { return "agent", nil },
		Logger:    logger,
	}
}

// streamRoute describes the stream.
func (s *Server) streamRoute() adminapi.Route {
	route := agents.LogRoute(itemsPath, "watchVersion",
		"Return the version of the desired state as the one item of a scope; with watch a stream of frames, one a line, as soon as it changes.")
	route.Handle = s.streamVersion
	return route
}
