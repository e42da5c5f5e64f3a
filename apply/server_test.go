package apply_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/apply/budget"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// shared is the API server of the tests that need one, each with its own namespace, owner and
// user; bare has neither controllers nor definitions, for those that compare all that is there.
var (
	shared = kubetest.Shared{Options: kubetest.Options{GatewayAPI: true, Controllers: true}}
	bare   kubetest.Shared
)

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	shared.Stop()
	bare.Stop()
	os.Exit(code)
}

// serverBench returns a bench on the shared API server.
func serverBench(t *testing.T) *bench {
	t.Helper()
	return newBench(t, shared.Cluster(t))
}

// bench is one owner with its own user and namespace.
type bench struct {
	cluster *kubetest.Cluster
	user    string
	ns      string
	config  *rest.Config
	owner   apply.Owner
}

var benches atomic.Int64 // so that a test can run several times

func newBench(t *testing.T, cluster *kubetest.Cluster) *bench {
	t.Helper()
	words := strings.FieldsFunc(strings.ToLower(t.Name()), func(r rune) bool { return r < 'a' || r > 'z' })
	id := strings.Join(words, "-")
	id = fmt.Sprintf("%s-%d", strings.Trim(id[max(0, len(id)-36):], "-"), benches.Add(1))
	b := &bench{cluster: cluster, user: id, ns: id, config: rest.CopyConfig(cluster.Config)}
	b.config.Impersonate = rest.ImpersonationConfig{UserName: b.user, Groups: []string{"system:masters"}}
	b.owner = apply.Owner{Manager: "bench", Labels: map[string]string{"example.com/owner": b.ns}, Domain: "example.com"}
	b.kubectl(t, "create", "namespace", b.ns)
	return b
}

// cleanup is kubectl when the test is over.
func (b *bench) cleanup(args ...string) {
	_, _ = b.cluster.Kubectl(context.Background(), args...)
}

func (b *bench) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := b.cluster.Kubectl(t.Context(), args...)
	require.NoError(t, err)
	return out
}

var kinds = []schema.GroupVersionKind{
	{Version: "v1", Kind: "Namespace"},
	{Version: "v1", Kind: "ServiceAccount"},
	{Version: "v1", Kind: "ConfigMap"},
	{Version: "v1", Kind: "Secret"},
	{Version: "v1", Kind: "Service"},
	{Group: "apps", Version: "v1", Kind: "Deployment"},
	{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
	{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"},
}

// agent is one start of a program: a live view and an applier.
type agent struct {
	*apply.Applier
	net      applytest.Transport
	throttle atomic.Int64 // writes that get 429
	drifts   atomic.Int64
	woken    chan apply.ID
	synced   chan schema.GroupKind
	stop     func()
}

func (b *bench) start(t *testing.T) *agent {
	t.Helper()
	a := b.startUnsynced(t)
	synced, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, a.Live.WaitSynced(synced))
	return a
}

func (b *bench) startUnsynced(t *testing.T, extra ...schema.GroupVersionKind) *agent {
	t.Helper()
	return b.startKinds(t, nil, slices.Concat(extra, kinds)...)
}

func (b *bench) startKinds(t *testing.T, namespaces []string, watched ...schema.GroupVersionKind) *agent {
	t.Helper()
	a := &agent{woken: make(chan apply.ID, 1000), synced: make(chan schema.GroupKind, 1000)}
	a.net.Fault = func(r applytest.Request) applytest.Fault {
		if r.Writes() && a.throttle.Load() > 0 {
			a.throttle.Add(-1)
			return applytest.Fault{Status: http.StatusTooManyRequests, RetryAfter: time.Second}
		}
		return applytest.Fault{}
	}
	applier, err := b.program(&a.net, watched)
	require.NoError(t, err)
	a.Applier = applier
	live := a.Live
	live.Namespaces = namespaces
	live.OnDrift = func(o apply.Observed) {
		a.drifts.Add(1)
		a.woken <- o.ID
	}
	live.OnSynced = func(kind schema.GroupKind) { a.synced <- kind }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- live.Start(ctx) }()
	a.stop = func() {
		cancel()
		require.NoError(t, <-done)
		done <- nil
	}
	t.Cleanup(a.stop)
	return a
}

// program is what a program consists of: it talks to the server through net.
func (b *bench) program(net *applytest.Transport, watched []schema.GroupVersionKind) (*apply.Applier, error) {
	config := rest.CopyConfig(b.config)
	config.QPS = -1
	config.Wrap(net.Wrap)
	config.Wrap((&budget.Budget{}).Wrap)
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range watched {
		scope := meta.RESTScopeNamespace
		switch kind.Kind {
		case "Namespace", "CustomResourceDefinition", "ClusterRole":
			scope = meta.RESTScopeRoot
		}
		mapper.Add(kind, scope)
	}
	return &apply.Applier{
		Objects: objects,
		Live:    &apply.Live{Discovery: discovery{b.cluster.Config}, Client: client, Mapper: mapper, Owner: b.owner, Kinds: watched},
	}, nil
}

// waitWoken waits until the view has called for a pass because of the object.
func (a *agent) waitWoken(t *testing.T, kind, name string) {
	t.Helper()
	timeout := time.After(3 * time.Minute)
	for {
		select {
		case id := <-a.woken:
			if id.Kind == kind && id.Name == name {
				return
			}
		case <-timeout:
			t.Fatalf("no wake-up for %s %s", kind, name)
		}
	}
}

// writes returns the requests of the user other than list and watch.
func (b *bench) requests(t *testing.T) []string {
	t.Helper()
	all, err := b.cluster.Requests(b.user)
	require.NoError(t, err)
	var found []string
	for _, r := range all {
		if r.Verb != "list" && r.Verb != "watch" {
			found = append(found, r.Verb+" "+r.Resource+"/"+r.Name)
		}
	}
	return found
}

func (b *bench) set(t *testing.T, manifests ...string) *apply.Set {
	t.Helper()
	set, err := apply.NewSet(b.owner, b.objects(t, manifests...), apply.SetOptions{})
	require.NoError(t, err)
	return set
}

func (b *bench) objects(t *testing.T, manifests ...string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	for _, manifest := range manifests {
		for document := range strings.SplitSeq(strings.ReplaceAll(manifest, "NAMESPACE", b.ns), "\n---\n") {
			object := &unstructured.Unstructured{}
			require.NoError(t, yaml.Unmarshal([]byte(document), &object.Object))
			objects = append(objects, object)
		}
	}
	return objects
}

func (b *bench) mixed(t *testing.T) *apply.Set {
	t.Helper()
	data, err := os.ReadFile("testdata/mixed.yaml")
	require.NoError(t, err)
	return b.set(t, string(data))
}

func configMap(name, value string) string {
	return "{apiVersion: v1, kind: ConfigMap, metadata: {name: " + name + ", namespace: NAMESPACE}, data: {key: '" + value + "'}}"
}

func apply1(t *testing.T, a *agent, set *apply.Set) apply.Report {
	t.Helper()
	report, err := a.Apply(t.Context(), set)
	require.NoError(t, err)
	return report
}
