package regions

import (
	"context"
	"log/slog"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
)

// leases observes the agents of the regions.
type leases struct {
	store  *Store
	logger *slog.Logger

	regions, silence, lag      *prometheus.Desc
	instances, sentinels, held *prometheus.Desc
	token                      *prometheus.Desc
}

func newLeases(store *Store, logger *slog.Logger) *agents.Gauges {
	const region = "region"
	g := &agents.Gauges{}
	l := &leases{
		store: store, logger: logger,
		regions: g.New("regions",
			"Regions by the lease of their agent: alive, silent (no heartbeat for 2 minutes) or never (no heartbeat yet).", "lease"),
		silence: g.New("region_silence_seconds",
			"Time since the last heartbeat of the region's agent; no series before the first.", region),
		lag: g.New("region_lag_versions", "Versions between the head of the region's log and the lowest position "+
			"that its agent has reported within a day; no series before the first.", region),
		token: g.New("region_token_expires_seconds",
			"Time until the token of the region's agent ends; no series for one without an end, or that the agent does not use.", region),
		instances: g.New("region_instances", "Instances of the region by the status that its agent reported: "+
			"pending, running, failed or, of a silent region, inactive.", region, "status"),
		sentinels: g.New("region_sentinels", "Sentinels that should run in the region, by the health that its agent reported; "+
			"of a silent region unknown.", region, "health"),
		held: g.New("region_held_deletions", "Deletions that the region's agent holds until a person approves them.", region),
	}
	g.Read = l.read
	return g
}

func (l *leases) read(ctx context.Context, set agents.Set) {
	regions, err := l.store.positions(ctx, countResources)
	if err != nil {
		l.logger.WarnContext(ctx, "regions not counted", slog.Any("error", err))
		return
	}
	count := agents.Contacts{}
	for i := range regions {
		r := &regions[i]
		for status, n := range r.Instances {
			set(l.instances, float64(n), r.Scope, status)
		}
		for health, n := range r.Health {
			set(l.sentinels, float64(n), r.Scope, health)
		}
		held := 0
		if r.HeldDeletions != nil {
			held = r.HeldDeletions.Count
		}
		set(l.held, float64(held), r.Scope)
		if r.Reported {
			set(l.lag, float64(max(r.Head, r.Applied)-r.Applied), r.Scope)
		}
		agents.Expires(l.store.TokenLifetime, r.TokenUntil, r.HeartbeatAt, set, l.token, r.Scope)
		count.Add(r.HeartbeatAt, set, l.silence, r.Scope)
	}
	count.Set(set, l.regions)
}

// observe returns what notes how long a report has taken, and how it ended.
func (s *Service) observe(resource string) func(err error) {
	began := time.Now()
	return func(err error) {
		result := "ok"
		if err != nil {
			result = connect.CodeOf(err).String()
		}
		s.reports.WithLabelValues(resource, result).Observe(time.Since(began).Seconds())
	}
}
