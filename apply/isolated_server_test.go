package apply_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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
