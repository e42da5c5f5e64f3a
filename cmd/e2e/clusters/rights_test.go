package clusters_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	shuttle "github.com/seed-9e1ffd66/trueup/cmd/shuttle/agent"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
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

// TestTheAgentWritesOnlyInNamespacesOfProjects tries, as its account, what RBAC would allow: the policy of
// "shuttle manifests" has the API server refuse it, and no other account is bound by it.
func TestTheAgentWritesOnlyInNamespacesOfProjects(t *testing.T) {
	t.Parallel()
	kube := kubetest.Start(t, kubetest.Options{})
	text, err := shuttle.Manifests{
		Image: "shuttle", StarbaseURL: "https://starbase", ClusterID: uuid("installed"), Region: "nyc3",
		Settings: func(variable string) string {
			return map[string]string{"STARFORM_GATEWAY_SERVICE": "edge/proxy"}[variable]
		},
	}.YAML()
	require.NoError(t, err)
	require.NoError(t, kube.Apply(t.Context(), text))
	admin := func(command string) string {
		t.Helper()
		out, err := kube.Kubectl(t.Context(), strings.Fields(command)...)
		require.NoError(t, err, command)
		return out
	}
	agent := func(command string) error {
		_, err := kube.Kubectl(
			t.Context(),
			append(strings.Fields(command), "--as=system:serviceaccount:starform-system:shuttle", "--as-group=system:authenticated")...)
		return err
	}
	for _, name := range []string{"proj-shop", "shop", "edge", "was-edge"} {
		admin("create namespace " + name)
	}
	admin("label namespace was-edge starform.io/namespace-role=gateway")
	for _, service := range []string{"-n edge proxy", "-n edge other", "-n was-edge proxy", "-n shop proxy"} {
		admin("create service clusterip --tcp=80 " + service)
	}
	admin("create secret generic -n shop theirs")
	admin("create secret generic -n starform-system theirs")
	admin("create secret generic -n proj-shop ours")

	await.Eventually(t, "the policy is in force", func() bool {
		err := agent("create configmap -n shop --dry-run=server a")
		return err != nil && strings.Contains(err.Error(), "shuttle writes only in namespaces of projects")
	})
	for _, refused := range []string{
		"create namespace my-proj-a", "create namespace shopping", "delete namespace shop", "label namespace shop starform.io/namespace-role=gateway",
		"label namespace starform-system a=b", "label namespace kube-system a=b",
		"create configmap -n default a", "create secret generic -n kube-system a", "delete secret -n shop theirs",
		"create role -n shop --verb=get --resource=pods a", "create deployment -n starform-system --image=a a", "delete serviceaccount -n starform-system shuttle",
		"delete deployment -n starform-system shuttle", "create serviceaccount -n kube-system a",
		"annotate service -n edge other a=b", "annotate service -n shop proxy a=b", "delete service -n edge proxy",
		"delete namespace edge", "create configmap -n edge a", "delete namespace was-edge", "create configmap -n was-edge a",
		"create configmap -n kube-node-lease proj-a", "create secret generic -n starform-system a", "delete secret -n starform-system theirs",
	} {
		require.ErrorContains(t, agent(refused), "shuttle writes only in namespaces of projects", refused)
	}
	for _, allowed := range []string{
		"create namespace proj-new", "label namespace proj-new a=b", "create configmap -n proj-shop a", "delete secret -n proj-shop ours",
		"create configmap -n starform-system a", "create secret generic -n starform-system shuttle-token-renewed",
		"label namespace edge starform.io/namespace-role=gateway", "annotate service -n edge proxy a=b",
		"annotate service -n was-edge proxy a=b", "label namespace was-edge starform.io/namespace-role-", "delete namespace --wait=false proj-new",
	} {
		require.NoError(t, agent(allowed), allowed)
	}
	admin("create configmap -n shop a")
	admin("delete namespace shop --wait=false")
}
