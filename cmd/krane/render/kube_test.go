package render_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/render"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// agent is the part of an agent that applies the rendered objects.
type agent struct {
	net      applytest.Transport
	appliers map[render.Component]*apply.Applier
	stop     func()
}

func components() []render.Component {
	return []render.Component{render.Namespace, render.Account, render.Deployment, render.Sentinel, render.Policy}
}

func startAgent(t *testing.T, cluster *kubetest.Cluster) *agent {
	t.Helper()
	a := &agent{appliers: map[render.Component]*apply.Applier{}}
	config := rest.CopyConfig(cluster.Config)
	config.Wrap(a.net.Wrap)
	known, err := discovery.NewDiscoveryClientForConfig(cluster.Config)
	require.NoError(t, err)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(known))
	client, err := metadata.NewForConfig(config)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, len(components()))
	for _, c := range components() {
		live := &apply.Live{Client: client, Mapper: mapper, Owner: render.Owner(c, cell.Region), Kinds: render.Kinds(c)}
		applier := &apply.Applier{Live: live}
		switch c {
		case render.Namespace:
			applier.Adoption = apply.SkipForeign
		case render.Account:
			applier.Adoption = apply.AdoptForeign
		default:
		}
		a.appliers[c] = applier
		go func() { ended <- live.Start(ctx) }()
	}
	a.stop = func() {
		cancel()
		for range components() {
			require.NoError(t, <-ended)
		}
	}
	for _, c := range components() {
		require.NoError(t, a.appliers[c].Live.WaitSynced(ctx))
	}
	return a
}

func (a *agent) apply(t *testing.T, component render.Component, objects ...*unstructured.Unstructured) apply.Report {
	t.Helper()
	set, err := apply.NewSet(render.Owner(component, cell.Region), objects, apply.SetOptions{})
	require.NoError(t, err)
	report, err := a.appliers[component].Apply(t.Context(), set)
	require.NoError(t, err)
	return report
}

// owner returns the UID of the object, as an agent learns it: empty until it
// exists.
func (a *agent) owner(component render.Component, kind, name string) types.UID {
	for o := range a.appliers[component].Live.All() {
		if o.ID.Kind == kind && o.ID.Name == name {
			return o.UID
		}
	}
	return ""
}

// pass renders and applies everything.
func (a *agent) pass(t *testing.T) {
	t.Helper()
	ok := must(t)
	full, least, guard := fullDeployment(), leastDeployment(), sentinel()
	a.apply(t, render.Namespace, ok(cell.Namespace("ws-acme"))...)
	a.apply(t, render.Account, ok(cell.Account("ws-acme"))...)
	a.apply(t, render.Deployment, slices.Concat(
		ok(cell.Deployment(full, variables, a.owner(render.Deployment, "ReplicaSet", full.GetK8SName()))),
		ok(cell.Deployment(least, nil, a.owner(render.Deployment, "ReplicaSet", least.GetK8SName()))),
	)...)
	a.apply(t, render.Sentinel, ok(cell.Sentinel(guard, a.owner(render.Sentinel, "Deployment", guard.GetK8SName())))...)
	a.apply(t, render.Policy, ok(cell.Policy(policy()))...)
}

