package operator

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
)

// metrics are the metrics of the operator.
type metrics struct {
	nodes, starting, desired, size *prometheus.GaugeVec
	buffered                       *prometheus.GaugeVec
	scaleUps, scaleDowns           *prometheus.CounterVec
	warmupFailures, passErrors     *prometheus.CounterVec
	taintRemovals                  *prometheus.CounterVec
	scaleUp, scaleUpStage          *prometheus.HistogramVec
	warmup, drain, pass, taints    *prometheus.HistogramVec
	decided                        prometheus.Histogram
	calls                          *prometheus.CounterVec
	latency                        *prometheus.HistogramVec

	mu       sync.Mutex
	draining map[string]time.Time // since when each machine is drained
}

func newMetrics(r prometheus.Registerer) *metrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "stratos", Subsystem: "nodepool", Name: name, Help: help}, labels)
		r.MustRegister(g)
		return g
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "stratos", Subsystem: "nodepool", Name: name, Help: help}, labels)
		r.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(
			prometheus.HistogramOpts{Namespace: "stratos", Subsystem: "nodepool", Name: name, Help: help, Buckets: buckets},
			labels,
		)
		r.MustRegister(h)
		return h
	}
	m := &metrics{
		nodes:          gauge("nodes_total", "Machines of a pool by state.", "pool", "state"),
		starting:       gauge("starting_nodes", "Machines that were started for pods and are not ready yet.", "pool"),
		desired:        gauge("desired_standby", "Standby machines that are wanted.", "pool"),
		buffered:       gauge("buffered_standby", "Standby machines that CapacityBuffers take, within or above minStandby.", "pool"),
		size:           gauge("pool_size", "Machines that a pool may have.", "pool"),
		scaleUps:       counter("scaleup_total", "Machines started for pods.", "pool"),
		scaleDowns:     counter("scaledown_total", "Machines that returned to standby.", "pool"),
		warmupFailures: counter("warmup_failures_total", "Warm-ups that failed.", "pool", "reason"),
		passErrors:     counter("reconciliation_errors_total", "Actions that failed.", "pool", "type"),
		taintRemovals:  counter("startup_taint_removal_total", "Machines whose startup taints were removed.", "pool", "trigger", "result"),
		scaleUp: histogram("scaleup_duration_seconds", "Time from a pod that no Node has room for to the pod on a Node.",
			[]float64{1, 2, 5, 10, 15, 20, 25, 30, 45, 60, 90, 120, 180, 300}, "pool"),
		scaleUpStage: histogram("scaleup_stage_duration_seconds", "The same time by stage: decision, api, boot, register, ready, bind.",
			[]float64{.005, .01, .025, .05, .1, .15, .2, .25, .5, 1, 2.5, 5, 10, 15, 20, 30, 60, 120, 300}, "pool", "stage"),
		warmup: histogram(
			"warmup_duration_seconds",
			"Time from the launch of a machine to its first stop.",
			[]float64{30, 60, 90, 120, 180, 240, 300, 420, 600, 900},
			"mode",
		),
		drain: histogram(
			"drain_duration_seconds",
			"Time from the beginning of a drain to its end.",
			[]float64{5, 10, 15, 30, 60, 120, 180, 300, 450, 600},
			"pool",
		),
		pass: histogram("reconciliation_duration_seconds", "Time of a pass.", []float64{.1, .25, .5, 1, 2.5, 5, 10, 20, 30}, "pool"),
		taints: histogram(
			"startup_taint_duration_seconds",
			"Time from the start of a machine to the removal of its startup taints.",
			[]float64{5, 10, 15, 20, 30, 45, 60, 90, 120, 180},
			"pool",
		),
		decided: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "stratos",
			Subsystem: "nodepool",
			Name:      "demand_duration_seconds",
			Help:      "Time of one decision for all waiting pods.",
			Buckets:   []float64{.0001, .0005, .001, .005, .01, .05, .1, .5, 1},
		}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "stratos", Subsystem: "cloud_provider", Name: "calls_total", Help: "Calls to the cloud.",
		}, []string{"provider", "operation", "status"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "stratos",
			Subsystem: "cloud_provider",
			Name:      "latency_seconds",
			Help:      "Time of a call to the cloud.",
			Buckets:   []float64{.005, .01, .025, .05, .1, .15, .2, .25, .5, 1, 2.5, 5, 10},
		}, []string{"provider", "operation"}),
		draining: map[string]time.Time{},
	}
	r.MustRegister(m.decided, m.calls, m.latency)
	return m
}

