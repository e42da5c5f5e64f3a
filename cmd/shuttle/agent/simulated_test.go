package agent_test

import (
	"context"
	"fmt"
	"hash/crc32"
	"log/slog"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	shuttle "github.com/seed-9e1ffd66/trueup/cmd/shuttle/agent"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest/upstream"
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil // they sleep in the time of the process
	os.Exit(m.Run())
}

// simulatedKinds are the kinds that the agent writes, and those that it looks for.
func simulatedKinds() []simtest.Kind {
	kinds := []simtest.Kind{
		{Version: "v1", Resource: "namespaces", Kind: "Namespace", Cluster: true, Status: true},
		{Version: "v1", Resource: "pods", Kind: "Pod", Status: true},
		{Version: "v1", Resource: "services", Kind: "Service", Status: true},
		{Version: "v1", Resource: "resourcequotas", Kind: "ResourceQuota", Status: true},
		{Version: "v1", Resource: "persistentvolumeclaims", Kind: "PersistentVolumeClaim", Status: true},
		{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Status: true},
		{Group: "apps", Version: "v1", Resource: "replicasets", Kind: "ReplicaSet", Status: true},
		{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets", Kind: "PodDisruptionBudget", Status: true},
		{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers", Kind: "HorizontalPodAutoscaler", Status: true},
		{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes", Kind: "HTTPRoute", Status: true},
		{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies", Kind: "NetworkPolicy"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles", Kind: "Role"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings", Kind: "RoleBinding"},
	}
	for kind, plural := range map[string]string{
		"LimitRange": "limitranges", "ServiceAccount": "serviceaccounts", "Secret": "secrets", "ConfigMap": "configmaps",
	} {
		kinds = append(kinds, simtest.Kind{Version: "v1", Resource: plural, Kind: kind})
	}
	return kinds
}

// simulated returns worlds with the whole agent and the whole control plane, a user who edits
// the desired state, and people who edit in the cluster. change may make another scenario of it.
func simulated(t *testing.T, change func(*starbaseWorld, *simtest.Scenario)) func() simtest.Scenario {
	t.Helper()
	planes, machinery := newPlanes(t), &upstream.Machinery{Scheme: scheme.Scheme}
	text, err := shuttle.Manifests{Image: "shuttle", StarbaseURL: "https://starbase", ClusterID: clusterID, Region: "nyc3"}.YAML()
	require.NoError(t, err)
	rights, err := upstream.Rights(text, shuttle.Namespace)
	require.NoError(t, err)
	return func() simtest.Scenario {
		p := &starbaseWorld{t: t, plane: planes.Next(), since: map[string]time.Time{}, until: map[string]time.Time{}}
		p.plane.Answer = p.empty
		agent := func(ctx context.Context, net http.RoundTripper, transport string) error {
			config, err := shuttle.ReadConfig(p.environment(transport))
			if err != nil {
				return err
			}
			config.HealthAddress, config.MetricsAddress = "0", "0"
			a := &shuttle.Agent{
				Config: config, Kubernetes: &rest.Config{Host: "http://simtest", Transport: net}, Starbase: p.link(net),
				Logger: slog.New(slog.NewTextHandler(&p.log, nil)),
			}
			return a.Start(ctx)
		}
		s := simtest.Scenario{
			Kinds: simulatedKinds(), Machinery: machinery, Rights: rights,
			Program: func(ctx context.Context, net http.RoundTripper) error {
				p.plane.Open() //nolint:contextcheck // the control plane has a context of its own
				p.note()       //nolint:contextcheck // the control plane has a context of its own
				return agent(ctx, net, p.transport)
			},
			// As in a rolling update from before there were streams, or back to it.
			Older: func(ctx context.Context, net http.RoundTripper) error {
				p.beside.Store(true)
				return agent(ctx, net, map[string]string{"stream": "poll", "poll": "stream"}[p.transport])
			},
			Actors: []func(*simtest.World, simtest.Change){simtest.Kubelet{}.Act, simtest.ReplicaSets, simtest.Deployments},
			Habits: p.habits(),
			Edits:  16, Pause: 2 * time.Minute,
			Bounds: []simtest.Bound{objects().Late(tick, p.stated)},
			// Each object is applied once a day, and again if that was just before a restart.
			Refreshes: 2,
			Start: func(w *simtest.World) {
				if p.transport == "" { // a world without a user polls
					p.transport = []string{"poll", "stream"}[w.Dice("transport").IntN(2)]
				}
				w.Log("transport: %s", p.transport)
				p.plane.Start()
				p.began = time.Now()
				p.note()
				for _, o := range []simtest.Object{
					{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "starform-system"}},
					{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "edge"}},
					{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"namespace": "edge", "name": "gateway"}, "spec": map[string]any{
						"ports": []any{map[string]any{"port": 80.0}},
					}},
				} {
					must(w.Create(o))
				}
			},
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

// Projects have two environments and two services, and a group of variables.
const (
	productionOf = "/production"
	stagingOf    = "/staging"
)

func projectPath(n int) string { return "projects/" + uuid(n) }

func servicePathOf(project, service int, environment string) string {
	return projectPath(project) + "/services/" + uuid(10*project+service) + environment
}

func groupPath(project int) string { return projectPath(project) + "/var-groups/" + uuid(100+project) }

// edit makes one change of the desired state, or one by hand in the cluster.
func (p *starbaseWorld) edit(w *simtest.World) {
	dice := w.Random
	project, environment := 1+dice.IntN(2), []string{productionOf, stagingOf}[dice.IntN(2)]
	path := servicePathOf(project, dice.IntN(2), environment)
	spec := randomService(w, project)
	act, n := dice.IntN(20), dice.IntN(1000)
	var status int
	if w.Random.IntN(2) == 0 && !p.undisturbed {
		p.begin(w)
	}
	switch {
	case act < 8:
		p.putProject(project)
		status = p.plane.Put(path, spec)
	case act < 10:
		status = p.plane.Remove(path)
	case act < 11:
		status = p.plane.Remove(projectPath(project))
	case act < 13:
		p.putProject(project)
		status = p.plane.Put(groupPath(project), map[string]any{"name": "group", "entries": []any{
			map[string]any{"key": "TOKEN", "value": fmt.Sprint("secret ", n%3), "secret": true},
		}})
	case act < 15:
		status = p.plane.Put(path+"/var-groups", map[string]any{"var_groups": []string{uuid(100 + project)}[:n%2]})
	case act < 16:
		status = p.plane.Remove(groupPath(project))
	case act < 17:
		status = p.plane.Put("clusters/"+clusterID+"/config", map[string]any{"lb_size_units": 1 + n%5})
	default:
		p.byHand(w, n)
		return
	}
	w.Log("user: edit %d of %s: %d", act, path, status)
	p.note()
}

func (p *starbaseWorld) putProject(n int) {
	p.plane.Put(projectPath(n), map[string]any{
		"cluster_id": clusterID, "workspace_id": uuid(1000 + n), "workspace_slug": "acme", "slug": fmt.Sprint("shop", n),
	})
}

// putWeb states a service with a port and a route.
func (p *starbaseWorld) putWeb(path string, image int) {
	status := p.plane.Put(path, map[string]any{
		"service_name": "web", "image": fmt.Sprint("example.com/web:", image), "replicas": 1,
		"ports":    []any{map[string]any{"container_port": 8080}}, // a hostname is of one service
		"hostname": fmt.Sprintf("web-%08x.example.com", crc32.ChecksumIEEE([]byte(path))),
	})
	if status >= http.StatusBadRequest {
		panic(fmt.Sprint(path, ": the control plane answers ", status))
	}
	p.note()
}

func randomService(w *simtest.World, project int) map[string]any {
	dice := w.Random
	spec := map[string]any{
		"service_name": "web", "image": fmt.Sprint("example.com/web:", dice.IntN(3)), "replicas": dice.IntN(4),
		"env": map[string]any{"GREETING": fmt.Sprint("hello ", dice.IntN(3))},
	}
	if dice.IntN(2) == 0 {
		spec["ports"] = []any{map[string]any{"container_port": 8080}}
		if dice.IntN(2) == 0 {
			spec["hostname"] = fmt.Sprint("web", project, ".example.com")
		}
	}
	if dice.IntN(4) == 0 {
		spec["autoscaling"] = map[string]any{"min": 1, "max": 5, "cpu_percent": 80}
	}
	return spec
}

// byHand edits, scales or deletes an object of the agent, as a person with kubectl does.
func (p *starbaseWorld) byHand(w *simtest.World, n int) {
	objects().ByHand(w, n, func(o simtest.Object) func(simtest.Object) {
		switch act := w.Random.IntN(5); {
		case o["kind"] == "Namespace" || act == 0:
			return controlplanetest.Annotate
		case act == 1:
			return controlplanetest.Unlabel("starform.io/managed-by")
		case act == 2 && o["kind"] == "Deployment":
			return func(o simtest.Object) { o.Set(float64(n%7), "spec", "replicas") }
		case act == 3 && o["kind"] == "ConfigMap":
			return func(o simtest.Object) { o.Set("theirs", "data", "GREETING") }
		case act == 3 && o["kind"] == "Deployment":
			return controlplanetest.OtherImage
		}
		return nil
	})
}

func TestTheAgentInASimulatedWorld(t *testing.T) {
	t.Parallel()
	simtest.Histories(t, simulated(t, func(_ *starbaseWorld, s *simtest.Scenario) {
		s.Histories = 5
		if testing.Short() {
			s.Histories, s.Rest = 3, time.Hour
		}
	}))
}
