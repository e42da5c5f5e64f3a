package program_test

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/reconcile/operator"
)

// counting is work that counts once, and then works until its term ends.
type counting struct {
	counter prometheus.Counter
	begun   chan struct{}
}

func (c counting) Start(ctx context.Context) error {
	c.counter.Inc()
	close(c.begun)
	<-ctx.Done()
	return nil
}

func (c counting) Synced() (bool, error) { return false, errors.New("pods: forbidden") }

// TestMetricsLastAsLongAsATerm: a replica that waits has none, and a new term begins at zero.
func TestMetricsLastAsLongAsATerm(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	var begun chan struct{}
	work := program.Terms(registry, func(_ context.Context, _ *rest.Config, own prometheus.Registerer) (operator.Work, error) {
		begun = make(chan struct{})
		counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "passes_total"})
		own.MustRegister(counter)
		return counting{counter, begun}, nil
	})
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		w, err := work(ctx, nil)
		require.NoError(t, err)
		_, err = w.Synced()
		require.EqualError(t, err, "pods: forbidden")
		require.Zero(t, count(t, registry))
		ended := make(chan error, 1)
		go func() { ended <- w.Start(ctx) }()
		<-begun
		require.Equal(t, 1.0, count(t, registry))
		cancel()
		require.NoError(t, <-ended)
		require.Zero(t, count(t, registry))
	}
}

// TestATermWhoseMetricsAreTakenDoesNotWork: an earlier one has left them.
func TestATermWhoseMetricsAreTakenDoesNotWork(t *testing.T) {
	t.Parallel()
	registry, counter := prometheus.NewRegistry(), prometheus.NewCounter(prometheus.CounterOpts{Name: "passes_total"})
	registry.MustRegister(counter)
	begun := make(chan struct{})
	w, err := program.Terms(registry, func(_ context.Context, _ *rest.Config, own prometheus.Registerer) (operator.Work, error) {
		own.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "passes_total"}))
		return counting{counter, begun}, nil
	})(t.Context(), nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorContains(t, w.Start(ctx), "duplicate metrics")
	require.Zero(t, count(t, registry), "it has not begun")
}

func TestATermThatCannotBeMadeIsAnError(t *testing.T) {
	t.Parallel()
	broken := func(context.Context, *rest.Config, prometheus.Registerer) (operator.Work, error) {
		return nil, errors.New("no such cloud")
	}
	_, err := program.Terms(prometheus.NewRegistry(), broken)(t.Context(), nil)
	require.EqualError(t, err, "no such cloud")
}

// count returns the value of the only metric.
func count(t *testing.T, registry *prometheus.Registry) float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	if len(families) == 0 {
		return 0
	}
	return families[0].GetMetric()[0].GetCounter().GetValue()
}
