package operator //nolint:testpackage // what is judged is not exported

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/seed-9e1ffd66/trueup/cmd/api/thurkube/v1alpha1"
)

func asking(rules ...rbacv1.PolicyRule) *v1alpha1.ClusterAccess {
	return &v1alpha1.ClusterAccess{ObjectMeta: named("wide"), Spec: v1alpha1.ClusterAccessSpec{Rules: rules}}
}

func rule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

// ownRules are those that the manifests give to the operator.
func ownRules(t *testing.T) (all []rbacv1.PolicyRule) {
	t.Helper()
	for _, text := range rules() {
		var found rbacv1.PolicyRule
		require.NoError(t, into(toAny(text), &found))
		all = append(all, found)
	}
	all = append(all, rule("coordination.k8s.io", "leases", "get", "list", "watch", "create", "update", "patch"))
	return all
}

func toAny(of any) map[string]any { o, _ := of.(map[string]any); return o }

// TestHostileRulesOfTheOperator is D31 as far as it is decided here: with an empty ceiling
// each of the operator's own rules is refused, in either scope, and the message names the
// rule, the ceiling and its label.
func TestHostileRulesOfTheOperator(t *testing.T) {
	t.Parallel()
	own := ownRules(t)
	require.Greater(t, len(own), 8)
	for i, asked := range own {
		for _, scope := range []v1alpha1.AccessScope{v1alpha1.ClusterScope, v1alpha1.NamespaceScope} {
			t.Run(fmt.Sprintf("%d %s %s", i, asked.Resources[0], scope), func(t *testing.T) {
				t.Parallel()
				for _, ceiling := range [][]rbacv1.PolicyRule{nil, {rule("", "nodes", "list")}} {
					found := judgeRules(asking(asked), scope, "fleet-ceiling", ceiling)
					require.NotNil(t, found, "%v", asked)
					require.Equal(t, reasonDenied, found.reason)
					for _, text := range append([]string{"ClusterAccess wide", "ClusterRole fleet-ceiling", LabelCeiling + "=true"}, asked.Resources[0], asked.Verbs[0]) {
						require.Contains(t, found.message, text)
					}
				}
			})
		}
	}
}

func TestHostileRulesAboveTheCeiling(t *testing.T) {
	t.Parallel()
	ceiling := []rbacv1.PolicyRule{
		rule("", "nodes", "get", "list"), rule("apps", "*", "get"),
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}, ResourceNames: []string{"site"}},
		{NonResourceURLs: []string{"/metrics", "/api/*"}, Verbs: []string{"get"}},
	}
	site := rule("", "configmaps", "get")
	site.ResourceNames = []string{"site"}
	other := site
	other.ResourceNames = []string{"site", "other"}
	both := rule("", "nodes", "list")
	both.APIGroups, both.Resources = []string{"", "apps"}, []string{"nodes", "deployments"}
	for name, c := range map[string]struct {
		asked rbacv1.PolicyRule
		above string
	}{
		"within":                 {rule("", "nodes", "list"), ""},
		"another verb":           {rule("", "nodes", "list", "delete"), ": delete nodes;"},
		"every verb":             {rule("", "nodes", "*"), ": * nodes;"},
		"another group":          {rule("metrics.k8s.io", "nodes", "list"), ": list nodes.metrics.k8s.io;"},
		"every group":            {rule("*", "nodes", "list"), ": list nodes.*;"},
		"a wide ceiling":         {rule("apps", "deployments", "get"), ""},
		"every resource":         {rule("", "*", "get"), ": get *;"},
		"a subresource":          {rule("", "nodes/proxy", "get"), ": get nodes/proxy;"},
		"a name":                 {site, ""},
		"another name":           {other, ": get configmaps other;"},
		"every name":             {rule("", "configmaps", "get"), ": get configmaps;"},
		"a URL":                  {rbacv1.PolicyRule{NonResourceURLs: []string{"/api/v1"}, Verbs: []string{"get"}}, ""},
		"another URL":            {rbacv1.PolicyRule{NonResourceURLs: []string{"/logs"}, Verbs: []string{"get"}}, ": get /logs;"},
		"every URL":              {rbacv1.PolicyRule{NonResourceURLs: []string{"*"}, Verbs: []string{"get"}}, ": get *;"},
		"no verb, which is none": {rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}}, ""},
		"one of a product":       {both, "list deployments;"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := judgeRules(asking(c.asked), v1alpha1.ClusterScope, Ceiling, ceiling)
			if c.above == "" {
				require.Nil(t, found)
				return
			}
			require.NotNil(t, found)
			require.Contains(t, found.message, c.above)
		})
	}
	many := rule("", "a", "get")
	many.Resources = strings.Split("a b c d e f g h i j k l", " ")
	found := judgeRules(asking(many), v1alpha1.ClusterScope, Ceiling, nil)
	require.NotNil(t, found)
	require.Contains(t, found.message, "get j; and 2 more;")
}

