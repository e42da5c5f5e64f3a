package controllerruntime

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/reconcile"
)

type pass = reconcile.KeyPass[types.NamespacedName]

// figures are the metrics of one operator.
type figures struct {
	passes  *prometheus.HistogramVec
	objects *prometheus.Desc
	reasons func() map[string]int
}

func newFigures(name string, reasons func() map[string]int) *figures {
	labels := prometheus.Labels{"operator": name}
	return &figures{
		passes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "trueup_operator_pass_duration_seconds", Help: "Passes over one object, by their result.",
			ConstLabels: labels, Buckets: prometheus.ExponentialBuckets(0.001, 4, 8), // to 16 s
		}, []string{"result"}),
		objects: prometheus.NewDesc("trueup_operator_objects", "Objects, by the reason of their condition Ready.", []string{"reason"}, labels),
		reasons: reasons,
	}
}

func (f *figures) observe(p pass) {
	result := "success"
	if p.Err != nil {
		result = "error"
	}
	f.passes.WithLabelValues(result).Observe(p.Duration.Seconds())
}

// Describe implements prometheus.Collector.
func (f *figures) Describe(described chan<- *prometheus.Desc) {
	f.passes.Describe(described)
	described <- f.objects
}

// Collect implements prometheus.Collector.
func (f *figures) Collect(collected chan<- prometheus.Metric) {
	f.passes.Collect(collected)
	for reason, n := range f.reasons() {
		collected <- prometheus.MustNewConstMetric(f.objects, prometheus.GaugeValue, float64(n), reason)
	}
}
