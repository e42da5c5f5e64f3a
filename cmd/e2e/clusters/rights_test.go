package clusters_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	shuttle "github.com/seed-9e1ffd66/trueup/cmd/shuttle/agent"
)

// TestTheAgentMayDoWhatTheContractAsksAndNoMore compares what the API server grants to the
// account of "shuttle manifests" with the kinds of section B6, pods to be read, kinds of
// others that keep a namespace to be listed, and the Lease: no wildcard, no escalate, no bind, no list of secrets but of those that it writes.
func TestTheAgentMayDoWhatTheContractAsksAndNoMore(t *testing.T) {
	t.Parallel()
	kube := startBareKubernetes(t)
	const account = "system:serviceaccount:starform-system:"
	mayDo := func(user, namespace string) (list []string) {
		t.Helper()
		text, err := kube.Kubectl(
			t.Context(),
			"auth",
			"can-i",
			"--list",
			"--no-headers",
			"-n",
			namespace,
			"--as",
			user,
			"--as-group",
			"system:serviceaccounts",
			"--as-group",
			"system:authenticated",
		)
		require.NoError(t, err)
		for line := range strings.Lines(text) {
			list = append(list, strings.Join(strings.Fields(line), " "))
		}
		return list
	}
	own := func(namespace string) []string {
		t.Helper()
		anyone := mayDo(account+"nothing", namespace) // what every account may do
		list := slices.DeleteFunc(mayDo(account+"shuttle", namespace), func(line string) bool { return slices.Contains(anyone, line) })
		slices.Sort(list)
		return list
	}
	written := []string{
		"configmaps",
		"deployments.apps",
		"horizontalpodautoscalers.autoscaling",
		"httproutes.gateway.networking.k8s.io",
		"limitranges",
		"namespaces",
		"networkpolicies.networking.k8s.io",
		"poddisruptionbudgets.policy",
		"resourcequotas",
		"rolebindings.rbac.authorization.k8s.io",
		"roles.rbac.authorization.k8s.io",
		"secrets",
		"serviceaccounts",
		"services",
	}
	require.Len(t, shuttle.Kinds(), len(written))
	var want []string
	for _, resource := range written {
		want = append(want, resource+" [] [] [get list watch create patch delete]")
	}
	want = append(want, "pods [] [] [get list watch]")
	for _, resource := range []string{
		"cronjobs.batch", "customresourcedefinitions.apiextensions.k8s.io", "daemonsets.apps", "ingresses.networking.k8s.io", "jobs.batch", "persistentvolumeclaims", "replicasets.apps", "replicationcontrollers", "statefulsets.apps",
	} {
		want = append(want, resource+" [] [] [list]")
	}
	slices.Sort(want)
	require.Equal(t, want, own("default"))
	want = append(want, "leases.coordination.k8s.io [] [] [get create update watch]")
	slices.Sort(want)
	require.Equal(t, want, own("starform-system"))
	for _, line := range own("starform-system") {
		for _, never := range []string{"*", "escalate", "bind ", "impersonate"} {
			require.NotContains(t, line, never)
		}
	}
}
