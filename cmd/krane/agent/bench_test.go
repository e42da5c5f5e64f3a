package agent_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/agent"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/config"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/controltest"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/manifests"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/kubetest"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// bench is a region with a control plane, in the cluster that all tests share. Its
// agents see their own region only.
type bench struct {
	t       testing.TB
	cluster *kubetest.Cluster
	access  *rest.Config // of the agent's account
	server  *controltest.Server
	name    string // of the region and of the namespace
	agent   agent.Agent
	net     *applytest.Transport // of the agent that runs
	wire    *wire
	address string
	stop    func()
}

// TestOnARealKubernetes holds what needs a cluster: they share one.
func TestOnARealKubernetes(t *testing.T) {
	t.Parallel()
	cluster, access := start(t)
	t.Cleanup(func() {
		_, forbidden := used(t, cluster, "system:serviceaccount:"+manifests.Namespace+":"+manifests.Account)
		require.Empty(t, forbidden, "the agents do only what the manifests allow")
	})
	all := scenarios()
	names := slices.Sorted(maps.Keys(all))
	// Those that wait for minutes begin first, so that none of them goes on alone.
	long := []string{"one line for a dead database", "isolation first", "more orphans than the limit", "no write at rest"}
	require.Subset(t, names, long)
	for _, name := range append(long, slices.DeleteFunc(names, func(name string) bool { return slices.Contains(long, name) })...) {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "bootstrap resume and stop" {
				t.Skip("long: one scenario of many")
			}
			t.Parallel()
			all[name](newBench(t, cluster, access))
		})
	}
}

// start starts a cluster, and returns access to it as the agent's account.
func start(tb testing.TB) (*kubetest.Cluster, *rest.Config) {
	tb.Helper()
	cluster := kubetest.Start(tb, kubetest.Options{Controllers: true, Scheduler: true, Nodes: 1})
	given, err := os.ReadFile(filepath.Join("..", "render", "testdata", "cluster.yaml"))
	require.NoError(tb, err)
	// The pods of all tests are on one node.
	require.NoError(tb, cluster.Apply(tb.Context(), strings.ReplaceAll(string(given), `pods: "110"`, `pods: "500"`)))
	require.NoError(tb, cluster.Apply(tb.Context(), definitions()))
	_, err = cluster.Kubectl(tb.Context(), "wait", "--for=condition=Established", "--timeout=300s", "crd", "--all")
	require.NoError(tb, err)
	// The agents have the rights that the manifests give them, and no other.
	rights, err := manifests.Manifests{Image: "krane", ControlURL: "http://control", Region: "eu"}.YAML()
	require.NoError(tb, err)
	require.NoError(tb, cluster.Apply(tb.Context(), rights))
	access, _, err := cluster.ServiceAccount(tb.Context(), manifests.Namespace, manifests.Account)
	require.NoError(tb, err)
	return cluster, access
}

func newBench(tb testing.TB, cluster *kubetest.Cluster, access *rest.Config) *bench {
	tb.Helper()
	_, name, sub := strings.Cut(tb.Name(), "/")
	if !sub {
		name = tb.Name()
	}
	name = strings.Trim(strings.ToLower(strings.ReplaceAll(name, "_", "-")), "-")
	name = name[:min(len(name), 40)]
	b := &bench{t: tb, cluster: cluster, access: access, name: strings.Trim(name, "-"), wire: &wire{}, stop: func() {}}
	b.server = controltest.Start(tb, b.name)
	base, err := url.Parse(b.server.URL)
	require.NoError(tb, err)
	b.agent = agent.Agent{
		Config: config.Config{
			Cluster: config.Cluster{Region: b.name, Platform: "test"}, Control: config.Control{URL: base, Token: "secret"},
			RuntimeClass: "gvisor", StorageClassName: "ebs-csi-gp3", MaxDeletePercent: 10,
		},
		Address: "127.0.0.1:0",
		Logger:  slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})),
		Periods: agent.Periods{
			// Lists that come by themselves would blur what causes what.
			Relist: time.Hour, Absence: time.Millisecond, Resync: 500 * time.Millisecond, Report: 500 * time.Millisecond,
			Heartbeat: 300 * time.Millisecond, Namespace: time.Hour, Pause: 200 * time.Millisecond,
			Retry: reconcile.Backoff{Min: 50 * time.Millisecond, Max: time.Second, Retries: 9},
		},
	}
	tb.Cleanup(func() { b.stop() })
	return b
}

// twin returns a bench with another agent of the same region.
func (b *bench) twin() *bench {
	other := &bench{
		t:       b.t,
		cluster: b.cluster,
		access:  b.access,
		server:  b.server,
		name:    b.name,
		agent:   b.agent,
		wire:    &wire{},
		stop:    func() {},
	}
	b.t.Cleanup(func() { other.stop() })
	return other
}

// start starts the agent, again if it runs.
func (b *bench) start() {
	b.t.Helper()
	b.startWith(nil)
}

// startWith is start with requests that go wrong.
func (b *bench) startWith(fault func(applytest.Request) applytest.Fault) {
	b.t.Helper()
	b.stop()
	b.net = &applytest.Transport{Fault: fault}
	a := b.agent
	a.Kubernetes = rest.CopyConfig(b.access)
	a.Kubernetes.Dial = b.wire.dial
	a.Kubernetes.Wrap(b.net.Wrap)
	b.run(&a)
}

