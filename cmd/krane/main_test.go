package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

// run runs the program and returns its exit status and what it wrote.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = program.Run(t.Context(), command(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestTheCommandLine(t *testing.T) {
	t.Parallel()
	code, stdout, _ := run(t, "version")
	require.Zero(t, code)
	require.Contains(t, stdout, "go1.")
	code, stdout, _ = run(t, "--help")
	require.Zero(t, code)
	require.Contains(t, stdout, "control.url")

	file := filepath.Join(t.TempDir(), "krane.yaml")
	require.NoError(t, os.WriteFile(file, []byte("control: {token: sesame}\n"), 0o600))
	for want, args := range map[string][]string{
		`unknown command "serve"`:               {"serve"},
		`--log-level: is "loud", must be debug`: {"--log-level", "loud"},
		"KRANE_CLUSTER_REGION: is not set":      {"--config", file},
	} {
		code, stdout, stderr := run(t, args...)
		require.Equal(t, program.ExitUsage, code, want)
		require.Empty(t, stdout)
		require.Contains(t, stderr, want)
		require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
		require.NotContains(t, stderr, "sesame")
	}
}

func TestPlainHTTPIsAllowedByASwitch(t *testing.T) {
	t.Parallel()
	const url, plain = "http://control.example.com", "the token is not encrypted"
	_, _, stderr := run(t, "--control-url", url)
	require.Contains(t, stderr, plain)
	_, _, stderr = run(t, "--allow-http", "--control-url", url)
	require.Contains(t, stderr, "KRANE_CLUSTER_REGION: is not set")
	require.NotContains(t, stderr, plain)

	code, _, stderr := run(t, "manifests", "--region", "eu", "--control-url", url)
	require.Equal(t, program.ExitUsage, code)
	require.Contains(t, stderr, plain+"; --allow-http=true allows it")
	code, stdout, stderr := run(t, "manifests", "--region", "eu", "--control-url", url, "--allow-http")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "name: KRANE_ALLOW_HTTP\n")
}

func TestTheManifestsAreYAMLWithoutWildcards(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := run(t, "manifests", "--region", "eu", "--control-url", "https://control.example.com")
	require.Zero(t, code, stderr)
	kinds := map[string]int{}
	for _, text := range strings.Split(stdout, "---\n")[1:] {
		var o struct {
			Kind  string
			Rules []struct{ Resources, Verbs []string }
		}
		require.NoError(t, yaml.Unmarshal([]byte(text), &o))
		kinds[o.Kind]++
		for _, rule := range o.Rules {
			require.NotContains(t, rule.Verbs, "*")
			require.NotContains(t, rule.Resources, "*")
		}
	}
	require.Equal(t, map[string]int{
		"Namespace": 1, "ServiceAccount": 1, "ClusterRole": 2, "ClusterRoleBinding": 2, "Deployment": 1,
		"ValidatingAdmissionPolicy": 1, "ValidatingAdmissionPolicyBinding": 1,
	}, kinds)
}
