package agent

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/snapshot"
)

// metrics are the agent's own.
type metrics struct {
	registry       *prometheus.Registry
	reconcileError prometheus.Counter
	starbase       *prometheus.HistogramVec
	rejected       *prometheus.CounterVec
	held           *prometheus.GaugeVec
	writes         *prometheus.CounterVec
	generation     prometheus.Gauge
	gateway        prometheus.Gauge
	passes         prometheus.Counter
	requests       *prometheus.CounterVec

	snapshotsSent, snapshotsFailed, capacitySent prometheus.Counter
	snapshotsSpooled                             prometheus.Gauge
	instantsSkipped                              *prometheus.CounterVec
	lastEvent                                    *prometheus.GaugeVec
	watchErrors                                  *prometheus.CounterVec

	live atomic.Pointer[apply.Live] // of the term, nil between terms
}

func newMetrics() *metrics {
	m := &metrics{
		registry: program.NewRegistry("shuttle"),
		reconcileError: prometheus.NewCounter(
			prometheus.CounterOpts{Name: "starform_reconcile_errors_total", Help: "Passes that failed, wholly or for some objects."},
		),
		starbase: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "starform_starbase_request_duration_seconds",
			Help:    "Duration of the requests to Starbase, each attempt counted.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 13),
		}, []string{"endpoint", "code"}),
		rejected: prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: "starform_desired_state_rejected_total", Help: "Answers with a desired state that were refused whole."},
			[]string{"reason"},
		),
		held: prometheus.NewGaugeVec(
			prometheus.GaugeOpts{
				Name: "starform_deletions_held",
				Help: "Objects that are to be deleted and are not, because of a limit, a grace, or an object that stays.",
			},
			[]string{"reason"},
		),
		writes: prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: "starform_writes_total", Help: "Write requests to the API server."},
			[]string{"resource", "verb"},
		),
		generation: prometheus.NewGauge(
			prometheus.GaugeOpts{
				Name: "starform_applied_generation",
				Help: "Generation of the desired state that was last applied without an error.",
			},
		),
		gateway: prometheus.NewGauge(
			prometheus.GaugeOpts{
				Name: "starform_gateway_failing",
				Help: "1 while the size of the load balancer is refused, or the Service of the gateway is missing or cannot be written; else 0.",
			},
		),
		passes: prometheus.NewCounter(prometheus.CounterOpts{Name: "starform_passes_total", Help: "Passes over the whole desired state."}),
		requests: prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: "rest_client_requests_total", Help: "Requests to the API server, by verb, resource and code."},
			[]string{"verb", "resource", "code"},
		),

		snapshotsSent: prometheus.NewCounter(
			prometheus.CounterOpts{
				Name: "starform_snapshots_sent_total",
				Help: "Billing records that Starbase has, those that it had before among them.",
			},
		),
		snapshotsFailed: prometheus.NewCounter(
			prometheus.CounterOpts{
				Name: "starform_snapshots_failed_total",
				Help: "Billing records that Starbase will never have: not delivered, dropped from the buffer, or rejected.",
			},
		),
		snapshotsSpooled: prometheus.NewGauge(
			prometheus.GaugeOpts{Name: "starform_snapshots_spooled", Help: "Billing records that wait in STARFORM_SNAPSHOT_WAL_DIR."},
		),
		instantsSkipped: prometheus.NewCounterVec(
			prometheus.CounterOpts{
				Name: "starform_snapshots_skipped_total",
				Help: "Intervals that began without a snapshot, because the watch of pods was not proven to be alive (stale) or the agent did not run (missed).",
			},
			[]string{"reason"},
		),
		capacitySent: prometheus.NewCounter(
			prometheus.CounterOpts{Name: "starform_capacity_reports_sent_total", Help: "Capacity reports that Starbase has."},
		),
		lastEvent: prometheus.NewGaugeVec(
			prometheus.GaugeOpts{
				Name: "starform_informer_last_event_timestamp_seconds",
				Help: "When the watch of the resource was last proven to be alive, by an event, a bookmark or a list.",
			},
			[]string{"resource"},
		),
		watchErrors: prometheus.NewCounterVec(
			prometheus.CounterOpts{
				Name: "starform_informer_watch_errors_total",
				Help: "Lists and watches of the resource that failed or fell silent.",
			},
			[]string{"resource"},
		),
	}
	contested := program.Contested("starform_contested_objects", func() int {
		if live := m.live.Load(); live != nil {
			return live.Contested()
		}
		return 0
	})
	m.registry.MustRegister(
		contested,
		m.reconcileError,
		m.starbase,
		m.rejected,
		m.held,
		m.writes,
		m.generation,
		m.gateway,
		m.passes,
		m.requests,
		m.snapshotsSent,
		m.snapshotsFailed,
		m.snapshotsSpooled,
		m.instantsSkipped,
		m.capacitySent,
		m.lastEvent,
		m.watchErrors,
	)
	return m
}

func (m *metrics) observeStarbase(endpoint, code string, duration time.Duration) {
	m.starbase.WithLabelValues(endpoint, code).Observe(duration.Seconds())
}

func (m *metrics) observeSnapshots(p snapshot.Pass) {
	m.snapshotsSent.Add(float64(p.Accepted + p.Duplicates))
	m.snapshotsFailed.Add(float64(p.Rejected + p.Lost))
	m.snapshotsSpooled.Set(float64(p.Spooled))
	m.instantsSkipped.WithLabelValues("missed").Add(float64(p.Missed))
	if errors.Is(p.Err, snapshot.ErrStale) {
		m.instantsSkipped.WithLabelValues("stale").Inc()
	}
}

// observeWatch notes that the watch of a resource is alive, or has failed.
func (m *metrics) observeWatch(resource string, err error) {
	if err != nil {
		m.watchErrors.WithLabelValues(resource).Inc()
		return
	}
	m.lastEvent.WithLabelValues(resource).Set(float64(time.Now().UnixMilli()) / 1000)
}

func (m *metrics) observeWatchOf(kind schema.GroupKind, err error) {
	resource, _ := meta.UnsafeGuessKindToResource(kind.WithVersion(""))
	m.observeWatch(resource.Resource, err)
}

func (m *metrics) observeWrite(w apply.Write) {
	resource, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: w.ID.Group, Kind: w.ID.Kind})
	m.writes.WithLabelValues(resource.Resource, w.Verb).Inc()
}

// countRequests wraps the transport to the API server.
func (m *metrics) countRequests(next http.RoundTripper) http.RoundTripper {
	return counting{next, m.requests}
}

type counting struct {
	http.RoundTripper
	requests *prometheus.CounterVec
}

// RoundTrip implements http.RoundTripper.
func (c counting) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.RoundTripper.RoundTrip(request)
	code := "error"
	if response != nil {
		code = strconv.Itoa(response.StatusCode)
	}
	c.requests.WithLabelValues(verbOf(request), resourceOf(request.URL.Path), code).Inc()
	return response, err
}

// verbOf returns the verb in the words of the API server.
func verbOf(request *http.Request) string {
	_, named := splitPath(request.URL.Path)
	switch {
	case request.Method != http.MethodGet:
		return strings.ToLower(request.Method)
	case request.URL.Query().Has("watch"):
		return "watch"
	case named:
		return "get"
	default:
		return "list"
	}
}

func resourceOf(path string) string {
	resource, _ := splitPath(path)
	return resource
}

// splitPath takes a path of the API server apart: .../<version>/[namespaces/<ns>/]<resource>[/<name>].
func splitPath(path string) (resource string, named bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return "other", false
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	return parts[0], len(parts) > 1
}