// Called counts a call to the cloud.
func (m *metrics) Called(provider, operation string, took time.Duration, err error) {
	status := "success"
	switch {
	case errors.Is(err, cloud.ErrThrottled):
		status = "throttled"
	case err != nil:
		status = "error"
	}
	m.calls.WithLabelValues(provider, operation, status).Inc()
	m.latency.WithLabelValues(provider, operation).Observe(took.Seconds())
}

// pool sets the gauges of a pool.
func (m *metrics) pool(name string, spec cloud.Pool, c cloud.Counts, views []nodes.View, want cloud.Want, starts func(*nodes.View) bool) {
	for state, n := range map[cloud.State]int{
		cloud.StateWarmup: c.Warmup + c.Launching, cloud.StateStandby: c.Standby,
		cloud.StateRunning: c.Running, cloud.StateTerminating: c.Terminating,
	} {
		m.nodes.WithLabelValues(name, string(state)).Set(float64(n))
	}
	starting := 0
	for i := range views {
		if !views[i].Status.Ready && starts(&views[i]) {
			starting++
		}
	}
	m.starting.WithLabelValues(name).Set(float64(starting))
	kept := 0
	for _, n := range want.Standby {
		kept += n
	}
	m.buffered.WithLabelValues(name).Set(float64(kept))
	m.desired.WithLabelValues(name).Set(float64(min(max(spec.MinStandby, kept), spec.Size)))
	m.size.WithLabelValues(name).Set(float64(spec.Size))
}

// acted counts the result of an action.
func (m *metrics) acted(pool string, r cloud.Result) {
	a := r.Action
	if r.Err != nil {
		m.passErrors.WithLabelValues(pool, string(a.Verb)).Inc()
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	switch a.Verb {
	case cloud.Start:
		m.scaleUps.WithLabelValues(pool).Inc()
	case cloud.Drain:
		if _, ok := m.draining[a.Machine]; !ok {
			m.draining[a.Machine] = now
		}
	case cloud.GiveUp:
		delete(m.draining, a.Machine)
	case cloud.Stop, cloud.Terminate:
		if began, ok := m.draining[a.Machine]; ok {
			m.drain.WithLabelValues(pool).Observe(now.Sub(began).Seconds())
			delete(m.draining, a.Machine)
		}
		if a.Verb == cloud.Terminate && a.From == cloud.StateWarmup {
			m.warmupFailures.WithLabelValues(pool, failure(a)).Inc()
		}
	case cloud.ForceStop:
		if a.From == cloud.StateWarmup {
			m.warmupFailures.WithLabelValues(pool, "timeout").Inc()
		}
	case cloud.Shelve:
		if a.From != cloud.StateWarmup {
			m.scaleDowns.WithLabelValues(pool).Inc()
		}
	default:
	}
}

// warmedUp counts a warm-up that has ended well.
func (m *metrics) warmedUp(mode string, took time.Duration) {
	m.warmup.WithLabelValues(mode).Observe(took.Seconds())
}

// failure is why a warm-up failed, as one word.
func failure(a cloud.Action) string {
	if a.Node == "" {
		return "never-joined"
	}
	return "timeout"
}

func (m *metrics) passed(pool string, took time.Duration) {
	m.pass.WithLabelValues(pool).Observe(took.Seconds())
}

func (m *metrics) taintsRemoved(pool, trigger string, after time.Duration) {
	m.taintRemovals.WithLabelValues(pool, trigger, "success").Inc()
	m.taints.WithLabelValues(pool).Observe(after.Seconds())
}

// forget drops the gauges of a deleted pool.
func (m *metrics) forget(pool string) {
	for _, g := range []*prometheus.GaugeVec{m.nodes, m.starting, m.desired, m.buffered, m.size} {
		g.DeletePartialMatch(prometheus.Labels{"pool": pool})
	}
}
