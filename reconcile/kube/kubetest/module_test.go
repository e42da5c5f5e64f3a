package kubetest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheEmbeddedModuleIsTheOneThatIsMaintained(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		want, err := os.ReadFile(filepath.Join("../../../internal/kube", name))
		require.NoError(t, err)
		have, err := os.ReadFile(filepath.Join("module", name+".txt"))
		require.NoError(t, err)
		require.Equal(t, string(want), string(have), "make tidy copies internal/kube/%s", name)
	}
}

// foreign is the test of a module that uses this one as its users do.
const foreign = `package sites_test

import (
	"testing"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

var shared kubetest.Shared

func TestMain(m *testing.M) { shared.Main(m) }

func TestSites(t *testing.T) {
	cluster := shared.Cluster(t)
	ns := cluster.Namespace(t)
	site := "{apiVersion: v1, kind: ConfigMap, metadata: {name: site, namespace: " + ns + "}, data: {color: blue}}"
	if err := cluster.Apply(t.Context(), site); err != nil {
		t.Fatal(err)
	}
	color, err := cluster.Kubectl(t.Context(), "get", "configmap", "site", "-n", ns, "-o", "jsonpath={.data.color}")
	if err != nil || color != "blue" {
		t.Fatal(color, err)
	}
}
`

// TestAnyModuleMayUseIt: in a folder of its own, outside of any workspace, with flags that fit no module
// but the user's, and without a network.
func TestAnyModuleMayUseIt(t *testing.T) {
	if testing.Short() {
		t.Skip("long: go test in another module")
	}
	t.Parallel()
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	dir := t.TempDir()
	read := func(name string) string {
		content, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		return string(content)
	}
	const trueup = "github.com/seed-9e1ffd66/trueup"
	for name, content := range map[string]string{
		"go.mod": strings.Replace(read("go.mod"), "module "+trueup, "module example.com/sites", 1) +
			"\nrequire " + trueup + " v0.0.0\n\nreplace " + trueup + " => " + root + "\n",
		"go.sum":        read("go.sum"),
		"sites_test.go": foreign,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	command := func(flags string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS="+flags, "GOPROXY=off")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	command("-mod=mod", "mod", "vendor") // also where there is nothing of this repository but a copy
	require.Contains(t, command("-mod=vendor", "test", "-v", "."), "--- PASS: TestSites")
}
