package operator

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// metrics is the collector of the operator's metrics. It is safe for concurrent use.
type metrics struct {
	passes *prometheus.CounterVec
	took   prometheus.Histogram
	runs   *prometheus.CounterVec
	jobs   *prometheus.Desc

	mu     sync.Mutex
	states map[types.NamespacedName]state
}

// state is how a job is counted: its phase, and the reason of its condition Ready.
type state struct{ phase, reason string }

func newMetrics() *metrics {
	return &metrics{
		passes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "thurkube_reconcile_total", Help: "Passes for one AgentJob, by their result: success or error.",
		}, []string{"result"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "thurkube_reconcile_duration_seconds", Help: "Duration of a pass for one AgentJob.",
			Buckets: []float64{0.0001, 0.001, 0.01, 0.1, 1, 10, 60},
		}),
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "thurkube_runs_total",
			Help: "Runs of AgentJobs without a schedule that have ended, by their outcome: Succeeded, Failed, Replaced or Deleted.",
		}, []string{"outcome"}),
		jobs: prometheus.NewDesc(
			"thurkube_agentjobs",
			"AgentJobs by their phase and the reason of their condition Ready; only where the replica works.",
			[]string{"phase", "reason"},
			nil,
		),
		states: map[types.NamespacedName]state{},
	}
}

// Describe implements [prometheus.Collector].
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	m.passes.Describe(to)
	m.took.Describe(to)
	m.runs.Describe(to)
	to <- m.jobs
}

// Collect implements [prometheus.Collector].
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	m.passes.Collect(to)
	m.took.Collect(to)
	m.runs.Collect(to)
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := map[state]float64{}
	for _, s := range m.states {
		counts[s]++
	}
	for s, n := range counts {
		to <- prometheus.MustNewConstMetric(m.jobs, prometheus.GaugeValue, n, s.phase, s.reason)
	}
}

// passed notes a pass.
func (m *metrics) passed(pass reconcile.KeyPass[types.NamespacedName]) {
	result := "success"
	if pass.Err != nil {
		result = "error"
	}
	m.passes.WithLabelValues(result).Inc()
	m.took.Observe(pass.Duration.Seconds())
}

// observed notes the state of a job.
func (m *metrics) observed(job *v1alpha1.AgentJob) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.states[kube.KeyOf(job)] = state{string(job.Status.Phase), readyOf(job).Reason}
}

// forget drops a deleted job.
func (m *metrics) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.states, key)
}

// recorded notes a run that has ended since before.
func (m *metrics) recorded(before, last *v1alpha1.Run) {
	if last == nil || last.Outcome == "" || before != nil && before.UID == last.UID && before.Outcome != "" {
		return
	}
	m.runs.WithLabelValues(string(last.Outcome)).Inc()
}
