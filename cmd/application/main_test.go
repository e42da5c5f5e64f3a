package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, failed bytes.Buffer
	code = program.Run(t.Context(), command(), args, &out, &failed)
	return code, out.String(), failed.String()
}

func TestTheCommandPrintsWhatItNeedsAndWhatAppsGet(t *testing.T) {
	t.Setenv("BASE_DOMAIN", "example.com")
	code, out, _ := run(t, "manifests", "--image", "example.com/app:1", "--base-domain", "apps.example.com")
	require.Zero(t, code)
	for _, part := range []string{"name: applications.platform.internal", "name: previewenvironments.platform.internal", "image: example.com/app:1", "value: apps.example.com", "name: plattr-operator-services"} {
		require.Contains(t, out, part)
	}
	file := filepath.Join(t.TempDir(), "app.yaml")
	require.NoError(
		t,
		os.WriteFile(
			file,
			[]byte(
				"{apiVersion: platform.internal/v1alpha1, kind: Application, metadata: {name: a}, spec: {environment: uat, database: {enabled: true}}}",
			),
			0o600,
		),
	)
	code, out, _ = run(t, "env", "--profile", "remote", "-f", file)
	require.Zero(t, code)
	require.Contains(t, out, "POSTGREST_URL=https://a.uat.example.com/api/rest\n")
	code, out, _ = run(t, "--help")
	require.Zero(t, code)
	require.Contains(t, out, "DB_ADMIN_URL")
}

func TestAWrongSettingIsNamedBeforeAnythingRuns(t *testing.T) {
	for name, message := range map[string]string{"BASE_DOMAIN=x": "BASE_DOMAIN: is", "KEYCLOAK_ADMIN_PASSWORD=sesame": "KEYCLOAK_ADMIN_URL: is not set", "DB_ADMIN_URL=sesame": `DB_ADMIN_URL: is "(hidden)", must be a URL such as postgresql://`} {
		t.Run(name, func(t *testing.T) {
			key, value, _ := strings.Cut(name, "=")
			t.Setenv(key, value)
			code, _, failed := run(t)
			require.Equal(t, program.ExitUsage, code)
			require.Contains(t, failed, message)
			require.NotContains(t, failed, "sesame")
		})
	}
	for args, message := range map[string]string{"env": "--file: is not set", "--log-level=chatty": "chatty", "--kubeconfig=/none": `--kubeconfig: is "/none", must be a file that can be read`, "more": "unknown command", "--base-domain=": `--base-domain: is "", must be a domain`} {
		code, _, failed := run(t, args)
		require.Equal(t, program.ExitUsage, code)
		require.Contains(t, failed, message)
	}
	file := filepath.Join(t.TempDir(), "pod.yaml")
	require.NoError(t, os.WriteFile(file, []byte("{apiVersion: v1, kind: Pod, metadata: {name: a}}"), 0o600))
	for path, message := range map[string]string{
		file:    `must be a file with one Application of platform.internal/v1alpha1 with a name: it has apiVersion "v1", kind "Pod"`,
		"/none": "must be a file that can be read: no such file or directory",
	} {
		code, _, failed := run(t, "env", "--file", path)
		require.Equal(t, program.ExitUsage, code)
		require.Contains(t, failed, "--file: is "+strconv.Quote(path)+", "+message)
	}
}
