package program

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/reconcile/operator"
)

// Term makes the work of one term of a Lease. own takes the metrics of the term.
type Term func(ctx context.Context, config *rest.Config, own prometheus.Registerer) (operator.Work, error)

// Terms is [operator.Process.Work]: the metrics of a term are in registry for as long as it
// lasts, so that a replica that waits shows none.
func Terms(registry prometheus.Registerer, begin Term) func(context.Context, *rest.Config) (operator.Work, error) {
	return func(ctx context.Context, config *rest.Config) (operator.Work, error) {
		own := prometheus.NewRegistry()
		work, err := begin(ctx, config, own)
		return &measured{work: work, own: own, registry: registry}, err
	}
}

// measured is work with metrics of its own.
type measured struct {
	work     operator.Work
	own      prometheus.Collector
	registry prometheus.Registerer
}

func (m *measured) Start(ctx context.Context) error {
	if err := m.registry.Register(m.own); err != nil {
		return err
	}
	defer m.registry.Unregister(m.own)
	return m.work.Start(ctx)
}

func (m *measured) Synced() (bool, error) { return m.work.Synced() }
