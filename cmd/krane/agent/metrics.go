package agent

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/breaker"
)

// metrics are the agent's own.
type metrics struct {
	registry    *prometheus.Registry
	operations  *prometheus.CounterVec
	corrections prometheus.Counter
	fullSyncs   *prometheus.CounterVec
	lastSeen    *prometheus.GaugeVec
	connections *prometheus.CounterVec
	failures    *prometheus.CounterVec
	events      *prometheus.CounterVec
	dispatch    *prometheus.CounterVec
	fullSync    *prometheus.HistogramVec
	reported    *prometheus.HistogramVec
	deduped     prometheus.Counter
	podWatches  *prometheus.CounterVec
	parked      *prometheus.GaugeVec
	held        *prometheus.GaugeVec
	lag         *prometheus.GaugeVec
	breakers    *prometheus.GaugeVec
	unreported  prometheus.Gauge
	superseded  prometheus.Gauge
	contested   func() int // set before the first scrape
}

const metricPrefix = "unkey_krane_"

func newMetrics() *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricPrefix + name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: metricPrefix + name, Help: help}, labels)
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(
			prometheus.HistogramOpts{Name: metricPrefix + name, Help: help, Buckets: prometheus.ExponentialBuckets(0.005, 2, 16)},
			labels,
		)
	}
	m := &metrics{
		contested:  func() int { return 0 },
		registry:   program.NewRegistry("krane"),
		operations: counter("reconcile_operations_total", "Passes over one resource.", "resource_type", "operation", "result"),
		corrections: prometheus.NewCounter(
			prometheus.CounterOpts{
				Name: metricPrefix + "resync_corrections_total",
				Help: "Resources that a resync had to repair; flat when healthy.",
			},
		),
		fullSyncs:   counter("watcher_full_syncs_total", "Lists that were proven complete.", "resource_type"),
		lastSeen:    gauge("watcher_version_last_seen", "Greatest version seen on a stream.", "resource_type"),
		connections: counter("stream_connections_total", "Streams, by how they began or ended.", "resource_type", "status"),
		failures:    counter("control_failures_total", "Streams and calls that the control plane did not answer, or refused.", "call"),
		events:      counter("stream_events_received_total", "Messages of streams.", "resource_type"),
		dispatch:    counter("dispatch_total", "Work on one resource, by what caused it.", "source", "resource_type", "status"),
		fullSync:    histogram("full_sync_duration_seconds", "From the opening of a stream to the proof of its list.", "resource_type"),
		reported:    histogram("report_status_duration_seconds", "Duration of reports.", "resource_type", "result"),
		deduped: prometheus.NewCounter(
			prometheus.CounterOpts{
				Name: metricPrefix + "report_deduped_total",
				Help: "Reports that were not sent because the last one had the same content.",
			},
		),
		podWatches: counter("pod_watch_reconnects_total", "Watches of pods that were restarted.", "reason"),
		parked:     gauge("parked_objects", "Resources that failed ten times and wait for the next list.", "resource_type"),
		held:       gauge("deletions_held", "Objects that are absent from what is wanted and are not deleted.", "reason"),
		lag:        gauge("stream_lag_versions", "Versions between the head of the log and what was applied.", "resource_type"),
		breakers:   gauge("breaker_state", "0 closed, 1 half open, 2 open.", "rpc"),
		unreported: prometheus.NewGauge(
			prometheus.GaugeOpts{Name: metricPrefix + "unreported_deletions", Help: "Deletions that the control plane has not acknowledged."},
		),
		superseded: prometheus.NewGauge(
			prometheus.GaugeOpts{Name: metricPrefix + "superseded", Help: "1 while another agent of the region works, and this one does not."},
		),
	}
	m.registry.MustRegister(
		program.Contested(metricPrefix+"contested_objects", func() int { return m.contested() }),
		m.operations,
		m.corrections,
		m.fullSyncs,
		m.lastSeen,
		m.connections,
		m.failures,
		m.events,
		m.dispatch,
		m.fullSync,
		m.reported,
		m.deduped,
		m.podWatches,
		m.parked,
		m.held,
		m.lag,
		m.breakers,
		m.unreported,
		m.superseded,
	)
	return m
}

func (m *metrics) breaker(rpc string, to breaker.State) {
	m.breakers.WithLabelValues(rpc).Set(float64(to))
}

func (m *metrics) report(resource string, began time.Time, err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	m.reported.WithLabelValues(resource, result).Observe(time.Since(began).Seconds())
}
