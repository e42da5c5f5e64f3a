package agent

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/owntoken"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// Units are the units that bill, beside a view of pods.
type Units struct {
	Snapshots, Capacity reconcile.Starter
	pods                *podView
	metrics             *metrics
}

// NewUnits returns units whose requests to Starbase go through transport.
func NewUnits(config *Config, kubernetes dynamic.Interface, transport http.RoundTripper, logger *slog.Logger) *Units {
	m := newMetrics()
	c := newClient(config, owntoken.New(owntoken.Config{Given: config.givenToken}), transport, m.observeStarbase)
	pods := newPodView(kubernetes, Owner(config.ClusterID).Labels, min(config.SnapshotInterval, config.CapacityInterval), m, logger)
	return &Units{
		Snapshots: newSnapshots(config, pods, c, m, logger), Capacity: newCapacityLoop(config, pods, c, m, logger), pods: pods, metrics: m,
	}
}

// Pods watches.
func (u *Units) Pods() reconcile.Starter { return u.pods }

// List makes the pods the whole list of the view, Update one of them, Bookmark proves it.
func (u *Units) List(pods ...*unstructured.Unstructured) error { return listPods(u.pods, pods...) }
func (u *Units) Update(p *unstructured.Unstructured) error     { return putPod(u.pods, p) }
func (u *Units) Bookmark()                                     { u.pods.Reached("2") }

func listPods(v *podView, pods ...*unstructured.Unstructured) error {
	var list []any
	for _, p := range pods {
		kept, err := v.Reduce(p)
		if err != nil {
			return err
		}
		list = append(list, kept)
	}
	return v.Replace(list, "1")
}

func putPod(v *podView, p *unstructured.Unstructured) error {
	kept, err := v.Reduce(p)
	if err != nil {
		return err
	}
	return v.Put(kept)
}

// Billed returns the record of a pod.
func (u *Units) Billed(p *unstructured.Unstructured) (record starbase.Snapshot) {
	_, read, _ := u.pods.Read(p)
	for s := range billed([]pod{read}, "", read.created) {
		record = s
	}
	return record
}

// Metric is the sum of a metric over its labels; 0 while it has none.
func (u *Units) Metric(name string) (sum float64) {
	families, err := u.metrics.registry.Gather()
	if err != nil {
		return -1
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// Runnables returns what the agent runs while it holds its Lease, for another to run.
func (a *Agent) Runnables() (all []reconcile.Starter, err error) {
	t, err := a.newTerm(newMetrics())
	if err != nil {
		return nil, err
	}
	for _, m := range t.group.Members {
		all = append(all, m.Starter)
	}
	return all, nil
}

// Observed returns what the agent runs while it holds its Lease. Each pass of a loop is reported.
func (a *Agent) Observed(see func(reconcile.Pass)) (reconcile.Starter, error) {
	t, err := a.newTerm(newMetrics())
	if err != nil {
		return nil, err
	}
	for _, m := range t.group.Members {
		if loop, ok := m.Starter.(*reconcile.Loop); ok {
			loop.OnPass = see
		}
	}
	return t.group, nil
}

// Rules returns those that the agent renders with.
func (a *Agent) Rules() (Rules, error) {
	t, err := a.newTerm(newMetrics())
	if err != nil {
		return Rules{}, err
	}
	for _, m := range t.group.Members {
		if loop, ok := m.Starter.(*reconcile.Loop); ok {
			if pull, ok := loop.Reconciler.(*puller); ok {
				return pull.rules, nil
			}
		}
	}
	return Rules{}, errors.New("no loop pulls")
}

// Metrics returns all metrics of the agent.
func Metrics() *prometheus.Registry { return newMetrics().registry }

// NewDo returns what sends the requests to Starbase, with these tokens.
func NewDo(config *Config, tokens *owntoken.Source, transport http.RoundTripper) func(*http.Request) (*http.Response, error) {
	return newClient(config, tokens, transport, newMetrics().observeStarbase).Do
}
