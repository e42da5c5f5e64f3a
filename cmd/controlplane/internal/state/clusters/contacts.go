package clusters

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
)

// scrapeTimeout bounds the query of one scrape.
const scrapeTimeout = 5 * time.Second

// contacts observes the agents of the clusters, at each scrape. A cluster that is removed
// has no series any more.
type contacts struct {
	store  *Store
	logger *slog.Logger

	clusters, silence, lag *prometheus.Desc
}

func newContacts(store *Store, logger *slog.Logger) *contacts {
	const prefix = "trueup_controlplane_cluster"
	labels := []string{"cluster_id", "region"}
	return &contacts{
		store:  store,
		logger: logger,
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
	}
}

// Describe implements [prometheus.Collector].
func (c *contacts) Describe(to chan<- *prometheus.Desc) {
	to <- c.clusters
	to <- c.silence
	to <- c.lag
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
