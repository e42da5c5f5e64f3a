package regions_test

import (
	"fmt"
	"os"
	"path/filepath"
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
	// object returns a file with an object, which has the label of the agent or another one.
	object := func(kind, namespace, name, managedBy string) string {
		t.Helper()
		version := map[string]string{"Deployment": "apps/v1"}[kind]
		if version == "" {
			version = "v1"
		}
		more := ""
		if kind == "Deployment" {
			more = `, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a}]}}}`
		}
		file := filepath.Join(dir, strings.Join([]string{kind, namespace, name, managedBy}, "_"))
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil,
			`{apiVersion: %s, kind: %s, metadata: {name: %s, namespace: %q, labels: {app.kubernetes.io/managed-by: %s}, annotations: {a: b}}%s}`,
			version, kind, name, namespace, managedBy, more), 0o600))
		return "create -f " + file
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
	for _, name := range []string{"theirs", "mine"} {
		admin("create namespace " + name)
		admin("create serviceaccount -n " + name + " default")
		admin("create secret generic -n " + name + " foreign")
	}
	admin("create serviceaccount -n theirs other")
	admin("create serviceaccount -n kube-system default")
	// More than its own roles allow.
	admin("create clusterrole more --verb=create --resource=nodes")
	admin("create clusterrolebinding more --clusterrole=more --serviceaccount=" + manifests.Namespace + ":" + manifests.Account)
	admin("create namespace cilium-test")
	admin("label namespace mine app.kubernetes.io/managed-by=krane")
	admin(object("Secret", "theirs", "ours", "krane"))
	admin(object("Secret", "kube-system", "labeled", "krane"))
	admin(object("Secret", "theirs", "helm", "Helm"))

	const message = "krane writes only objects with its label, and none in namespaces of the platform"
	await.Eventually(t, "the policy is in force", func() bool {
		err := agent("create secret generic -n theirs --dry-run=server a")
		return err != nil && strings.Contains(err.Error(), message)
	})
	for _, refused := range []string{
		"create namespace unlabeled", object("Namespace", "", "kube-more", "krane"), object("Namespace", "", "my-system", "krane"),
		object("Namespace", "", "someone", "Helm"),
		"label namespace theirs app.kubernetes.io/managed-by=krane", "label namespace kube-system a=b", "delete namespace theirs --wait=false",
		"create secret generic -n theirs a", "create secret generic -n mine a", object("Secret", "mine", "other", "Helm"),
		object("Secret", "default", "a", "krane"), object("Secret", "kube-system", "a", "krane"), object("Secret", "cilium-test", "a", "krane"),
		object("Deployment", "krane-system", "a", "krane"), object("Deployment", "theirs", "a", "Helm"),
		"delete secret -n theirs foreign", "delete secret -n mine foreign", "delete secret -n kube-system labeled", "delete secret -n theirs helm",
		"label secret -n theirs foreign app.kubernetes.io/managed-by=krane", "label secret -n theirs helm --overwrite app.kubernetes.io/managed-by=krane",
		"label serviceaccount -n kube-system default a=b", "label serviceaccount -n theirs other a=b", object("Node", "", "more", "krane"),
		"delete serviceaccount -n theirs default",
		"delete serviceaccount -n krane-system krane", "delete deployment -n krane-system krane",
	} {
		require.ErrorContains(t, agent(refused), message, refused)
	}
	for _, allowed := range []string{
		object("Namespace", "", "new", "krane"), "label namespace new a=b", "label namespace mine a=b",
		object("Secret", "mine", "a", "krane"), object("Deployment", "theirs", "web", "krane"), "label deployment -n theirs web a=b",
		"delete deployment -n theirs web", "delete secret -n theirs ours", "label serviceaccount -n theirs default a=b",
		"create secret generic -n krane-system krane-token-renewed", "label secret -n krane-system krane-token-renewed a=b",
		"label secret -n mine a app.kubernetes.io/managed-by-", "delete namespace --wait=false new",
	} {
		require.NoError(t, agent(allowed), allowed)
	}
	// To what it has applied it gives the label back that another has taken away, and removes it only then.
	create, asAgent := object("Secret", "mine", "applied", "krane"), "apply --server-side --field-manager="+manifests.Account
	apply := strings.Replace(create, "create", asAgent, 1)
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
