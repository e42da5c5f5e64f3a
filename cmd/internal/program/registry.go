package program

import (
	"cmp"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// NewRegistry returns the metrics that every program has: the metrics of its process and of
// the Go runtime, and trueup_<program>_build_info, which is 1 with the labels version,
// revision and goversion.
func NewRegistry(program string) *prometheus.Registry {
	version, revision, goversion := build()
	info := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "trueup_" + program + "_build_info",
		Help: "1, labelled with the version, the commit and the Go version that the program was built from.",
		ConstLabels: prometheus.Labels{
			"version": cmp.Or(version, unknown), "revision": cmp.Or(revision, unknown), "goversion": cmp.Or(goversion, unknown),
		},
	}, func() float64 { return 1 })
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), info)
	return registry
}

// Contested is the gauge of that name of the objects that are fought over, as Contested of an apply.Live counts them.
// count is called for each scrape.
func Contested(name string, count func() int) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: name, Help: "Objects that another program changes back after each repair, or deletes after each creation.",
	}, func() float64 { return float64(count()) })
}

// Metrics answers requests for metrics.
func Metrics(of prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(of, promhttp.HandlerOpts{})
}
