package program_test

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

var update = flag.Bool("update", false, "write the bases and charts below deploy")

// bases is the folder of the kustomize bases, one for each program.
const bases = "../../../deploy"

const baseText = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- manifests.yaml
`

// base is the program's kustomize base of that name: what its command prints with these flags.
// With -update it is rewritten.
func (h habit) base(t *testing.T, path, name string, flags ...string) string {
	t.Helper()
	code, stdout, stderr := call(t, path, slices.Concat([]string{"manifests"}, h.needed, flags)...)
	require.Zero(t, code, stderr)
	dir := filepath.Join(bases, name)
	upToDate(t, dir, map[string]string{"kustomization.yaml": baseText, "manifests.yaml": "# Made by: make generate\n" + stdout})
	if h.name != "agentjob" { // it has a chart of its own
		upToDate(t, filepath.Join(charts, name), h.chart(t, path, name, stdout))
	}
	return dir
}

// overlay applies what docs/programs.md shows of an overlay, with the base of this program.
func (h habit) overlay(t *testing.T, path string, kubernetes *kubetest.Cluster) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, "base"), os.DirFS(h.base(t, path, h.name))))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "overlay"), 0o755))
	page, err := os.ReadFile("../../../docs/programs.md")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	kustomization, _, ok := strings.Cut(rest, "```\n")
	require.True(t, ok)
	const remote = "https://github.com/seed-9e1ffd66/trueup//deploy/krane?ref=main"
	require.Contains(t, kustomization, remote)
	kustomization = strings.ReplaceAll(strings.ReplaceAll(kustomization, remote, "../base"), "krane", h.name)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay", "kustomization.yaml"), []byte(kustomization), 0o600))
	out, err := kubernetes.Kubectl(t.Context(), "apply", "--server-side", "--force-conflicts", "-k", filepath.Join(dir, "overlay"))
	require.NoError(t, err, out)
	out, err = kubernetes.Kubectl(
		t.Context(),
		"get",
		"deployments",
		"-A",
		"-o",
		`jsonpath={range .items[?(@.metadata.annotations.team=="platform")]}{.spec.template.spec.containers[0].image} {end}`,
	)
	require.NoError(t, err, out)
	require.Contains(t, strings.Fields(out), "registry.example.com/mirror/"+h.name+":v0.1.0")
	for name, flags := range h.bases {
		out, err := kubernetes.Kubectl(
			t.Context(),
			"apply",
			"--server-side",
			"--dry-run=server",
			"--force-conflicts",
			"-k",
			h.base(t, path, name, flags...),
		)
		require.NoError(t, err, out)
	}
}

// TestEachBaseIsOfAProgram finds a folder that nothing makes.
func TestEachBaseIsOfAProgram(t *testing.T) {
	t.Parallel()
	var want, have []string
	for _, h := range habits(t) {
		want = slices.Concat(want, []string{h.name}, slices.Collect(maps.Keys(h.bases)))
	}
	want = append(want, filepath.Base(charts))
	entries, err := os.ReadDir(bases)
	require.NoError(t, err)
	for _, entry := range entries {
		have = append(have, entry.Name())
	}
	require.ElementsMatch(t, want, have)
}
