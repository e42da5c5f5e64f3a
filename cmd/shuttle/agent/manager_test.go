package agent_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	shuttle "github.com/seed-9e1ffd66/trueup/cmd/shuttle/agent"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/logtest"
)

// runsInAManager adds the units of the agent, unchanged, to a Manager of
// controller-runtime, as an operator that exists already would.
func runsInAManager(t *testing.T, b *bench) {
	t.Helper()
	logger := slog.New(slog.NewJSONHandler(&logtest.Log{}, nil))
	config, err := shuttle.ReadConfig(b.environment("STARFORM_SNAPSHOT_INTERVAL=1s", "STARFORM_CAPACITY_INTERVAL=1s"))
	require.NoError(t, err)
	agent := shuttle.Agent{Config: config, Kubernetes: b.config, Logger: logger}
	units, err := agent.Runnables()
	require.NoError(t, err)
	mgr, err := ctrl.NewManager(
		b.config,
		ctrl.Options{Metrics: server.Options{BindAddress: "0"}, Logger: logr.FromSlogHandler(logger.Handler())},
	)
	require.NoError(t, err)
	for _, unit := range units {
		require.NoError(t, mgr.Add(manager.Runnable(unit)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	b.starbase.serve(t, b.one(t, 1))
	b.healthy(t, 3)
	await.Eventually(t, "pods are billed", func() bool { return b.starbase.received("snapshots") > 0 })
	await.Eventually(t, "pods are counted", func() bool { return b.starbase.received("capacity") > 0 })
	cancel()
	require.NoError(t, <-done)
}