// TestOnARealKubernetes shows that the API server accepts the rendered objects, that
// pods run from them, and that no field that Kubernetes defaults is taken for
// drift.
func TestOnARealKubernetes(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{Controllers: true, Scheduler: true, Nodes: 1})
	kubectl := func(args ...string) string {
		out, err := cluster.Kubectl(t.Context(), args...)
		require.NoError(t, err)
		return strings.TrimSpace(out)
	}
	given, err := os.ReadFile(filepath.Join("testdata", "cluster.yaml"))
	require.NoError(t, err)
	require.NoError(t, cluster.Apply(t.Context(), string(given)))
	kubectl("wait", "--for=condition=Established", "--timeout=300s", "crd", "ciliumnetworkpolicies.cilium.io")

	kubectl("create", "namespace", "theirs")

	a := startAgent(t, cluster)
	a.apply(t, render.Namespace, must(t)(cell.Namespace("theirs"))...)
	a.pass(t) // makes everything
	for _, kind := range []string{"secrets", "serviceaccounts", "horizontalpodautoscalers", "poddisruptionbudgets"} {
		await.Eventually(t, "each of "+kind+" has its owner", func() bool {
			a.pass(t) // now the owners exist
			return kubectl("get", kind, "-n", "ws-acme", "-l", "app.kubernetes.io/component=deployment",
				"-o", "jsonpath={range .items[*]}{.metadata.ownerReferences[*].kind} {end}") == "ReplicaSet ReplicaSet"
		})
	}
	require.Equal(t, "false", kubectl("get", "serviceaccount", "default", "-n", "ws-acme", "-o", "jsonpath={.automountServiceAccountToken}"))
	require.Equal(
		t,
		"namespace/ws-acme",
		kubectl("get", "namespaces", "-l", "app.kubernetes.io/managed-by=krane", "-o", "name"),
		"never taken over",
	)

	// The autoscaler asks for two pods of one deployment, one of the other.
	await.Eventually(t, "pods run on the node for untrusted ones", func() bool {
		return len(strings.Fields(kubectl("get", "pods", "-n", "ws-acme", "-o",
			`jsonpath={range .items[?(@.status.phase=="Running")]}{.spec.nodeName} {end}`))) == 5
	})
	require.NotContains(t, kubectl("get", "pods", "-n", "ws-acme", "-o", "jsonpath={.items[*].spec.nodeName}"), "node-0")
	require.Equal(t, "2", kubectl("get", "replicaset", "web-production-1a2b", "-n", "ws-acme", "-o", "jsonpath={.spec.replicas}"))

	a.net.Reset()
	for range 3 {
		a.pass(t)
	}
	a.net.NoRequests(t)
	require.Equal(t, "2", kubectl("get", "replicaset", "web-production-1a2b", "-n", "ws-acme", "-o", "jsonpath={.spec.replicas}"))
	a.stop()

	restarted := startAgent(t, cluster)
	restarted.pass(t)
	restarted.net.NoRequests(t)

	// A user's edit of a field that we apply is reverted, and an annotation stays.
	kubectl("annotate", "replicaset", "api", "-n", "ws-acme", "example.com/note=theirs")
	kubectl("patch", "replicaset", "api", "-n", "ws-acme", "--type=json", "-p",
		`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"wrong"}]`)
	await.Eventually(t, "the image is back", func() bool {
		restarted.pass(t)
		return kubectl("get", "replicaset", "api", "-n", "ws-acme", "-o", "jsonpath={.spec.template.spec.containers[0].image}") == "api"
	})
	require.Equal(
		t,
		"theirs",
		kubectl("get", "replicaset", "api", "-n", "ws-acme", "-o", `jsonpath={.metadata.annotations.example\.com/note}`),
	)
	for _, write := range restarted.net.Writes() {
		require.Equal(t, "replicasets", write.Resource, write)
	}
	restarted.stop()

	kubectl("delete", "replicaset", "web-production-1a2b", "-n", "ws-acme")
	await.Eventually(t, "what it owned goes with it", func() bool {
		return kubectl("get", "secrets,serviceaccounts,horizontalpodautoscalers,poddisruptionbudgets,pods",
			"-n", "ws-acme", "-l", "unkey.com/deployment.id=d_4Kx9Q", "-o", "name") == ""
	})
	// It isolates pods until these are gone, so it is not deleted with their owner.
	require.Equal(t, "ciliumnetworkpolicy.cilium.io/web-production-1a2b-frontline-ingress",
		kubectl("get", "ciliumnetworkpolicies", "-n", "ws-acme", "-l", "unkey.com/deployment.id=d_4Kx9Q", "-o", "name"))
}