// TestHostilePodMakers is D32, rights in one namespace that make pods: the ceiling may allow it
// to jobs with rights in the whole cluster, whose namespaces an administrator has labelled.
func TestHostilePodMakers(t *testing.T) {
	t.Parallel()
	everything := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
	for _, asked := range []rbacv1.PolicyRule{
		rule("", "pods", "create"), rule("", "pods", "patch"), rule("", "pods/ephemeralcontainers", "update"), rule("", "*/ephemeralcontainers", "patch"),
		rule("", "replicationcontrollers", "create"), rule("", "serviceaccounts/token", "create"), rule("", "*/token", "create"),
		rule("apps", "deployments", "create"), rule("apps", "replicasets", "update"), rule("apps", "statefulsets", "patch"), rule("apps", "daemonsets", "create"),
		rule("apps", "controllerrevisions", "patch"), rule("apps", "*", "create"), rule("*", "deployments", "*"),
		rule("batch", "jobs", "create"), rule("batch", "cronjobs", "patch"), rule("batch", "jobs", "*"), rule("*", "*", "create"), rule("", "*", "update"), rule("", "*", "*"),
		rule("rbac.authorization.k8s.io", "rolebindings", "create"), rule("rbac.authorization.k8s.io", "roles", "patch"),
		rule("rbac.authorization.k8s.io", "roles", "bind"), rule("rbac.authorization.k8s.io", "roles", "escalate"), rule("", "serviceaccounts", "impersonate"),
	} {
		t.Run(strings.Join(append(asked.APIGroups, asked.Verbs[0], asked.Resources[0]), " "), func(t *testing.T) {
			t.Parallel()
			found := judgeRules(asking(asked), v1alpha1.NamespaceScope, Ceiling, everything)
			require.NotNil(t, found)
			require.Equal(t, reasonDenied, found.reason)
			require.Contains(t, found.message, "access: Namespace may not make pods or rights")
			require.Contains(t, found.message, asked.Verbs[0]+" "+asked.Resources[0])
			require.Nil(t, judgeRules(asking(asked), v1alpha1.ClusterScope, Ceiling, everything))
		})
	}
	for _, asked := range []rbacv1.PolicyRule{
		rule("", "pods", "get", "list", "watch", "delete"), rule("", "pods/log", "get"), rule("", "configmaps", "*"), rule("", "secrets", "create"),
		rule("apps", "deployments/scale", "patch"), rule("batch", "jobs", "get", "delete"), rule("thurkube.thurbeen.eu", "agentjobs", "create"), rule("", "serviceaccounts", "create"),
	} {
		require.Nil(t, judgeRules(asking(asked), v1alpha1.NamespaceScope, Ceiling, everything), "%v", asked)
	}
}

// TestHostileCeilingThatFalls wakes the jobs that have rights, and no others.
func TestHostileCeilingThatFalls(t *testing.T) {
	t.Parallel()
	w := &operator{limits: limits{ceiling: "fleet-ceiling"}}
	plain, _ := minimal()
	require.NotContains(t, w.referencesOf(plain), ceilingRole("fleet-ceiling"))
	granted, _ := everything()
	require.Contains(t, w.referencesOf(granted), ceilingRole("fleet-ceiling"))
}
