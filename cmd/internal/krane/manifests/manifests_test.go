package manifests_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/manifests"
)

func TestTheManifestsAreYAMLWithoutWildcardWrites(t *testing.T) {
	t.Parallel()
	out, err := manifests.Manifests{Image: "krane:1", ControlURL: "https://control.example", Region: "eu"}.YAML()
	require.NoError(t, err)
	require.Contains(t, out, "https://control.example")
	kinds := map[string]int{}
	for _, text := range strings.Split(out, "---\n")[1:] {
		var o struct {
			Kind  string
			Rules []struct{ Resources, Verbs []string }
		}
		require.NoError(t, yaml.Unmarshal([]byte(text), &o))
		kinds[o.Kind]++
		for _, rule := range o.Rules {
			require.NotContains(t, rule.Verbs, "*")
			if len(rule.Resources) == 1 && rule.Resources[0] == "*" {
				require.Equal(t, []string{"list"}, rule.Verbs)
			}
		}
	}
	require.Equal(t, map[string]int{"Namespace": 1, "ServiceAccount": 1, "ClusterRole": 2, "ClusterRoleBinding": 2, "Deployment": 1}, kinds)
}
