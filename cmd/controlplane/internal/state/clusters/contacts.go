package clusters

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
)

// contacts observes the agents of the clusters.
type contacts struct {
	store  *Store
	logger *slog.Logger

	bodies *bodies
	states counted

	clusters, silence, lag, token, lifetime      *prometheus.Desc
	services, held, tombstone, billing           *prometheus.Desc
	pods, softLimit, stateBytes, stateBytesLimit *prometheus.Desc
}

func newContacts(store *Store, bodies *bodies, logger *slog.Logger) *agents.Gauges {
	const id, region = "cluster_id", "region"
	g := &agents.Gauges{}
	c := &contacts{
		store: store, logger: logger, bodies: bodies,
		clusters: g.New("clusters",
			"Clusters by the last request of their agent: alive, silent (none for 2 minutes) or never (none yet).", "contact"),
		silence: g.New("cluster_silence_seconds",
			"Time since the cluster's agent last asked or reported; no series before the first.", id, region),
		lag: g.New("cluster_lag_generations",
			"Generations between the state that is served and the newest that the cluster's agent has reported on.", id, region),
		token: g.New("cluster_token_expires_seconds",
			"Time until the token of the cluster's agent ends; no series for one without an end, or that the agent does not use.", id, region),
		lifetime: g.New("agent_token_lifetime_seconds",
			"How long a token is valid that an agent has renewed; no series if tokens have no end."),
		services: g.New("cluster_services", "Services of the cluster by where they stand: "+
			"the phase that its agent reported of the wanted state, or Unknown, Pending or Deleted.", id, region, "standing"),
		held: g.New("cluster_held_deletions", "Deletions that the cluster's agent holds until a person approves them.", id, region),
		tombstone: g.New("cluster_oldest_tombstone_seconds", "Age of the oldest deleted service or project that the cluster's agent "+
			"has not reported to be gone for 7 days; no series without one.", id, region),
		billing: g.New("cluster_billing_gap_minutes", "Minutes without a billing record, of the 60 up to the newest one "+
			"by the agent's clock; no series without records.", id, region),
		pods:      g.New("cluster_pods", "Pods of customers in the newest capacity report of the cluster.", id, region),
		softLimit: g.New("cluster_pods_soft_limit", "Pods that the cluster is meant for, in its newest capacity report.", id, region),
		stateBytes: g.New("cluster_desired_state_bytes",
			"Size of the desired state that this process has served last to the cluster's agent; no series before.", id, region),
		stateBytesLimit: g.New("desired_state_limit_bytes", "Size above which agents refuse a desired state."),
	}
	g.Read = c.read
	return g
}

func (c *contacts) read(ctx context.Context, set agents.Set) {
	clusters, err := c.store.Clusters(ctx)
	if err != nil {
		c.logger.WarnContext(ctx, "clusters not counted", slog.Any("error", err))
		return
	}
	c.readStates(ctx, clusters, set)
	if lifetime := c.store.TokenLifetime; lifetime > 0 {
		set(c.lifetime, lifetime.Seconds())
	}
	count := agents.Contacts{}
	for i := range clusters {
		cluster := &clusters[i]
		lag := cluster.Generation
		if cluster.ReportedEpoch == cluster.Epoch {
			lag -= cluster.ReportedGeneration
		}
		set(c.lag, float64(lag), cluster.ClusterID, cluster.Region)
		agents.Expires(c.store.TokenLifetime, cluster.TokenUntil, cluster.Contact(), set, c.token, cluster.ClusterID, cluster.Region)
		count.Add(cluster.Contact(), set, c.silence, cluster.ClusterID, cluster.Region)
	}
	count.Set(set, c.clusters)
}

// readStates observes what the clusters should run and do run.
func (c *contacts) readStates(ctx context.Context, clusters []Cluster, set agents.Set) {
	set(c.stateBytesLimit, starbase.MaxBody)
	states, err := c.states.of(ctx, c.store, clusters)
	if err != nil {
		c.logger.WarnContext(ctx, "states of the clusters not counted", slog.Any("error", err))
		return
	}
	bodies := c.bodies.of(clusters)
	for i := range clusters {
		id, region := clusters[i].ClusterID, clusters[i].Region
		held := 0
		if clusters[i].HeldDeletions != nil {
			held = clusters[i].HeldDeletions.Count
		}
		set(c.held, float64(held), id, region)
		if size, ok := bodies[id]; ok {
			set(c.stateBytes, float64(size), id, region)
		}
		state := states[id]
		if state == nil { // it is younger than the count
			continue
		}
		for standing, n := range state.standings {
			set(c.services, float64(n), id, region, string(standing))
		}
		if !state.tombstone.IsZero() {
			set(c.tombstone, max(0, time.Since(state.tombstone).Seconds()), id, region)
		}
		if state.gaps >= 0 {
			set(c.billing, float64(state.gaps), id, region)
		}
		if state.latest != nil {
			set(c.pods, float64(state.latest.Pods), id, region)
			set(c.softLimit, float64(state.latest.SoftLimit), id, region)
		}
	}
}
