package regions

import (
	"context"
	"log/slog"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
)

// scrapeTimeout bounds the queries of one scrape.
const scrapeTimeout = 5 * time.Second

// leases observes the agents of the regions, at each scrape. A region that is removed has
// no series any more.
type leases struct {
	store  *Store
	logger *slog.Logger

	regions, silence, lag      *prometheus.Desc
	instances, sentinels, held *prometheus.Desc
}

func newLeases(store *Store, logger *slog.Logger) *leases {
	const prefix = "trueup_controlplane_region"
	return &leases{
		store:  store,
		logger: logger,
		regions: prometheus.NewDesc(
			prefix+"s",
			"Regions by the lease of their agent: alive, silent (no heartbeat for 2 minutes) or never (no heartbeat yet).",
			[]string{"lease"},
			nil,
		),
		silence: prometheus.NewDesc(
			prefix+"_silence_seconds",
			"Time since the last heartbeat of the region's agent; no series before the first.",
			[]string{"region"},
			nil,
		),
		lag: prometheus.NewDesc(
			prefix+"_lag_versions",
			"Versions between the head of the region's log and the lowest position that its agent has reported within a day; no series before the first.",
			[]string{"region"},
			nil,
		),
		instances: prometheus.NewDesc(
			prefix+"_instances",
			"Instances of the region by the status that its agent reported: pending, running, failed or, of a silent region, inactive.",
			[]string{"region", "status"},
			nil,
		),
		sentinels: prometheus.NewDesc(
			prefix+"_sentinels",
			"Sentinels that should run in the region, by the health that its agent reported; of a silent region unknown.",
			[]string{"region", "health"},
			nil,
		),
		held: prometheus.NewDesc(
			prefix+"_held_deletions",
			"Deletions that the region's agent holds until a person approves them.",
			[]string{"region"},
			nil,
		),
	}
}

// Describe implements [prometheus.Collector].
func (l *leases) Describe(to chan<- *prometheus.Desc) {
	to <- l.regions
	to <- l.silence
	to <- l.lag
	to <- l.instances
	to <- l.sentinels
	to <- l.held
}

// Collect implements [prometheus.Collector].
func (l *leases) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout) //nolint:forbidigo // a scrape brings none
	defer cancel()
	regions, err := l.store.positions(ctx)
	if err != nil {
		// An error here would drop the other metrics too.
		l.logger.WarnContext(ctx, "regions not counted", slog.Any("error", err))
		return
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	count := map[string]float64{"alive": 0, "silent": 0, "never": 0}
	for i := range regions {
		r := &regions[i]
		for status, n := range r.Instances {
			gauge(l.instances, float64(n), r.Name, status)
		}
		for health, n := range r.Health {
			gauge(l.sentinels, float64(n), r.Name, health)
		}
		held := 0
		if r.HeldDeletions != nil {
			held = r.HeldDeletions.Count
		}
		gauge(l.held, float64(held), r.Name)
		if r.Reported {
			gauge(l.lag, float64(max(r.Head, r.Applied)-r.Applied), r.Name)
		}
		if r.HeartbeatAt.IsZero() {
			count["never"]++
			continue
		}
		gauge(l.silence, max(0, time.Since(r.HeartbeatAt).Seconds()), r.Name)
		if r.Silent {
			count["silent"]++
		} else {
			count["alive"]++
		}
	}
	for lease, n := range count {
		gauge(l.regions, n, lease)
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
