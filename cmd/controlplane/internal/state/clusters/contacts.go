package clusters

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
)

// scrapeTimeout bounds the query of one scrape.
const scrapeTimeout = 5 * time.Second

// contacts observes the agents of the clusters, at each scrape. A cluster that is removed
// has no series any more.
type contacts struct {
	store  *Store
	logger *slog.Logger

	bodies *bodies
	states counted

	clusters, silence, lag                       *prometheus.Desc
	services, held, tombstone, billing           *prometheus.Desc
	pods, softLimit, stateBytes, stateBytesLimit *prometheus.Desc
}

func newContacts(store *Store, bodies *bodies, logger *slog.Logger) *contacts {
	const prefix = "trueup_controlplane_cluster"
	labels := []string{"cluster_id", "region"}
	return &contacts{
		store:  store,
		logger: logger,
		bodies: bodies,
		clusters: prometheus.NewDesc(
			prefix+"s",
			"Clusters by the last request of their agent: alive, silent (none for 2 minutes) or never (none yet).",
			[]string{"contact"},
			nil,
		),
		silence: prometheus.NewDesc(
			prefix+"_silence_seconds",
			"Time since the cluster's agent last asked or reported; no series before the first.",
			labels,
			nil,
		),
		lag: prometheus.NewDesc(
			prefix+"_lag_generations",
			"Generations between the state that is served and the newest that the cluster's agent has reported on.",
			labels,
			nil,
		),
		services: prometheus.NewDesc(
			prefix+"_services",
			"Services of the cluster by where they stand: the phase that its agent reported of the wanted state, or Unknown, Pending or Deleted.",
			[]string{"cluster_id", "region", "standing"},
			nil,
		),
		held: prometheus.NewDesc(prefix+"_held_deletions", "Deletions that the cluster's agent holds until a person approves them.", labels, nil),
		tombstone: prometheus.NewDesc(
			prefix+"_oldest_tombstone_seconds",
			"Age of the oldest deleted service or project that the cluster's agent has not reported to be gone for 7 days; no series without one.",
			labels,
			nil,
		),
		billing: prometheus.NewDesc(
			prefix+"_billing_gap_minutes",
			"Minutes without a billing record, of the 60 up to the newest one by the agent's clock; no series without records.",
			labels,
			nil,
		),
		pods: prometheus.NewDesc(prefix+"_pods", "Pods of customers in the newest capacity report of the cluster.", labels, nil),
		softLimit: prometheus.NewDesc(
			prefix+"_pods_soft_limit",
			"Pods that the cluster is meant for, in its newest capacity report.",
			labels,
			nil,
		),
		stateBytes: prometheus.NewDesc(
			prefix+"_desired_state_bytes",
			"Size of the desired state that this process has served last to the cluster's agent; no series before.",
			labels,
			nil,
		),
		stateBytesLimit: prometheus.NewDesc(
			"trueup_controlplane_desired_state_limit_bytes",
			"Size above which agents refuse a desired state.",
			nil,
			nil,
		),
	}
}

// Describe implements [prometheus.Collector].
func (c *contacts) Describe(to chan<- *prometheus.Desc) {
	to <- c.clusters
	to <- c.silence
	to <- c.lag
	for _, desc := range []*prometheus.Desc{
		c.services, c.held, c.tombstone, c.billing, c.pods, c.softLimit, c.stateBytes, c.stateBytesLimit,
	} {
		to <- desc
	}
}

// Collect implements [prometheus.Collector].
func (c *contacts) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout) //nolint:forbidigo // a scrape brings none
	defer cancel()
	clusters, err := c.store.Clusters(ctx)
	if err != nil {
		// An error here would drop the other metrics too.
		c.logger.WarnContext(ctx, "clusters not counted", slog.Any("error", err))
		return
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	c.collectStates(ctx, clusters, gauge)
	count := map[string]float64{"alive": 0, "silent": 0, "never": 0}
	for i := range clusters {
		cluster := &clusters[i]
		lag := cluster.Generation
		if cluster.ReportedEpoch == cluster.Epoch {
			lag -= cluster.ReportedGeneration
		}
		gauge(c.lag, float64(lag), cluster.ClusterID, cluster.Region)
		contact := cluster.Contact()
		if contact.IsZero() {
			count["never"]++
			continue
		}
		silence := time.Since(contact)
		gauge(c.silence, max(0, silence.Seconds()), cluster.ClusterID, cluster.Region)
		if silence >= adminapi.Silence {
			count["silent"]++
		} else {
			count["alive"]++
		}
	}
	for contact, n := range count {
		gauge(c.clusters, n, contact)
	}
}

// collectStates observes what the clusters should run and do run.
func (c *contacts) collectStates(ctx context.Context, clusters []Cluster,
	gauge func(desc *prometheus.Desc, value float64, labels ...string),
) {
	gauge(c.stateBytesLimit, starbase.MaxBody)
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
		gauge(c.held, float64(held), id, region)
		if size, ok := bodies[id]; ok {
			gauge(c.stateBytes, float64(size), id, region)
		}
		state := states[id]
		if state == nil { // it is younger than the count
			continue
		}
		for standing, n := range state.standings {
			gauge(c.services, float64(n), id, region, string(standing))
		}
		if !state.tombstone.IsZero() {
			gauge(c.tombstone, max(0, time.Since(state.tombstone).Seconds()), id, region)
		}
		if state.gaps >= 0 {
			gauge(c.billing, float64(state.gaps), id, region)
		}
		if state.latest != nil {
			gauge(c.pods, float64(state.latest.Pods), id, region)
			gauge(c.softLimit, float64(state.latest.SoftLimit), id, region)
		}
	}
}
