package installation_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/installation"
)

func TestTheObjectsOfAnAgentReferToEachOther(t *testing.T) {
	t.Parallel()
	agent := installation.Agent{Name: "tug", Namespace: "harbour", TokenSecret: "tug-token", TokenDir: "/run/tug"}
	objects := append(agent.Base(), agent.Role("tug", installation.Rule("", []any{"pods"}, []any{"get"}))...)
	objects = append(objects, agent.ClusterRole("tug-pods")...)
	objects = append(objects, agent.Deployment(installation.Workload{
		Image: "tug:1", Env: []installation.Variable{{Name: "PIER", Value: "7"}}, Port: 80, PortName: "http", MemoryLimit: "1Gi",
	}))
	out, err := agent.YAML([]string{"More."}, objects...)
	require.NoError(t, err)
	comment, _, _ := strings.Cut(out, "---\n")
	require.Equal(t, `# The token comes from:
# kubectl create secret generic tug-token --namespace harbour --from-file=token=FILE
# More.
`, comment)
	for _, want := range []string{
		"image: tug:1", "name: PIER", "containerPort: 80", "memory: 1Gi", "name: GOMEMLIMIT", `value: "966367638"`, "mountPath: /run/tug", "secretName: tug-token",
		"serviceAccountName: tug", "kind: RoleBinding", "kind: ClusterRoleBinding", "name: tug-pods", "type: Recreate",
	} {
		require.Contains(t, out, want)
	}
	for _, o := range objects {
		namespace := o["metadata"].(installation.Object)["namespace"]
		switch o["kind"] {
		case "Namespace", "ClusterRole", "ClusterRoleBinding":
			require.Nil(t, namespace, o["kind"])
		default:
			require.Equal(t, "harbour", namespace, o["kind"])
		}
	}
}

// TestAWriteThatCannotBeJudgedIsRefused has a policy in force for all that the agent writes.
func TestAWriteThatCannotBeJudgedIsRefused(t *testing.T) {
	t.Parallel()
	agent := installation.Agent{Name: "tug", Namespace: "harbour"}
	policy := installation.WritePolicy{Message: "no", Allowed: []string{"a", "b || c"}}
	out, err := agent.YAML(nil, agent.WritePolicy(policy)...)
	require.NoError(t, err)
	for _, want := range []string{
		"  failurePolicy: Fail\n", "  validationActions:\n  - Deny\n", "expression: (a) || (b || c)\n", "message: \"no\"\n",
		"expression: request.userInfo.username == 'system:serviceaccount:harbour:tug'\n",
		"operations:\n      - CREATE\n      - UPDATE\n      - DELETE\n      resources:\n      - '*/*'\n",
	} {
		require.Contains(t, out, want)
	}
	require.NotContains(t, out, "variables:")
	policy.Variables = []installation.Variable{{Name: "home", Value: "request.name"}}
	out, err = agent.YAML(nil, agent.WritePolicy(policy)...)
	require.NoError(t, err)
	require.Contains(t, out, "  variables:\n  - expression: request.name\n    name: home\n")
}

func TestAPrivateAuthorityIsTrusted(t *testing.T) {
	t.Parallel()
	agent := installation.Agent{Name: "tug", Namespace: "harbour"}
	out, err := agent.YAML(nil, agent.Deployment(installation.Workload{
		MemoryLimit: "1Gi", Authorities: "pilots", Env: []installation.Variable{{Name: "PIER", Value: "$(HOME) $7 $$(A)"}},
	}))
	require.NoError(t, err)
	require.Contains(t, out, "name: PIER\n          value: $$(HOME) $$7 $$$$(A)\n", "it is text")
	require.Contains(t, out, "name: SSL_CERT_DIR\n          value: /etc/authorities\n")
	require.Contains(t, out, "mountPath: /etc/authorities\n          name: authorities\n          readOnly: true\n")
	require.Contains(t, out, "configMap:\n          name: pilots\n")
}

func TestAFolderOutlivesItsContainerOrItsPod(t *testing.T) {
	t.Parallel()
	agent := installation.Agent{Name: "tug", Namespace: "harbour"}
	for claim, volume := range map[string]string{"": "emptyDir:\n          sizeLimit: 16Mi\n", "logbook": "persistentVolumeClaim:\n          claimName: logbook\n"} {
		out, err := agent.YAML(
			nil,
			agent.Deployment(installation.Workload{MemoryLimit: "1Gi", State: installation.State{Dir: "/var/lib/tug", Size: "16Mi", Claim: claim}}),
		)
		require.NoError(t, err)
		require.Contains(t, out, "mountPath: /var/lib/tug\n          name: state\n")
		require.Contains(t, out, volume)
		require.Contains(t, out, "fsGroup: 65532\n")
	}
}
