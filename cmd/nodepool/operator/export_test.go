package operator

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

// Metrics returns all metrics of the operator.
func Metrics() *prometheus.Registry {
	registry := program.NewRegistry("nodepool")
	newMetrics(registry)
	return registry
}
