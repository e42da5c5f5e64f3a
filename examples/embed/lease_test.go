package main_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/dynamic"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// turns notes whose work begins and ends.
type turns struct {
	mu   sync.Mutex
	list []string
}

func (s *turns) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, what)
}

func (s *turns) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.list, " ")
}

func (s *turns) work(who string) reconcile.StarterFunc {
	return func(ctx context.Context) error {
		s.note(who + "+")
		<-ctx.Done()
		s.note(who + "-")
		return nil
	}
}

// A Lease of trueup and a manager of controller-runtime, which is an elector of
// client-go, compete for one object.
func TestALeaseAndAManagerTakeTurns(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{})
	duration, deadline, period := 3*time.Second, 2*time.Second, 400*time.Millisecond
	var seen turns

	startManager := func() func() error {
		mgr, err := ctrl.NewManager(cluster.Config, ctrl.Options{
			Metrics:        server.Options{BindAddress: "0"},
			LeaderElection: true, LeaderElectionID: "boss", LeaderElectionNamespace: "default", LeaderElectionReleaseOnCancel: true,
			LeaseDuration: &duration, RenewDeadline: &deadline, RetryPeriod: &period,
		})
		require.NoError(t, err)
		require.NoError(t, mgr.Add(manager.RunnableFunc(seen.work("manager"))))
		return start(t, mgr)
	}
	startLease := func() func() error {
		client, err := dynamic.NewForConfig(cluster.Config)
		require.NoError(t, err)
		return start(t, &kube.Lease{
			Client: client, Namespace: "default", Name: "boss", Identity: "lease", Starter: seen.work("lease"),
			Duration: duration, RenewDeadline: deadline, RetryPeriod: period,
		})
	}
	reaches := func(want string) {
		t.Helper()
		await.Eventually(t, want, func() bool { return seen.String() == want })
	}

	stopManager := startManager()
	reaches("manager+")
	stopLease := startLease()
	time.Sleep(2 * duration)
	reaches("manager+")
	require.NoError(t, stopManager())
	reaches("manager+ manager- lease+")
	stopManager = startManager()
	time.Sleep(2 * duration)
	reaches("manager+ manager- lease+")
	require.NoError(t, stopLease())
	reaches("manager+ manager- lease+ lease- manager+")
	transitions, err := cluster.Kubectl(t.Context(), "get", "lease", "boss", "-o", "jsonpath={.spec.leaseTransitions}")
	require.NoError(t, err)
	require.Equal(t, "2", transitions)
	require.NoError(t, stopManager())
}

func start(t *testing.T, starter reconcile.Starter) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- starter.Start(ctx) }()
	return func() error {
		cancel()
		return <-done
	}
}
