package operator

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
	outside "github.com/seed-9e1ffd66/trueup/reconcile/external"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// metrics are the metrics of the operator.
type metrics struct {
	phases       *prometheus.GaugeVec
	total        *prometheus.CounterVec
	provisioning *prometheus.HistogramVec
	previews     prometheus.Gauge

	mu   sync.Mutex
	seen map[types.NamespacedName]prometheus.Labels
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		phases: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "plattr_application_phase",
			Help: "Phase of an application: 0 Pending, 1 Provisioning, 2 Running, 3 Failed, 4 Terminating.",
		}, []string{"app", "environment", "namespace"}),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plattr_reconcile_total", Help: "Looks at what an application has outside of the cluster, by their result.",
		}, []string{"app", "resource_type", "result"}),
		provisioning: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "plattr_provisioning_duration_seconds",
			Help:    "Time until what an application has outside of the cluster was as it should, retries included.",
			Buckets: []float64{0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60},
		}, []string{"app", "resource_type"}),
		previews: prometheus.NewGauge(prometheus.GaugeOpts{Name: "plattr_preview_environments_active", Help: "Preview environments that exist."}),
		seen:     map[types.NamespacedName]prometheus.Labels{},
	}
	r.MustRegister(m.phases, m.total, m.provisioning, m.previews)
	return m
}

// reconciled notes a look of one part.
func (m *metrics) reconciled(app *v1alpha1.Application, part string, err error, took time.Duration) {
	result := "success"
	switch {
	case errors.Is(err, outside.ErrWaits):
		return
	case err != nil:
		result = external.Reason(err)
	default:
		m.provisioning.WithLabelValues(app.Name, part).Observe(took.Seconds())
	}
	m.total.WithLabelValues(app.Name, part, result).Inc()
}

// phase records the phase of an application.
func (m *metrics) phase(app *v1alpha1.Application) {
	values := map[v1alpha1.Phase]float64{
		v1alpha1.Pending:      0,
		v1alpha1.Provisioning: 1,
		v1alpha1.Running:      2,
		v1alpha1.Failed:       3,
		v1alpha1.Terminating:  4,
	}
	labels := prometheus.Labels{"app": app.Name, "environment": string(app.Spec.Environment), "namespace": app.Namespace}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen[kube.KeyOf(app)] = labels
	m.phases.With(labels).Set(values[app.Status.Phase])
}

// forget drops a deleted application.
func (m *metrics) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if labels, ok := m.seen[key]; ok {
		m.phases.Delete(labels)
		delete(m.seen, key)
	}
}
