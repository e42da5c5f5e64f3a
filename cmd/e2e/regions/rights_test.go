package regions_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/krane/manifests"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// TestTheAgentWritesOnlyItsOwnObjects tries, as its account, what RBAC would allow: the policy of
// "krane manifests" has the API server refuse it, and no other account is bound by it.
func TestTheAgentWritesOnlyItsOwnObjects(t *testing.T) {
	t.Parallel()
	kube := kubetest.Start(t, kubetest.Options{})
	text, err := manifests.Manifests{Image: "krane", ControlURL: "https://control", Region: "eu"}.YAML()
	require.NoError(t, err)
	require.NoError(t, kube.Apply(t.Context(), text))
	dir := t.TempDir()
	// object returns a command that makes an object, which has the label of the agent or another one.
	object := func(kind, namespace, name, managedBy string, more ...string) string {
		t.Helper()
		version := map[string]string{"Deployment": "apps/v1", "ReplicaSet": "apps/v1", "HorizontalPodAutoscaler": "autoscaling/v2"}[kind]
		if version == "" {
			version = "v1"
		}
		file := filepath.Join(dir, strconv.Itoa(len(name))+strings.Join([]string{kind, namespace, name, managedBy}, "_"))
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil,
			`{apiVersion: %s, kind: %s, metadata: {name: %s, namespace: %q, labels: {app.kubernetes.io/managed-by: %s}, `+
				`annotations: {kubernetes.io/service-account.name: default}}%s}`,
			version, kind, name, namespace, managedBy, strings.Join(more, "")), 0o600))
		return "create -f " + file
	}
	// pods is the spec of a workload whose pods have an account.
	pods := func(account string) string {
		return `, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {` + account +
			`containers: [{name: a, image: a}]}}}`
	}
	admin := func(command string) {
		t.Helper()
		_, err := kube.Kubectl(t.Context(), strings.Fields(command)...)
		require.NoError(t, err, command)
	}
	agent := func(command string) error {
		_, err := kube.Kubectl(
			t.Context(),
			append(strings.Fields(command), "--as=system:serviceaccount:krane-system:krane", "--as-group=system:authenticated")...)
		return err
	}
	for _, name := range []string{"theirs", "mine", "given"} {
		admin("create namespace " + name)
		admin("create serviceaccount -n " + name + " default")
		admin("create secret generic -n " + name + " foreign")
	}
	admin("create serviceaccount -n given other")
	admin("create serviceaccount -n kube-system default")
	// More than its own roles allow.
	admin("create clusterrole more --verb=create --resource=nodes")
	admin("create clusterrolebinding more --clusterrole=more --serviceaccount=" + manifests.Namespace + ":" + manifests.Account)
	admin("create namespace cilium-test")
	admin("label namespace mine app.kubernetes.io/managed-by=krane")
	admin("label namespace given unkey.com/agent=krane")
	admin("label namespace cilium-test unkey.com/agent=krane")
	for _, namespace := range []string{"theirs", "given", "kube-system", "krane-system"} {
		admin(object("Secret", namespace, "labeled", "krane"))
	}
	admin(object("Secret", "given", "helm", "Helm"))

	const message = "krane writes only objects with its label, in namespaces that have it or the label unkey.com/agent"
	await.Eventually(t, "the policy is in force", func() bool {
		err := agent("create secret generic -n theirs --dry-run=server a")
		return err != nil && strings.Contains(err.Error(), message)
	})
	const token = `, type: kubernetes.io/service-account-token`
	const docker = `, type: kubernetes.io/dockerconfigjson, data: {.dockerconfigjson: e30=}`
	for _, refused := range []string{
		"create namespace unlabeled", object("Namespace", "", "kube-more", "krane"), object("Namespace", "", "my-system", "krane"),
		object("Namespace", "", "someone", "Helm"), "delete namespace theirs --wait=false", "delete namespace given --wait=false",
		"label namespace theirs app.kubernetes.io/managed-by=krane", "label namespace theirs unkey.com/agent=krane",
		"label namespace kube-system a=b",
		"label namespace given app.kubernetes.io/managed-by=krane",
		"create secret generic -n theirs a", "create secret generic -n mine a", object("Secret", "mine", "other", "Helm"),
		object("Secret", "theirs", "a", "krane"), object("Deployment", "theirs", "a", "krane", pods("")),
		"delete secret -n theirs labeled",
		object("Secret", "default", "a", "krane"), object("Secret", "kube-system", "a", "krane"), object("Secret", "cilium-test", "a", "krane"),
		object("Deployment", "krane-system", "a", "krane", pods("")), object("Deployment", "given", "a", "Helm", pods("")),
		"delete secret -n given foreign", "delete secret -n mine foreign", "delete secret -n kube-system labeled", "delete secret -n given helm",
		"label secret -n given foreign app.kubernetes.io/managed-by=krane",
		"label secret -n given helm --overwrite app.kubernetes.io/managed-by=krane",
		"label serviceaccount -n kube-system default a=b", "delete serviceaccount -n given default", "label serviceaccount -n theirs default a=b",
		"label serviceaccount -n given other a=b", object("Node", "", "more", "krane"),
		"delete serviceaccount -n krane-system krane", "delete deployment -n krane-system krane",
		// Who may make a Secret or a pod may have the rights of any account of the namespace.
		object("Secret", "mine", "token", "krane", token), object("Secret", "given", "token", "krane", token),
		object("Secret", "krane-system", "krane-token-renewed", "krane", token),
		object("Deployment", "given", "robber", "krane", pods("serviceAccountName: robber, ")),
		object("ReplicaSet", "mine", "thief", "krane", pods("serviceAccount: robber, ")),
		"create secret generic -n krane-system other", "delete secret -n krane-system labeled",
	} {
		require.ErrorContains(t, agent(refused), message, refused)
	}
	for _, allowed := range []string{
		object("Namespace", "", "new", "krane"), "label namespace new a=b", "label namespace mine a=b",
		object("Secret", "mine", "opaque", "krane"), object("Secret", "given", "docker", "krane", docker),
		object("Deployment", "given", "web", "krane", pods("serviceAccountName: deploy-d1, ")), "label deployment -n given web a=b",
		object("ReplicaSet", "mine", "web", "krane", pods("")),
		object("ReplicaSet", "mine", "web2", "krane", pods("serviceAccountName: default, ")),
		"delete deployment -n given web", "delete secret -n given labeled",
		"label serviceaccount -n given default a=b", "label serviceaccount -n mine default a=b",
		"create secret generic -n krane-system krane-token-renewed", "label secret -n krane-system krane-token-renewed a=b",
		"label secret -n mine opaque app.kubernetes.io/managed-by-", "delete namespace --wait=false new",
	} {
		require.NoError(t, agent(allowed), allowed)
	}
	// To what it has applied it gives the label back that another has taken away, and removes it only then.
	apply := strings.Replace(object("Secret", "mine", "applied", "krane"), "create",
		"apply --server-side --field-manager="+manifests.Account, 1)
	system := strings.Replace(apply, "mine", "kube-system", 1)
	object("Secret", "kube-system", "applied", "krane")
	admin(system)
	require.ErrorContains(t, agent(system), message)
	require.NoError(t, agent(apply))
	admin("label secret -n mine applied app.kubernetes.io/managed-by-")
	require.ErrorContains(t, agent("delete secret -n mine applied"), message)
	require.NoError(t, agent(apply))
	require.NoError(t, agent("delete secret -n mine applied"))
	admin("create secret generic -n theirs another")
	admin("delete namespace theirs --wait=false")
}
