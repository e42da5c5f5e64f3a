package cluster

import (
	"context"
	"log/slog"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
)

// scrapeTimeout bounds the queries of one scrape.
const scrapeTimeout = 5 * time.Second

// leases counts the regions by the lease of their agents, at each scrape.
type leases struct {
	store  *Store
	logger *slog.Logger
	desc   *prometheus.Desc
}

func newLeases(store *Store, logger *slog.Logger) *leases {
	return &leases{store, logger, prometheus.NewDesc("trueup_controlplane_regions",
		"Regions by the lease of their agent: alive, silent (no heartbeat for 2 minutes) or never (no heartbeat yet).", []string{"lease"}, nil)}
}

// Describe implements [prometheus.Collector].
func (l *leases) Describe(to chan<- *prometheus.Desc) { to <- l.desc }

// Collect implements [prometheus.Collector].
func (l *leases) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout) //nolint:forbidigo // a scrape brings none
	defer cancel()
	regions, err := l.store.Regions(ctx)
	if err != nil {
		// An error here would drop the other metrics too.
		l.logger.WarnContext(ctx, "regions cannot be counted now", slog.Any("error", err))
		return
	}
	count := map[string]float64{"alive": 0, "silent": 0, "never": 0}
	for _, r := range regions {
		switch {
		case r.HeartbeatAt.IsZero():
			count["never"]++
		case r.Silent:
			count["silent"]++
		default:
			count["alive"]++
		}
	}
	for lease, n := range count {
		to <- prometheus.MustNewConstMetric(l.desc, prometheus.GaugeValue, n, lease)
	}
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
