package upstream_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest/upstream"
)

const roles = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: all}
rules:
- {apiGroups: [apps], resources: [deployments, deployments/scale], verbs: [get, patch]}
- {apiGroups: [""], resources: [secrets], resourceNames: [mine], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: all}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: all}
subjects: [{kind: ServiceAccount, name: program, namespace: home}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: leader, namespace: home}
rules:
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: leader, namespace: home}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: leader}
subjects: [{kind: ServiceAccount, name: program, namespace: home}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: unbound}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: people}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: unbound}
subjects: [{kind: Group, name: people}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: leader}
rules:
- {apiGroups: [""], resources: [events], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: another, namespace: home}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: leader}
subjects: [{kind: ServiceAccount, name: program, namespace: home}]
`

func TestRightsAreThoseOfTheRolesThatAreBound(t *testing.T) {
	t.Parallel()
	rights, err := upstream.Rights(roles, "team")
	require.NoError(t, err)
	for _, row := range []struct {
		allowed bool
		applytest.Request
	}{
		{true, applytest.Request{Verb: "get", Group: "apps", Resource: "deployments", Namespace: "shop", Name: "web"}},
		{true, applytest.Request{Verb: "patch", Group: "apps", Resource: "deployments", Subresource: "scale", Namespace: "shop", Name: "web"}},
		{false, applytest.Request{Verb: "patch", Group: "apps", Resource: "deployments", Subresource: "status", Namespace: "shop", Name: "web"}},
		{false, applytest.Request{Verb: "delete", Group: "apps", Resource: "deployments", Namespace: "shop", Name: "web"}},
		{false, applytest.Request{Verb: "get", Resource: "deployments", Namespace: "shop", Name: "web"}},
		{true, applytest.Request{Verb: "delete", Resource: "secrets", Namespace: "shop", Name: "mine"}},
		{false, applytest.Request{Verb: "list", Resource: "secrets", Namespace: "shop"}},
		{true, applytest.Request{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "team", Name: "l"}},
		{false, applytest.Request{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "shop", Name: "l"}},
		{false, applytest.Request{Verb: "get", Resource: "pods", Namespace: "shop", Name: "p"}},
		{false, applytest.Request{Verb: "get", Resource: "pods", Namespace: "team", Name: "p"}},
		{true, applytest.Request{Verb: "create", Resource: "events", Namespace: "team"}},
		{false, applytest.Request{Verb: "create", Resource: "events", Namespace: "shop"}},
	} {
		require.Equal(t, row.allowed, rights(row.Request) == nil, row.String())
	}
	_, err = upstream.Rights("kind: ConfigMap", "team")
	require.ErrorContains(t, err, "bind no role")
	_, err = upstream.Rights("- 1", "team")
	require.Error(t, err)
}
