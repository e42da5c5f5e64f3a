package agent_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	shuttle "github.com/seed-9e1ffd66/trueup/cmd/shuttle/agent"
	"github.com/seed-9e1ffd66/trueup/internal/test/kubetest"
)

// TestAnAgentKilledAnywhereEndsTheSame kills the agent before and after requests
// to the API server while it moves from one desired state to the next: a service
// changed, one removed, one edited behind its back. TRUEUP_SWEEP=all tries every
// request, which takes minutes.
func TestAnAgentKilledAnywhereEndsTheSame(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a crash after each write")
	}
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{Controllers: true, GatewayAPI: true})
	manifests, err := shuttle.Manifests{Image: "shuttle", StarbaseURL: "https://starbase", ClusterID: clusterID, Region: "nyc3"}.YAML()
	require.NoError(t, err)
	require.NoError(t, cluster.Apply(t.Context(), manifests))
	sweep := applytest.Sweep{Skip: 6}
	if os.Getenv("TRUEUP_SWEEP") == "all" {
		sweep.Skip = 0
	}
	sweep.Run(t, func(t *testing.T) applytest.Scenario {
		t.Helper()
		b := newBench(t, cluster)
		first := b.one(t, 1)
		b.starbase.serve(t, first)
		require.NoError(t, b.reach(t, nil, &applytest.Transport{}, 1))
		next := b.one(t, 2)
		next.Services[0].Env["GREETING"] = "good evening"
		next.Services[1].Deleted = true
		b.starbase.serve(t, next)
		b.kubectl(t, "delete", "-n", b.project().Namespace, "configmap", "-l", "starform.io/service-name=web,starform.io/environment=staging")
		return applytest.Scenario{
			World: b.slug,
			Run: func(ctx context.Context, net *applytest.Transport) error {
				if err := b.reach(t, ctx.Done(), net, 2); err != nil { //nolint:contextcheck // the test's own is used besides
					return err
				}
				return ctx.Err() // killed after the last request
			},
			State:     func(context.Context) (string, error) { return b.state(t), nil }, //nolint:contextcheck // the test's own
			MayDelete: func(r applytest.Request) bool { return strings.Contains(r.Name, "api") },
		}
	})
}

// reach runs an agent, whose requests go through net, until it has applied the
// generation and deleted what has a tombstone.
func (b *bench) reach(t *testing.T, killed <-chan struct{}, net *applytest.Transport, generation float64) error {
	t.Helper()
	program := *b
	program.config = rest.CopyConfig(b.config)
	program.config.Wrap(net.Wrap)
	a := program.start(t)
	defer a.stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(time.Minute)
	for {
		select {
		case <-killed:
			return errors.New("killed")
		case <-timeout:
			return errors.New("not converged within a minute")
		case <-tick.C:
		}
		if metric(t, a, "starform_applied_generation") == generation &&
			(generation == 1 || b.count(t, "deployments") == 2 && b.count(t, "configmaps,services") == 4) {
			return nil
		}
	}
}

// state returns what the agent has made, without what differs from world to
// world.
func (b *bench) state(t *testing.T) string {
	t.Helper()
	out := b.kubectl(
		t,
		"get",
		"namespaces,serviceaccounts,roles,rolebindings,networkpolicies,configmaps,services,deployments,poddisruptionbudgets,httproutes",
		"-A",
		"-l",
		selected+b.id,
		"-o",
		`jsonpath={range .items[*]}{.kind}/{.metadata.name} {.data}{.spec.replicas}{.spec.template.spec.containers[*].image}{"\n"}{end}`,
	)
	lines := strings.Split(strings.NewReplacer(b.slug, "WORLD", b.id, "ID").Replace(out), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
