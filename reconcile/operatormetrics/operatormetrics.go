// Package operatormetrics has the metrics of an operator of package operator for Prometheus:
//
//	trueup_operator_pass_duration_seconds{operator,result}  a histogram; result is success or error
//	trueup_operator_objects{operator,reason}                objects by the reason of Ready
//
// There are none while the operator does not work, so that a standby shows nothing that is old:
// after a lost Lease they begin at zero.
//
// The functions have the metrics of the parts of any program, in a registry of its own:
//
//	trueup_loop_pass_duration_seconds{loop,result}          [Loop]
//	trueup_queue_pass_duration_seconds{queue,result}        [Queue], with trueup_queue_waiting and trueup_queue_parked
//	trueup_lease_held{lease}                                [Lease]
//	trueup_replica_handle_duration_seconds{scope,result}    [Replica], with trueup_replica_streams_total, _complete,
//	                                                        _pending, _parked and _behind
//	trueup_log_changes_total                                [Server]
//	trueup_snapshot_records_total{recorder,result}          [Recorder], with trueup_snapshot_spooled
package operatormetrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/operator"
)

// Collector has the metrics of one operator. Its methods are safe for concurrent use.
type Collector struct {
	passes  *prometheus.HistogramVec
	objects *prometheus.Desc
	reasons func() map[string]int
}

var _ prometheus.Collector = (*Collector)(nil)

// New returns the metrics of an operator that has not started. It sets OnPass, and calls the
// function that was there before. Two operators in one registry must have two names.
func New[T metav1.Object](o *operator.Operator[T]) *Collector {
	labels := prometheus.Labels{"operator": o.Name}
	c := &Collector{
		passes:  durations("trueup_operator_pass_duration_seconds", "Passes over one object, by their result.", "operator", o.Name),
		objects: prometheus.NewDesc("trueup_operator_objects", "Objects, by the reason of their condition Ready.", []string{"reason"}, labels),
		reasons: o.Reasons,
	}
	onPass := o.OnPass
	o.OnPass = func(p reconcile.KeyPass[types.NamespacedName]) {
		c.observe(p)
		if onPass != nil {
			onPass(p)
		}
	}
	return c
}

func (c *Collector) observe(p reconcile.KeyPass[types.NamespacedName]) {
	observe(c.passes, p.Duration, p.Err)
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(described chan<- *prometheus.Desc) {
	c.passes.Describe(described)
	described <- c.objects
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(collected chan<- prometheus.Metric) {
	reasons := c.reasons()
	if reasons == nil { // it does not work
		c.passes.Reset()
		return
	}
	c.passes.Collect(collected)
	for reason, n := range reasons {
		collected <- prometheus.MustNewConstMetric(c.objects, prometheus.GaugeValue, float64(n), reason)
	}
}

// Handler answers /metrics with the metrics of the operator, of Go and of the process: what
// [operator.Process.Metrics] takes.
func (c *Collector) Handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(c, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}
