package manifests_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/cmd/krane/manifests"
)

func TestTheManifestsAreYAMLWithoutWildcards(t *testing.T) {
	t.Parallel()
	out, err := manifests.Manifests{Image: "krane:1", ControlURL: "https://control.example", Region: "eu"}.YAML()
	require.NoError(t, err)
	require.Contains(t, out, "https://control.example")
	kinds := map[string]int{}
	for _, text := range strings.Split(out, "---\n")[1:] {
		var o struct {
			Kind  string
			Rules []struct{ APIGroups, Resources, Verbs []string }
		}
		require.NoError(t, yaml.Unmarshal([]byte(text), &o))
		kinds[o.Kind]++
		for _, rule := range o.Rules {
			for _, texts := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs} {
				require.NotContains(t, texts, "*")
			}
		}
	}
	require.Equal(t, map[string]int{
		"Namespace": 1, "ServiceAccount": 1, "ClusterRole": 2, "ClusterRoleBinding": 2, "Deployment": 1,
		"ValidatingAdmissionPolicy": 1, "ValidatingAdmissionPolicyBinding": 1,
	}, kinds)
}

func TestTheReasonOfTheRuleForSecretsStandsAboveIt(t *testing.T) {
	t.Parallel()
	out, err := manifests.Manifests{Image: "krane:1", ControlURL: "https://control.example", Region: "eu"}.YAML()
	require.NoError(t, err)
	above, _, found := strings.Cut(out, "- apiGroups:\n  - \"\"\n  resources:\n  - secrets\n")
	require.True(t, found, "Secrets have a rule of their own")
	lines := strings.Split(strings.TrimSuffix(above, "\n"), "\n")
	require.Regexp(t, `^# .*`, lines[len(lines)-1])
	require.Contains(t, above, "RBAC cannot state")
}

func TestTheLimitOfDeletionsOutlivesTheContainer(t *testing.T) {
	t.Parallel()
	m := manifests.Manifests{Image: "krane:1", ControlURL: "https://control.example", Region: "eu"}
	out, err := m.YAML()
	require.NoError(t, err)
	require.Contains(t, out, "name: KRANE_STATE_DIR\n          value: /var/lib/krane\n")
	require.Contains(t, out, "mountPath: /var/lib/krane\n")
	require.Contains(t, out, "emptyDir:")
	m.StateClaim = "memory"
	out, err = m.YAML()
	require.NoError(t, err)
	require.Contains(t, out, "claimName: memory\n")
}

func TestPlainHTTPIsAskedFor(t *testing.T) {
	t.Parallel()
	m := manifests.Manifests{Image: "krane:1", ControlURL: "http://control.example", Region: "eu"}
	_, err := m.YAML()
	require.ErrorContains(t, err, "the token is not encrypted; KRANE_ALLOW_HTTP=true allows it")
	m.AllowHTTP = true
	out, err := m.YAML()
	require.NoError(t, err)
	require.Regexp(t, `- name: KRANE_ALLOW_HTTP\n +value: "true"`, out)
}
