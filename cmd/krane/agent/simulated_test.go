package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/agent"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/config"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/vault"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest/upstream"
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil // they sleep in the time of the process
	os.Exit(m.Run())
}

// simulatedKinds are the kinds that the agent writes, and the pods of what it writes.
func simulatedKinds() []simtest.Kind {
	return []simtest.Kind{
		{Version: "v1", Resource: "namespaces", Kind: "Namespace", Cluster: true, Status: true},
		{Version: "v1", Resource: "pods", Kind: "Pod", Status: true},
		{Version: "v1", Resource: "services", Kind: "Service", Status: true},
		{Version: "v1", Resource: "secrets", Kind: "Secret"},
		{Version: "v1", Resource: "serviceaccounts", Kind: "ServiceAccount"},
		{Group: "apps", Version: "v1", Resource: "replicasets", Kind: "ReplicaSet", Status: true},
		{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Status: true},
		{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets", Kind: "PodDisruptionBudget", Status: true},
		{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers", Kind: "HorizontalPodAutoscaler", Status: true},
		{Group: "cilium.io", Version: "v2", Resource: "ciliumnetworkpolicies", Kind: "CiliumNetworkPolicy", Status: true},
	}
}

const (
	regionID   = "r1"
	regionName = "eu"
)

// simulatedRegion is a region of one simulated world.
type simulatedRegion struct {
	plane *controlplanetest.Simulated
	vault *vault.KeyFile
	// since and until are from when on an object is wanted, and when it last ceased to be.
	since, until map[string]time.Time
	rested       string // the database at the beginning of the rest
}

// must ends the whole test binary: the end of a goroutine would be a deadlock in a bubble.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// simulated returns worlds with the whole agent and the whole control plane, a user who edits
// the desired state, and people who edit in the cluster. change may make another scenario of it.
func simulated(t *testing.T, change func(*simulatedRegion, *simtest.Scenario)) func() simtest.Scenario {
	t.Helper()
	keys := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(keys, []byte(vault.NewKey()), 0o600))
	planes := controlplanetest.NewSimulation(t, nil, func(ctx context.Context, p *controlplanetest.Simulated) string {
		token, _, err := p.Regions.PutRegion(ctx, controlplanetest.Region{ID: regionID, Name: regionName, Platform: "test"}, false)
		must(err)
		return token
	})
	planes.Streams = true
	planes.Rotate = func(ctx context.Context, p *controlplanetest.Simulated) string {
		token, err := p.Regions.RotateToken(ctx, regionID, 0)
		must(err)
		return token
	}
	machinery := &upstream.Machinery{Scheme: scheme.Scheme}
	return func() simtest.Scenario {
		p := &simulatedRegion{
			plane: planes.Next(), vault: &vault.KeyFile{Path: keys}, since: map[string]time.Time{}, until: map[string]time.Time{},
		}
		s := simtest.Scenario{
			Kinds: simulatedKinds(), Machinery: machinery,
			Program: func(ctx context.Context, net http.RoundTripper) error {
				p.plane.Open()
				p.note()
				a := &agent.Agent{
					Config: p.config(), Kubernetes: &rest.Config{Host: "http://simtest", Transport: net}, Control: p.plane.Link(net),
					Logger: slog.New(slog.DiscardHandler),
				}
				return a.Start(ctx)
			},
			Actors: []func(*simtest.World, simtest.Change){simtest.Kubelet{}.Act, simtest.ReplicaSets, simtest.Deployments},
			Habits: p.plane.Habits(),
			Edits:  16, Pause: 2 * time.Minute,
			Start:     func(*simtest.World) { p.plane.Start() },
			Edit:      p.edit,
			Check:     p.check(),
			Converged: p.converged,
			State:     p.state,
			End:       func(*simtest.World) { p.plane.Close() },
		}
		change(p, &s)
		return s
	}
}

// config is the configuration of the agent.
func (p *simulatedRegion) config() config.Config {
	settings, err := json.Marshal(map[string]any{
		"instance_id": "krane-0", "token_file": p.plane.TokenFile(),
		"cluster": map[string]any{"region": regionName, "platform": "test"},
		"control": map[string]any{"url": "https://control.example.com"},
		"vault":   map[string]any{"key_file": p.vault.Path},
	})
	must(err)
	c, err := config.Read(settings, func(string) (string, bool) { return "", false })
	must(err)
	c.HealthAddress, c.MetricsAddress = "0", "0"
	return c
}

func resourcePath(collection, id string) string {
	return "regions/" + regionID + "/" + collection + "/" + id
}

// edit makes one change of the desired state, or one by hand in the cluster.
func (p *simulatedRegion) edit(w *simtest.World) {
	status := p.plane.Put(resourcePath("deployments", "d-0"), p.deployment(0, "example.com/web:1", "running", nil))
	w.Log("user: edit: %d", status)
	p.note()
}

// deployment returns the body that puts a deployment, with variables unless they are nil.
func (p *simulatedRegion) deployment(n int, image, state string, variables map[string]string) map[string]any {
	spec := map[string]any{
		"k8s_namespace": fmt.Sprint("shop-", n%2), "k8s_name": fmt.Sprint("web-", n), "workspace_id": "ws", "project_id": "prj",
		"environment_id": "env", "app_id": "app", "image": image, "cpu_millicores": 100, "memory_mib": 64, "port": 8080,
	}
	if variables != nil {
		text, err := json.Marshal(variables)
		must(err)
		sealed, err := p.vault.Encrypt("env", text)
		must(err)
		spec["encrypted_environment_variables"] = sealed
	}
	return map[string]any{"desired_state": state, "spec": spec}
}

func TestTheAgentInASimulatedWorld(t *testing.T) {
	t.Parallel()
	simtest.Histories(t, simulated(t, func(_ *simulatedRegion, s *simtest.Scenario) {
		s.Histories = 3
		if testing.Short() {
			s.Histories, s.Rest = 1, time.Hour
		}
	}))
}
