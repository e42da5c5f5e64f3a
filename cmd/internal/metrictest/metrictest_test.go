package metrictest_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/metrictest"
)

func TestAMetricWithoutSeriesIsNamedWithItsLabels(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		prometheus.NewCounterVec(prometheus.CounterOpts{Name: "b_total", Help: `it has "quotes", {braces} and a: colon`}, []string{"z", "a"}),
		prometheus.NewGauge(prometheus.GaugeOpts{Name: "a", Help: "none", ConstLabels: prometheus.Labels{"version": "1,2=3"}}),
		prometheus.NewHistogram(prometheus.HistogramOpts{Name: "c_seconds", Help: "none"}))
	require.Equal(t, []string{"a version", "b_total a,z", "c_seconds"}, metrictest.Names(t, registry))
}
