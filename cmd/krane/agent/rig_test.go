package agent_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/controlplanetest"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/agent"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/config"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/controltest"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/manifests"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// rig is a region with a control plane, in the real Kubernetes that all tests share, for what no simulated
// one shows: admission, rights, errors of the API server. Its agent sees its own region only.
type rig struct {
	t       testing.TB
	cluster *kubetest.Cluster
	access  *rest.Config // of the agent's account
	store   *controlplanetest.Regions
	liar    controltest.Liar
	lines   counter // of all programs
	name    string  // of the region and of the namespace
	agent   agent.Agent
	net     *applytest.Transport // of the agent that runs
	address string
	runs    bool
	stop    func()
}

func kubernetesScenarios() map[string]func(*rig) {
	return map[string]func(*rig){
		"bootstrap resume and stop": bootstrapResumeStop,
		"isolation first":           isolatedFirst,
		"vault outage":              vaultOutage,
		"every right is used":       everyRight,
		"a label comes back":        aLabelComesBack,
		"an unlisted kind":          unlistedKind,
	}
}

// TestOnARealKubernetes holds what needs a cluster: they share one.
func TestOnARealKubernetes(t *testing.T) {
	t.Parallel()
	cluster, access := start(t)
	t.Cleanup(func() {
		_, forbidden := used(t, cluster, "system:serviceaccount:"+manifests.Namespace+":"+manifests.Account)
		require.Empty(t, forbidden, "the agents do only what the manifests allow")
	})
	databases := controlplanetest.Databases(nil)[:1]
	if os.Getenv("TRUEUP_SCENARIOS") == "all" {
		databases = controlplanetest.Databases(pgtest.Shared(t))
	}
	for _, kind := range databases {
		for name, run := range kubernetesScenarios() {
			t.Run(kind.Name+"/"+name, func(t *testing.T) {
				if testing.Short() && name != "bootstrap resume and stop" {
					t.Skip("long: one scenario of many")
				}
				t.Parallel()
				b := newRig(t, cluster, access, kind.Fresh(t))
				run(b)
				b.rests()
			})
		}
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
	rights, err := manifests.Manifests{Image: "krane", ControlURL: "https://control", Region: "eu"}.YAML()
	require.NoError(tb, err)
	require.NoError(tb, cluster.Apply(tb.Context(), rights))
	access, _, err := cluster.ServiceAccount(tb.Context(), manifests.Namespace, manifests.Account)
	require.NoError(tb, err)
	return cluster, access
}

func newRig(tb testing.TB, cluster *kubetest.Cluster, access *rest.Config, source string) *rig {
	tb.Helper()
	_, name, sub := strings.Cut(tb.Name(), "/")
	if !sub {
		name = tb.Name()
	}
	name = strings.Trim(strings.ToLower(strings.NewReplacer("_", "-", "/", "-").Replace(name)), "-")
	b := &rig{t: tb, cluster: cluster, access: access, name: name, stop: func() {}}
	logger := slog.New(slog.NewTextHandler(io.MultiWriter(tb.Output(), &b.lines), nil))
	plane := controlplanetest.Start(tb, controlplanetest.Options{Source: source, Logger: logger})
	database := controlplanetest.Open(tb, source)
	tb.Cleanup(func() { require.NoError(tb, database.Close()) })
	b.store = &controlplanetest.Regions{Database: database}
	token, _, err := b.store.PutRegion(tb.Context(), controlplanetest.Region{ID: b.id(), Name: name, Platform: "test"}, false)
	require.NoError(tb, err)
	file := filepath.Join(tb.TempDir(), "token")
	require.NoError(tb, os.WriteFile(file, []byte(token), 0o600))
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	tb.Cleanup(transport.CloseIdleConnections)
	b.agent = agent.Agent{
		Config: config.Config{
			Cluster: config.Cluster{Region: name, Platform: "test"}, TokenFile: file,
			Control:      config.Control{URL: &url.URL{Scheme: "http", Host: plane.Address}},
			RuntimeClass: "gvisor", StorageClassName: "ebs-csi-gp3", MaxDeletePercent: 10,
		},
		Control: b.liar.Before(transport),
		Address: "127.0.0.1:0",
		Logger:  logger,
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

// id is the id of the region.
func (b *rig) id() string { return "reg-" + b.name }

// start starts the agent, again if it runs.
func (b *rig) start() {
	b.t.Helper()
	b.startWith(nil)
}

// startWith is start with requests that go wrong.
func (b *rig) startWith(fault func(applytest.Request) applytest.Fault) {
	b.t.Helper()
	b.stop()
	b.net = &applytest.Transport{Fault: fault}
	a := b.agent
	a.Kubernetes = rest.CopyConfig(b.access)
	a.Kubernetes.Wrap(b.net.Wrap)
	address := make(chan string, 1)
	a.OnListen = func(at net.Addr) { address <- at.String() }
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
	done := make(chan error, 1)
	go func() { done <- a.Start(ctx) }()
	var once sync.Once
	b.runs = true
	b.stop = func() {
		once.Do(func() {
			b.runs = false
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

func (b *rig) kubectl(args ...string) string {
	b.t.Helper()
	out, err := b.cluster.Kubectl(b.t.Context(), args...)
	require.NoError(b.t, err)
	return strings.TrimSpace(out)
}

// count returns how many objects of a kind are in the namespace, with more
// arguments to kubectl get.
func (b *rig) count(kind string, more ...string) int {
	b.t.Helper()
	return len(strings.Fields(b.kubectl(append([]string{"get", kind, "-n", b.name, "-o", "name"}, more...)...)))
}

// exists reports whether the object is there and not being deleted.
func (b *rig) exists(kind, name string) bool {
	b.t.Helper()
	out := b.kubectl("get", kind, name, "-n", b.name, "--ignore-not-found", "-o", "jsonpath={.metadata.name}:{.metadata.deletionTimestamp}")
	return out == name+":"
}

// metric returns the value of a metric whose line begins so, "" if there is none.
func (b *rig) metric(prefix string) string {
	b.t.Helper()
	request, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, "http://"+b.address+"/metrics", http.NoBody)
	require.NoError(b.t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(b.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(b.t, err)
	for line := range strings.Lines(string(body)) {
		if rest, ok := strings.CutPrefix(line, "unkey_krane_"+prefix); ok {
			fields := strings.Fields(rest)
			return fields[len(fields)-1]
		}
	}
	return ""
}

// synced waits until all three lists were proven n times since the start.
func (b *rig) synced(n int) {
	b.t.Helper()
	for _, collection := range []string{"deployments", "sentinels", "policies"} {
		await.Eventually(b.t, collection+" are synced", func() bool {
			return b.metric(fmt.Sprintf("watcher_full_syncs_total{resource_type=%q}", collection)) == strconv.Itoa(n)
		})
	}
}

// lag returns by how many versions each collection is behind the last committed version.
func (b *rig) lag() string {
	b.t.Helper()
	var all []string
	for _, collection := range []string{"deployments", "sentinels", "policies"} {
		all = append(all, b.metric(fmt.Sprintf("stream_lag_versions{resource_type=%q}", collection)))
	}
	return strings.Join(all, " ")
}

// want has resources that are to be there, and gone those that are not.
func (b *rig) want(all ...proto.Message) { b.put("running", all...) }
func (b *rig) gone(all ...proto.Message) { b.put("archived", all...) }

func (b *rig) put(state string, all ...proto.Message) {
	b.t.Helper()
	for _, m := range all {
		require.NoError(b.t, put(b.t.Context(), b.store, b.id(), state, m))
	}
}

// byHand changes the database past the control plane.
func (b *rig) byHand(statement string) {
	b.t.Helper()
	require.NoError(b.t, b.store.Database.Write(b.t.Context(), func(tx *controlplanetest.Tx) error {
		_, err := tx.ExecContext(b.t.Context(), statement)
		return err
	}))
}

func (b *rig) deployment(name string) *ctrlv1.ApplyDeployment {
	d := deployment(name)
	d.K8SNamespace = b.name
	return d
}

func (b *rig) sentinel(name string) *ctrlv1.ApplySentinel {
	s := sentinel(name)
	s.K8SNamespace = b.name
	return s
}

func (b *rig) policy(name string) *ctrlv1.ApplyCiliumNetworkPolicy {
	p := policy(name)
	p.K8SNamespace = b.name
	return p
}

// stored returns what the control plane has of a resource.
func (b *rig) stored(name string) (found controlplanetest.Resource) {
	b.t.Helper()
	_, all, err := b.store.Resources(b.t.Context(), b.id())
	require.NoError(b.t, err)
	for _, each := range all {
		if each.Name == name {
			found = each
		}
	}
	return found
}

// running reports whether the control plane has exactly one instance of the
// deployment, which runs.
func (b *rig) running(name string) bool {
	all := b.stored(name).Instances
	return len(all) == 1 && all[0].Status == "running" && strings.HasSuffix(all[0].Address, ":8080")
}

// away reports whether the deployment is neither in the cluster nor reported.
func (b *rig) away(name string) bool {
	return !b.exists("replicaset", name) && len(b.stored(name).Instances) == 0
}

// deletes returns the deletions that the running agent has asked for.
func (b *rig) deletes() (found []string) {
	for _, r := range b.net.Requests() {
		if strings.HasPrefix(r.Verb, "delete") {
			found = append(found, r.String())
		}
	}
	return found
}

func (b *rig) done() (d done) {
	b.t.Helper()
	of, err := b.store.Region(b.t.Context(), b.id())
	require.NoError(b.t, err)
	d = done{Claims: of.AgentEpoch, Reports: len(b.liar.Reports()), Writes: len(b.net.Writes()), Lines: int(b.lines.Load())}
	require.NoError(b.t, b.store.Database.Read(b.t.Context(), func(tx *controlplanetest.Tx) error {
		return tx.QueryRowContext(b.t.Context(), `SELECT count(*) FROM audit`).Scan(&d.Entries)
	}))
	return d
}

// rests waits until there is no claim, report, write, log line or audit entry for ten heartbeats of an agent that runs.
func (b *rig) rests() {
	b.t.Helper()
	if !b.runs {
		return
	}
	var before, after done
	await.Until(b.t, 2*await.Moment, "the region rests", func() bool {
		before = b.done()
		beats := b.liar.Calls("Heartbeat")
		await.Eventually(b.t, "heartbeats come", func() bool { return b.liar.Calls("Heartbeat") >= beats+10 })
		after = b.done()
		return before == after
	}, func() string { return fmt.Sprintf("%+v became %+v", before, after) })
}
