package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAFailedCutLeavesNoTag plants changes without a section for the version.
func TestAFailedCutLeavesNoTag(t *testing.T) {
	t.Parallel()
	root := checkout(t)
	require.NoError(t, os.WriteFile(filepath.Join(root, "CHANGELOG.md"), []byte("# Changelog\n"), 0o600))
	inRepo(t, root, "commit", "--quiet", "--all", "--no-gpg-sign", "--message", "plant")
	err := run(t.Context(), []string{"cut", "--root", root, "--out", t.TempDir(), "--version", "v0.1.0-rc.1"}, t.Output())
	require.ErrorContains(t, err, "CHANGELOG.md has neither a section v0.1.0-rc.1 nor one Unreleased")
	require.Empty(t, inRepo(t, root, "tag", "--list"))

	out := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(out, "old"), nil, 0o600))
	err = run(t.Context(), []string{"cut", "--root", root, "--out", out, "--version", "v0.1.0-rc.1"}, t.Output())
	require.ErrorContains(t, err, "--out: the folder "+out+" has files")
}

// TestACutIsBuiltFromItsTags does the hour of docs/releasing.md for one program and platform.
func TestACutIsBuiltFromItsTags(t *testing.T) {
	t.Parallel()
	compiles(t)
	const version = "v0.1.0-rc.1"
	root, key := checkout(t), filepath.Join(t.TempDir(), "key.pem")
	openssl(t, "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
	openssl(t, "pkey", "-in", key, "-pubout", "-out", filepath.Join(root, publicName))
	inRepo(t, root, "add", publicName)
	inRepo(t, root, "commit", "--quiet", "--no-gpg-sign", "--message", "publish the key")
	out := filepath.Join(t.TempDir(), "dist")
	require.NoError(t, run(t.Context(), []string{
		"cut", "--root", root, "--out", out, "--version", version, "--key", key, "--programs", "trueup", "--platforms", "linux/amd64",
	}, t.Output()))
	revision := inRepo(t, root, "rev-parse", "cmd/"+version+"^{commit}")

	text, err := os.ReadFile(filepath.Join(out, provenanceName))
	require.NoError(t, err)
	var statement struct {
		Predicate struct {
			BuildDefinition struct {
				ResolvedDependencies []struct{ Digest map[string]string }
			}
		}
	}
	require.NoError(t, json.Unmarshal(text, &statement))
	require.Equal(t, revision, statement.Predicate.BuildDefinition.ResolvedDependencies[0].Digest["gitCommit"])
	program := filepath.Join(t.TempDir(), "trueup")
	content := unpack(t, filepath.Join(out, "trueup_v0.1.0-rc.1_linux_amd64.tar.gz"))["trueup_v0.1.0-rc.1_linux_amd64/trueup"]
	require.NoError(t, os.WriteFile(program, []byte(content), 0o700)) //nolint:gosec // it is run
	printed, err := exec.CommandContext(t.Context(), program, "version").Output()
	require.NoError(t, err)
	require.Equal(t, []string{"trueup", version, revision}, strings.Fields(string(printed))[:3])
	for _, name := range []string{signatureName, sumsName, "trueup.krew.yaml", "trueup.rb", "trueup_v0.1.0-rc.1_kubernetes.tar.gz"} {
		require.FileExists(t, filepath.Join(out, name))
	}
	openssl(t, "dgst", "-sha256", "-verify", filepath.Join(root, publicName), "-signature", decoded(t, out), filepath.Join(out, sumsName))
}

// decoded returns a file with the signature as openssl reads it.
func decoded(t *testing.T, out string) string {
	t.Helper()
	into := filepath.Join(t.TempDir(), "sig")
	openssl(t, "base64", "-d", "-A", "-in", filepath.Join(out, signatureName), "-out", into)
	return into
}

// TestEveryModuleIsCheckedForEachSystem lets go vet compile everything, tests too, for the
// systems that archives are for and this one is not.
func TestEveryModuleIsCheckedForEachSystem(t *testing.T) {
	t.Parallel()
	compiles(t)
	work, err := filepath.Abs("../../go.work")
	require.NoError(t, err)
	for _, system := range []string{"darwin", "windows"} {
		for _, dir := range nested() {
			cmd := exec.CommandContext(t.Context(), "go", "vet", "./...")
			cmd.Dir, cmd.Env = filepath.Join("../..", dir), append(os.Environ(), "GOOS="+system, "GOWORK="+work, "CGO_ENABLED=0")
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s, module %s\n%s", system, dir, out)
		}
	}
}
