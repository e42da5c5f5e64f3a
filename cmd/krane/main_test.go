package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func TestTheCommandLine(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, command(t.Context(), []string{"version"}, &out, &out))
	require.Contains(t, out.String(), "go1.")
	out.Reset()
	require.ErrorIs(t, command(t.Context(), []string{"--help"}, &out, &out), flag.ErrHelp)
	require.Contains(t, out.String(), "control.url")
	require.ErrorContains(t, command(t.Context(), []string{"serve"}, &out, &out), `unknown command "serve"`)
	require.ErrorContains(t, command(t.Context(), []string{"--log-level", "loud"}, &out, &out), "want debug")
	file := filepath.Join(t.TempDir(), "krane.yaml")
	require.NoError(t, os.WriteFile(file, []byte("control: {token: sesame}\n"), 0o600))
	err := command(t.Context(), []string{"--config", file}, &out, &out)
	require.ErrorContains(t, err, "cluster.region")
	require.NotContains(t, err.Error(), "sesame")
}

func TestTheManifestsAreYAMLWithoutWildcardWrites(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, command(context.WithoutCancel(t.Context()), []string{"manifests", "--region", "eu"}, &out, &out))
	kinds := map[string]int{}
	for _, text := range strings.Split(out.String(), "---\n")[1:] {
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
