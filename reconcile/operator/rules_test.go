package operator_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
	"github.com/seed-9e1ffd66/trueup/reconcile/operator"
)

// lines are rules as <group>/<resource> <verbs>.
func lines(rules []rbacv1.PolicyRule) (all []string) {
	for _, r := range rules {
		all = append(all, strings.Join(r.APIGroups, ",")+"/"+strings.Join(r.Resources, ",")+" "+strings.Join(r.Verbs, " "))
	}
	return all
}

func TestRulesAreTheRightsOfEachKind(t *testing.T) {
	t.Parallel()
	const (
		reads = " get list watch"
		owns  = reads + " create patch delete"
	)
	kind := func(group, kind string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}
	}
	of := func(more ...string) []string {
		return append([]string{
			"events.k8s.io/events create patch", "example.com/siten" + reads + " patch",
			"example.com/siten/finalizers update", "example.com/siten/status patch",
		}, more...)
	}
	for name, c := range map[string]struct {
		owned, cluster []schema.GroupVersionKind
		referenced     []schema.GroupVersionResource
		want           []string
	}{
		"without pods": {
			owned: []schema.GroupVersionKind{kind("", "ConfigMap"), kind("networking.k8s.io", "Ingress")},
			want:  of("/configmaps"+owns, "networking.k8s.io/ingresses"+owns),
		},
		"a Deployment": {owned: []schema.GroupVersionKind{kind("apps", "Deployment")}, want: of("/pods list", "apps/deployments"+owns)},
		"a Job":        {owned: []schema.GroupVersionKind{kind("batch", "Job")}, want: of("/pods list", "batch/jobs"+owns)},
		"a NetworkPolicy": {
			owned: []schema.GroupVersionKind{kind("networking.k8s.io", "NetworkPolicy"), kind("batch", "Job")},
			want: of("/pods list", "/replicationcontrollers list", "apps/daemonsets list", "apps/deployments list", "apps/replicasets list",
				"apps/statefulsets list", "batch/cronjobs list",
				"batch/jobs list get watch create patch delete", "networking.k8s.io/networkpolicies"+owns),
		},
		"one of the cluster": {
			cluster: []schema.GroupVersionKind{kind("policy.networking.k8s.io", "AdminNetworkPolicy")},
			want:    of("policy.networking.k8s.io/adminnetworkpolicies" + owns),
		},
		"a custom resource": {owned: []schema.GroupVersionKind{kind("shop.io", "Till")}, want: of("/pods list", "shop.io/tills"+owns)},
		"of the cluster": {
			cluster: []schema.GroupVersionKind{kind("rbac.authorization.k8s.io", "ClusterRole")},
			want:    of("rbac.authorization.k8s.io/clusterroles" + owns),
		},
		"owned and referenced": {
			owned:      []schema.GroupVersionKind{kind("", "Secret")},
			referenced: []schema.GroupVersionResource{{Version: "v1", Resource: "secrets"}, {Version: "v1", Resource: "nodes"}},
			want:       of("/nodes"+reads, "/secrets"+owns),
		},
		"pods that are referenced": {
			owned:      []schema.GroupVersionKind{kind("apps", "StatefulSet")},
			referenced: []schema.GroupVersionResource{{Version: "v1", Resource: "pods"}},
			want:       of("/pods list get watch", "apps/statefulsets"+owns),
		},
	} {
		o := &operator.Operator[*Site]{Kind: kind("example.com", "Site"), Resource: "siten", Owns: c.owned, OwnsCluster: c.cluster}
		for _, resource := range c.referenced {
			o.Referenced = append(o.Referenced, kube.Kind{Resource: resource})
		}
		have := o.Rules()
		require.ElementsMatch(t, c.want, lines(have), name)
		require.IsIncreasing(t, lines(have), name)
	}
	require.Empty(t, (&operator.Process{}).Rules(), "without a Lease")
	require.Equal(t, []string{"coordination.k8s.io/leases get create update watch"}, lines((&operator.Process{Lease: &kube.Lease{}}).Rules()))
}