func (b *bench) run(a *agent.Agent) {
	b.t.Helper()
	address := make(chan string, 1)
	a.OnListen = func(at net.Addr) { address <- at.String() }
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
	done := make(chan error, 1)
	go func() { done <- a.Start(ctx) }()
	var once sync.Once
	b.stop = func() {
		once.Do(func() {
			cancel()
			require.NoError(b.t, <-done)
		})
	}
	select {
	case b.address = <-address:
	case err := <-done:
		require.NoError(b.t, err)
	}
}

func (b *bench) kubectl(args ...string) string {
	b.t.Helper()
	out, err := b.cluster.Kubectl(b.t.Context(), args...)
	require.NoError(b.t, err)
	return strings.TrimSpace(out)
}

// count returns how many objects of a kind are in the namespace, with more
// arguments to kubectl get.
func (b *bench) count(kind string, more ...string) int {
	b.t.Helper()
	return len(strings.Fields(b.kubectl(append([]string{"get", kind, "-n", b.name, "-o", "name"}, more...)...)))
}

// exists reports whether the object is there and not being deleted.
func (b *bench) exists(kind, name string) bool {
	b.t.Helper()
	out := b.kubectl("get", kind, name, "-n", b.name, "--ignore-not-found", "-o", "jsonpath={.metadata.name}:{.metadata.deletionTimestamp}")
	return out == name+":"
}

// metric returns the value of a metric whose line begins so, "" if there is none.
func (b *bench) metric(prefix string) string {
	b.t.Helper()
	_, text := b.ask("/metrics")
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "unkey_krane_"+prefix); ok {
			fields := strings.Fields(rest)
			return fields[len(fields)-1]
		}
	}
	return ""
}

// ready reports whether /readyz answers that the agent is ready.
func (b *bench) ready() bool {
	b.t.Helper()
	status, _ := b.ask("/readyz")
	return status == http.StatusOK
}

func (b *bench) ask(path string) (status int, text string) {
	b.t.Helper()
	request, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, "http://"+b.address+path, http.NoBody)
	require.NoError(b.t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(b.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(b.t, err)
	return response.StatusCode, string(body)
}

// synced waits until all three lists were proven n times since the start.
func (b *bench) synced(n int) {
	b.t.Helper()
	for _, collection := range []string{"deployments", "sentinels", "policies"} {
		await.Eventually(b.t, collection+" are synced", func() bool {
			return b.metric(fmt.Sprintf("watcher_full_syncs_total{resource_type=%q}", collection)) == fmt.Sprint(n)
		})
	}
}

// beats waits for ten heartbeats of the agent, as a measure of its time.
func (b *bench) beats() {
	b.t.Helper()
	before := b.server.Counts().Calls
	await.Eventually(b.t, "the agent calls on", func() bool { return b.server.Counts().Calls >= before+10 })
}

func (b *bench) want(messages ...proto.Message) { b.server.Want(b.t, messages...) }

func (b *bench) deployment(name string) *ctrlv1.ApplyDeployment {
	return &ctrlv1.ApplyDeployment{
		K8SNamespace:  b.name,
		K8SName:       name,
		WorkspaceId:   "ws_1",
		ProjectId:     "prj_1",
		EnvironmentId: "env_1",
		DeploymentId:  "d_" + name,
		AppId:         "app_1",
		Image:         "registry.example.com/" + name + ":1",
		CpuMillicores: 100,
		MemoryMib:     64,
		Port:          8080,
	}
}

func (b *bench) stopped(name string) *ctrlv1.DeleteDeployment {
	return &ctrlv1.DeleteDeployment{K8SNamespace: b.name, K8SName: name}
}

func (b *bench) sentinel(name string) *ctrlv1.ApplySentinel {
	return &ctrlv1.ApplySentinel{
		K8SNamespace:  b.name,
		K8SName:       name,
		WorkspaceId:   "ws_1",
		ProjectId:     "prj_1",
		EnvironmentId: "env_1",
		AppId:         "app_1",
		SentinelId:    "s_" + name,
		Image:         "registry.example.com/sentinel:1",
		Replicas:      1,
		CpuMillicores: 100,
		MemoryMib:     64,
	}
}

func (b *bench) policy(name string) *ctrlv1.ApplyCiliumNetworkPolicy {
	return &ctrlv1.ApplyCiliumNetworkPolicy{
		K8SNamespace: b.name, K8SName: name, CiliumNetworkPolicyId: "p_" + name,
		Policy: []byte(`{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","spec":{"endpointSelector":{}}}`),
	}
}

func (b *bench) gonePolicy(name string) *ctrlv1.DeleteCiliumNetworkPolicy {
	return &ctrlv1.DeleteCiliumNetworkPolicy{K8SNamespace: b.name, K8SName: name}
}

// running reports whether the control plane has exactly one instance of the
// deployment, which runs.
func (b *bench) running(name string) bool {
	instances := b.server.Instances()[name]
	for _, i := range instances {
		if i.GetStatus() != ctrlv1.ReportDeploymentStatusRequest_Update_Instance_STATUS_RUNNING || !strings.HasSuffix(i.GetAddress(), ":8080") {
			return false
		}
	}
	return len(instances) == 1
}

// gone reports whether the deployment was reported as gone.
func (b *bench) gone(name string) bool {
	for _, m := range b.server.Reports() {
		if r, ok := m.(*ctrlv1.ReportDeploymentStatusRequest); ok && r.GetDelete().GetK8SName() == name {
			return true
		}
	}
	return false
}

// deletes returns the deletions that the running agent has asked for.
func (b *bench) deletes() []string {
	var found []string
	for _, r := range b.net.Requests() {
		if strings.HasPrefix(r.Verb, "delete") {
			found = append(found, r.String())
		}
	}
	return found
}
