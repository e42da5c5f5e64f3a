package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
	"github.com/seed-9e1ffd66/trueup/reconcile/operator"
)

// TestTheRightsAreThoseThatItNeeds: TestAnOperator runs it with them.
func TestTheRightsAreThoseThatItNeeds(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("rbac.yaml")
	require.NoError(t, err)
	var roles [][]rbacv1.PolicyRule
	for text := range strings.SplitSeq(string(data), "---\n") {
		var role rbacv1.ClusterRole // a Role has the same rules
		require.NoError(t, yaml.Unmarshal([]byte(text), &role))
		if len(role.Rules) > 0 {
			roles = append(roles, role.Rules)
		}
	}
	process := operator.Process{Lease: &kube.Lease{}}
	require.Equal(t, [][]rbacv1.PolicyRule{newOperator(nil).Rules(), process.Rules()}, roles)
}
