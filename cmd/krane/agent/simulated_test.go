package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/agent"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/config"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/vault"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/manifests"
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
	// bearer is the token that the agents of all regions share.
	bearer = "the-shared-bearer-of-the-regions"
)

// simulatedRegion is a region of one simulated world.
type simulatedRegion struct {
	plane *controlplanetest.Simulated
	vault *vault.KeyFile
	// since and until are from when on an object is wanted, and when it last ceased to be.
	since, until map[string]time.Time
	// vanished is how many lists there had been when the row of a policy was removed by hand.
	vanished map[string]int
	rested   string // the database at the beginning of the rest
	log      bytes.Buffer
	// before stands before the control plane, if it is not nil.
	before func(http.RoundTripper) http.RoundTripper
}

// link is the way of one life of the agent to the control plane.
func (p *simulatedRegion) link(net http.RoundTripper) http.RoundTripper {
	if p.before == nil {
		return p.plane.Link(net)
	}
	return p.before(p.plane.Link(net))
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
	planes.Streams, planes.Bearer = true, bearer
	planes.Rotate = func(ctx context.Context, p *controlplanetest.Simulated) string {
		token, err := p.Regions.Agents().Rotate(ctx, regionID, 0)
		must(err)
		return token
	}
	machinery := &upstream.Machinery{Scheme: scheme.Scheme}
	text, err := manifests.Manifests{Image: "krane", ControlURL: "https://control", Region: "eu"}.YAML()
	require.NoError(t, err)
	rights, err := upstream.Rights(text, manifests.Namespace)
	require.NoError(t, err)
	return func() simtest.Scenario {
		p := &simulatedRegion{
			plane: planes.Next(), vault: &vault.KeyFile{Path: keys},
			since: map[string]time.Time{}, until: map[string]time.Time{}, vanished: map[string]int{},
		}
		s := simtest.Scenario{
			Kinds: simulatedKinds(), Machinery: machinery, Rights: rights,
			Program: func(ctx context.Context, net http.RoundTripper) error {
				p.plane.Open() //nolint:contextcheck // the control plane has a context of its own
				p.note()       //nolint:contextcheck // the control plane has a context of its own
				a := &agent.Agent{
					Config: p.config(), Kubernetes: &rest.Config{Host: "http://simtest", Transport: net}, Control: p.link(net),
					Logger: slog.New(slog.NewTextHandler(&p.log, nil)),
				}
				return a.Start(ctx)
			},
			Actors: []func(*simtest.World, simtest.Change){simtest.Kubelet{}.Act, simtest.ReplicaSets, simtest.Deployments, autoscaler},
			Admit: func(a *simtest.Admission) error {
				if a.Object["kind"] == "ReplicaSet" && a.Object.Field("spec", "replicas") == nil {
					a.Object.Set(1.0, "spec", "replicas") // the default of a server
				}
				return nil
			},
			Habits: p.plane.Habits(),
			Edits:  16, Pause: 2 * time.Minute,
			// Each object is applied once a day, and again if that was just before a restart.
			Refreshes: 2,
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

// autoscaler is an actor that scales ReplicaSets when the limits of their autoscalers change.
func autoscaler(w *simtest.World, c simtest.Change) {
	if c.After == nil || c.After["kind"] != "HorizontalPodAutoscaler" {
		return
	}
	namespace, name := c.After.Namespace(), c.After.Name()
	dice := w.Dice("autoscaler " + namespace + "/" + name)
	w.After(time.Duration(1+dice.IntN(15_000))*time.Millisecond, func() {
		a := w.Object("horizontalpodautoscalers.autoscaling", namespace, name)
		if a == nil {
			return
		}
		least, _ := a.Field("spec", "minReplicas").(float64)
		most, _ := a.Field("spec", "maxReplicas").(float64)
		_ = w.As("autoscaler").Update("replicasets.apps", namespace, name, func(o simtest.Object) { // it may have gone
			o.Set(least+float64(dice.IntN(1+int(most-least))), "spec", "replicas")
		})
	})
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

// edit makes one change of the desired state, or one by hand in the cluster.
func (p *simulatedRegion) edit(w *simtest.World) {
	dice := w.Random
	act, n, image := dice.IntN(20), dice.IntN(1000), fmt.Sprint("example.com/web:", dice.IntN(3))
	var variables map[string]string
	if dice.IntN(2) == 0 {
		variables = map[string]string{"TOKEN": fmt.Sprint("secret ", n%3)}
	}
	if habits := p.plane.Habits(); dice.IntN(2) == 0 {
		p.plane.Begin(w, habits[dice.IntN(len(habits))])
	}
	status := 0
	switch {
	case act < 7:
		status = p.plane.Put(p.deployment(n%4, image, []string{"running", "started", "starting"}[n%3], variables))
	case act < 8:
		status = p.plane.Put(p.deployment(n%4, image, []string{"stopped", "stopping", "standby"}[n%3], variables))
	case act < 10:
		status = p.plane.Remove(resourcePath("deployments", fmt.Sprint("d-", n%4)))
	case act < 12:
		status = p.plane.Put(p.sentinel(n%2, image, n%3))
	case act < 13:
		status = p.plane.Remove(resourcePath("sentinels", fmt.Sprint("s-", n%2)))
	case act < 15:
		status = p.plane.Put(p.policy(n%2, n%3))
	case act < 16:
		status = p.plane.Remove(resourcePath("policies", fmt.Sprint("p-", n%2)))
	case act < 17:
		p.vanish(n % 2)
	default:
		p.byHand(w, n)
	}
	w.Log("user: edit %d with %d: %d", act, n, status)
	p.note()
}

func resourcePath(collection, id string) string {
	return "regions/" + regionID + "/" + collection + "/" + id
}

// deployment returns where a deployment is put and what, with variables unless they are nil.
func (p *simulatedRegion) deployment(n int, image, state string, variables map[string]string) (path string, body any) {
	spec := map[string]any{
		"k8s_namespace": fmt.Sprint("shop-", n%2), "k8s_name": fmt.Sprint("web-", n), "workspace_id": "ws", "project_id": "prj",
		"environment_id": "env", "app_id": "app", "image": image, "cpu_millicores": 100, "memory_mib": 64, "port": 8080,
	}
	if n%2 == 0 {
		spec["autoscaling"] = map[string]any{"min_replicas": 1, "max_replicas": 3}
	}
	if variables != nil {
		text, err := json.Marshal(variables)
		must(err)
		sealed, err := p.vault.Encrypt("env", text)
		must(err)
		spec["encrypted_environment_variables"] = sealed
	}
	return resourcePath("deployments", fmt.Sprint("d-", n)), map[string]any{"desired_state": state, "spec": spec}
}

func (*simulatedRegion) sentinel(n int, image string, replicas int) (path string, body any) {
	return resourcePath("sentinels", fmt.Sprint("s-", n)), map[string]any{"desired_state": "running", "spec": map[string]any{
		"k8s_namespace": fmt.Sprint("shop-", n), "k8s_name": fmt.Sprint("guard-", n), "workspace_id": "ws", "project_id": "prj",
		"environment_id": "env", "app_id": "app", "image": image, "cpu_millicores": 100, "memory_mib": 64, "replicas": replicas,
	}}
}

func (*simulatedRegion) policy(n, tier int) (path string, body any) {
	policy := fmt.Appendf(
		nil, `{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","spec":{"endpointSelector":{"matchLabels":{"tier":"%d"}}}}`, tier,
	)
	return resourcePath("policies", fmt.Sprint("p-", n)), map[string]any{"desired_state": "running", "spec": map[string]any{
		"k8s_namespace": fmt.Sprint("shop-", n), "k8s_name": fmt.Sprint("rule-", n), "policy": policy,
	}}
}

// vanish has the row of a policy removed by hand, if it is stated.
func (p *simulatedRegion) vanish(n int) {
	id, key := fmt.Sprint("p-", n), fmt.Sprintf("CiliumNetworkPolicy shop-%d/rule-%d", n, n)
	if _, stated := p.since[key]; stated {
		p.plane.Vanish(resourcePath("policies", id), "DELETE FROM cilium_network_policies WHERE id = '"+id+"'")
		p.vanished[key] = p.policyLists()
	}
}

// policyLists is how often the agent has asked for all policies.
func (p *simulatedRegion) policyLists() int { return p.plane.Lists["WatchCiliumNetworkPolicies"] }

// byHand edits or deletes an object of the agent, as a person with kubectl does.
func (p *simulatedRegion) byHand(w *simtest.World, n int) {
	objects().ByHand(w, n, func(o simtest.Object) func(simtest.Object) {
		kind, _ := o["kind"].(string)
		switch act := w.Random.IntN(4); {
		case kind == "Namespace" || act == 0:
			return controlplanetest.Annotate
		case act == 1:
			return controlplanetest.Unlabel("app.kubernetes.io/managed-by")
		case act == 2 && (kind == "ReplicaSet" || kind == "Deployment"):
			return controlplanetest.OtherImage
		case act == 2 && kind == "Secret":
			return func(o simtest.Object) { o.Set("dGhlaXJz", "data", "TOKEN") }
		}
		return nil
	})
}

func TestTheAgentInASimulatedWorld(t *testing.T) {
	t.Parallel()
	simtest.Histories(t, simulated(t, func(_ *simulatedRegion, s *simtest.Scenario) {
		s.Histories, s.Rest = 6, time.Hour
		if testing.Short() {
			s.Histories = 2
		}
	}))
}

// TestTheAgentAtRestInASimulatedWorld is one history that is followed by a day without a write.
func TestTheAgentAtRestInASimulatedWorld(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a day of streams, queries and heartbeats")
	}
	t.Parallel()
	simtest.Histories(t, simulated(t, func(_ *simulatedRegion, s *simtest.Scenario) { s.Histories, s.Edits = 1, 3 }))
}

// TestTheAgentMayBeKilledAnywhere kills it before and after each request to the API server and
// to the control plane, while a deployment is made, changed and stopped beside a sentinel and a
// policy, which goes.
func TestTheAgentMayBeKilledAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a history for each request")
	}
	t.Parallel()
	c := simtest.Sweep(t, simulated(t, lifeOfADeployment), 1)
	c.Check(t, 97)
	require.Positive(t, c.Boundaries)
	fmt.Printf("figure sim_krane_boundaries %d count\n", c.Boundaries)
}

// lifeOfADeployment begins with a sentinel and a policy.
func lifeOfADeployment(p *simulatedRegion, s *simtest.Scenario) {
	start := s.Start
	s.Start = func(w *simtest.World) {
		start(w)
		p.plane.Put(p.sentinel(0, "example.com/guard:1", 0))
		p.plane.Put(p.policy(0, 1))
		p.note()
	}
	variables := map[string]string{"TOKEN": "secret"}
	edits := []func(){
		func() { p.plane.Put(p.deployment(0, "example.com/web:1", "running", variables)) },
		func() { p.plane.Put(p.deployment(0, "example.com/web:2", "running", variables)) },
		func() {
			p.plane.Put(p.deployment(0, "example.com/web:2", "stopped", variables))
			p.plane.Remove(resourcePath("policies", "p-0"))
		},
	}
	s.Edits, s.Pause, s.Settle = len(edits), 10*time.Second, 40*time.Second
	s.Edit = func(*simtest.World) {
		edits[0]()
		edits = edits[1:]
		p.note()
	}
}

// TestAHalfMadeDeploymentIsRemovedInASimulatedWorld has the objects of the name of a deployment
// refused, and the deployment stopped then: what was applied before them goes within a minute,
// not after two lists.
func TestAHalfMadeDeploymentIsRemovedInASimulatedWorld(t *testing.T) {
	t.Parallel()
	simtest.Histories(t, simulated(t, func(p *simulatedRegion, s *simtest.Scenario) {
		s.Admit = func(a *simtest.Admission) error {
			if a.Object["kind"] != "Namespace" && a.Object.Name() == "web-0" {
				return errors.New("not now")
			}
			return nil
		}
		start, states := s.Start, []string{"running", "stopped"}
		s.Start = func(w *simtest.World) {
			start(w)
			p.plane.Put(p.policy(0, 1)) // an empty namespace stays for ten minutes
			p.note()
		}
		s.Edits, s.Pause, s.Settle, s.Rest, s.Histories = len(states), time.Minute, time.Minute, time.Minute, 2
		s.Disturbances = []applytest.Disturbance{}
		s.Edit = func(*simtest.World) {
			p.plane.Put(p.deployment(0, "example.com/web:1", states[0], map[string]string{"TOKEN": "secret"}))
			states = states[1:]
			p.note()
		}
	}))
}
