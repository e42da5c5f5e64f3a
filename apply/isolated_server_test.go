package apply_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// Pods that end may have no workload any more that is ours.
func TestIsolationOutlastsPodsWhoseWorkloadIsGone(t *testing.T) {
	t.Parallel()
	const isolation = "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: web, namespace: NAMESPACE}, " +
		"spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress]}}"
	web := func(image, replicas string) string {
		return "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: NAMESPACE}, " +
			"spec: {revisionHistoryLimit: 0, replicas: " + replicas + ", selector: {matchLabels: {app: web}}, " +
			"template: {metadata: {labels: {app: web}, finalizers: [example.com/slow]}, spec: {containers: [{name: web, image: " + image + "}]}}}}"
	}
	for name, lose := range map[string]func(*testing.T, *bench, *agent){
		"a person deleted it": func(t *testing.T, b *bench, _ *agent) {
			t.Helper()
			b.kubectl(t, "delete", "deployment", "web", "-n", b.ns, "--wait=false")
		},
		"it was deleted alone": func(t *testing.T, b *bench, a *agent) {
			t.Helper()
			id := apply.ID{Group: "apps", Kind: "Deployment", Namespace: b.ns, Name: "web"}
			_, err := a.Delete(t.Context(), []apply.ID{id}, apply.DeleteOptions{})
			require.NoError(t, err)
		},
		"a rollout has forgotten their set": func(t *testing.T, b *bench, a *agent) {
			t.Helper()
			apply1(t, a, b.set(t, isolation, web("new", "0"), configMap("a", "1")))
			await.Eventually(t, "the old set is gone", func() bool {
				return b.kubectl(t, "get", "replicasets", "-n", b.ns, "-o", "jsonpath={.items[*].spec.template.spec.containers[0].image}") == "new"
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := serverBench(t)
			a := b.start(t)
			apply1(t, a, b.set(t, isolation, web("old", "1"), configMap("a", "1")))
			pods := func() []string {
				return strings.Fields(b.kubectl(t, "get", "pods", "-n", b.ns, "-o", "jsonpath={.items[*].metadata.name}"))
			}
			await.Eventually(t, "a pod is there", func() bool { return len(pods()) > 0 })
			lose(t, b, a)

			keep := b.set(t, configMap("a", "1"))
			policy := func() string {
				return b.kubectl(t, "get", "networkpolicy", "-n", b.ns, "-o", "jsonpath={.items[*].metadata.name}")
			}
			await.Eventually(t, "the workload is gone, and its pods are not", func() bool {
				report, err := a.Prune(t.Context(), keep, complete)
				require.NoError(t, err)
				require.Equal(t, "web", policy())
				return report.Pending == 1 && b.kubectl(t, "get", "deployments", "-n", b.ns, "-o", "name") == ""
			})
			require.NotEmpty(t, pods())
			await.Eventually(t, "its isolation goes after the pods", func() bool {
				for _, pod := range pods() {
					b.kubectl(t, "patch", "pod", pod, "-n", b.ns, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
				}
				_, err := a.Prune(t.Context(), keep, complete)
				return err == nil && policy() == ""
			})
			require.Empty(t, pods())
		})
	}
}

// An account that may not list pods keeps what isolates them, and deletes the rest.
func TestIsolationStaysForAnAccountThatSeesNoPods(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	const isolation = "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: web, namespace: NAMESPACE}, " +
		"spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}}"
	apply1(t, b.start(t), b.set(t, isolation, configMap("a", "1"), configMap("b", "1")))

	limited := *b
	limited.config = rest.CopyConfig(b.config)
	limited.config.Impersonate = rest.ImpersonationConfig{UserName: b.user}
	grant := func(name, verbs, resources string) {
		b.kubectl(t, "create", "role", name, "-n", b.ns, "--verb="+verbs, "--resource="+resources)
		b.kubectl(t, "create", "rolebinding", name, "-n", b.ns, "--role="+name, "--user="+b.user)
	}
	grant("work", "get,list,watch,patch,create,delete", "configmaps,networkpolicies.networking.k8s.io")
	a := limited.startKinds(t, []string{b.ns}, schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"})
	waitSynced(t, a)
	keep := b.set(t, configMap("a", "1"))
	_, err := a.Prune(t.Context(), keep, complete)
	require.ErrorIs(t, err, apply.ErrNotSynced)
	require.ErrorContains(t, err, "NetworkPolicy.networking.k8s.io/"+b.ns+"/web: ")
	require.ErrorContains(t, err, `User "`+b.user+`" cannot list resource "pods"`)
	require.Equal(t, "a", b.names(t), "the rest goes")
	b.kubectl(t, "get", "networkpolicy", "web", "-n", b.ns)

	grant("look", "list", "pods")
	await.Eventually(t, "the right has reached the server", func() bool {
		_, err := a.Prune(t.Context(), keep, complete)
		return err == nil
	})
	require.Empty(t, b.kubectl(t, "get", "networkpolicy", "-n", b.ns, "-o", "name"))
}
