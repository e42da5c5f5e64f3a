package controllerruntime

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// shown returns how many objects the registry has of an operator, -1 if it has none of it.
func shown(t *testing.T, operator string) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if labels := metric.GetLabel(); family.GetName() == "trueup_operator_objects" && labels[0].GetValue() == operator {
				return metric.GetGauge().GetValue()
			}
		}
	}
	return -1
}

func TestASecondOperatorOfANameWorksWithoutMetrics(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	of := func(objects int, start func(context.Context) error) *runnable {
		figures := prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "trueup_operator_objects", Help: "Objects, by the reason of their condition Ready.",
			ConstLabels: prometheus.Labels{"operator": "twice"},
		}, []string{"reason"})
		figures.WithLabelValues("Ready").Set(float64(objects))
		return &runnable{start: start, pulse: &pulse{}, figures: figures, logger: logger}
	}
	second := of(2, func(context.Context) error {
		require.InDelta(t, 1, shown(t, "twice"), 0)
		return nil
	})
	first := of(1, func(ctx context.Context) error {
		require.Empty(t, log.String())
		require.NoError(t, second.Start(ctx))
		require.InDelta(t, 1, shown(t, "twice"), 0, "those of the first stay")
		return nil
	})
	require.NoError(t, first.Start(t.Context()))
	require.Contains(t, log.String(), "operator works without metrics")
	require.InDelta(t, -1, shown(t, "twice"), 0)
}
