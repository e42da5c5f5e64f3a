package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

// checkout returns a clone of this checkout with its uncommitted changes in a commit, so
// that a test sees the code it is part of.
func checkout(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "trueup")
	inRepo(t, ".", "clone", "--quiet", "--shared", "--no-tags", root, dir)
	inRepo(t, dir, "config", "user.name", "A Person")
	inRepo(t, dir, "config", "user.email", "person@example.com")
	inRepo(t, dir, "--git-dir="+filepath.Join(dir, ".git"), "--work-tree="+root, "add", "--all")
	inRepo(t, dir, "commit", "--quiet", "--allow-empty", "--no-verify", "--no-gpg-sign", "--message", "what is tested")
	inRepo(t, dir, "reset", "--quiet", "--hard")
	return dir
}

func inRepo(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := git(t.Context(), dir, nil, args...)
	require.NoError(t, err)
	return out
}

// nested are the folders of the modules that are published.
func nested() []string {
	return []string{
		".", "cloud/aws", "cmd", "examples", "reconcile/controllerruntime", "reconcile/operatormetrics",
		"reconcile/tracing", "reconcile/simtest/upstream", "statesync/sqlstore",
	}
}

// TestEachModuleHasATagAndRequiresTheOthersAtIt tags a release, and lets the go command
// itself get each module from these tags: its hashes are those of the other modules' go.sum.
func TestEachModuleHasATagAndRequiresTheOthersAtIt(t *testing.T) {
	t.Parallel()
	const version = "v0.1.0-rc.1"
	root := checkout(t)
	before := inRepo(t, root, "rev-parse", "HEAD")
	var log bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"tag", "--root", root, "--version", version}, &log))
	require.Equal(t, before, inRepo(t, root, "rev-parse", "HEAD"))
	require.Empty(t, inRepo(t, root, "status", "--porcelain"))
	require.Contains(t, log.String(), "git push --atomic origin v0.1.0-rc.1 ")
	revision := inRepo(t, root, "rev-parse", version+"^{commit}")
	require.Equal(t, before, inRepo(t, root, "rev-parse", version+"~1"))
	require.NotContains(t, inRepo(t, root, "grep", "-h", "trueup.* v0[.]", version, "--", "go.work"), " v0.0.0")

	downloaded := map[string]map[string]string{} // hashes by path of the module
	for _, dir := range nested() {
		tag := (&part{dir: dir}).tag(version)
		require.Contains(t, log.String(), " "+tag)
		require.Equal(t, "tag", inRepo(t, root, "cat-file", "-t", tag))
		require.Equal(t, revision, inRepo(t, root, "rev-parse", tag+"^{commit}"))
		m := module.Version{Path: strings.TrimSuffix(trueup+"/"+dir, "/."), Version: version}
		downloaded[m.Path] = download(t, root, m)
	}
	lines := 0
	for _, dir := range nested() {
		file, err := modfile.Parse("go.mod", []byte(inRepo(t, root, "show", version+":"+filepath.Join(dir, "go.mod"))), nil)
		require.NoError(t, err)
		require.Empty(t, file.Replace)
		sums := inRepo(t, root, "show", version+":"+filepath.Join(dir, "go.sum"))
		for _, require := range file.Require {
			if strings.HasPrefix(require.Mod.Path, trueup) && require.Mod.Version != version {
				t.Errorf("%s/go.mod requires %s %s", dir, require.Mod.Path, require.Mod.Version)
			}
		}
		for line := range strings.Lines(sums + "\n") {
			fields := strings.Fields(line)
			hashes, ours := downloaded[fields[0]]
			if !ours {
				continue
			}
			lines++
			require.Equal(t, hashes[fields[1]], fields[2], "%s/go.sum: %s", dir, line)
		}
	}
	require.Equal(t, 32, lines, "lines of go.sum about modules of this repository")
}

// download lets the go command get a module from the tags of a repository, past any proxy,
// and returns the hashes of its archive and, by version/go.mod, of its go.mod.
func download(t *testing.T, repository string, m module.Version) map[string]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-modcacherw", "-json", m.String())
	cmd.Dir = t.TempDir()
	cmd.Env = append(
		os.Environ(), "GOWORK=off", "GOFLAGS=", "GOPRIVATE="+trueup, "GOMODCACHE="+t.TempDir(),
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url."+repository+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+trueup,
	)
	out, err := cmd.Output()
	require.NoError(t, err, "%s", out)
	var found struct{ Error, Sum, GoModSum string }
	require.NoError(t, json.Unmarshal(out, &found))
	require.Empty(t, found.Error)
	return map[string]string{m.Version: found.Sum, m.Version + "/go.mod": found.GoModSum}
}

// TestSumsAreInTheOrderOfTheGoCommand has a module that is required by way of another only,
// and a line of an older version.
func TestSumsAreInTheOrderOfTheGoCommand(t *testing.T) {
	t.Parallel()
	c := &part{dir: "c", path: "example.com/c", zip: "h1:c=", mod: "h1:cm="}
	b := &part{dir: "b", path: "example.com/b", zip: "h1:b=", mod: "h1:bm=", needs: []string{"c"}}
	a := &part{dir: "a", path: "example.com/a", needs: []string{"b", "c"}}
	known := map[string]*part{"a": a, "b": b, "c": c}
	require.Equal(t, []*part{c, b}, a.all(known))
	a.needs = []string{"b"}
	sums, err := addSums("example.com/b v0.1.0 h1:old=\nexample.com/bb v1.0.0/go.mod h1:x=\n", "v0.2.0", a.all(known))
	require.NoError(t, err)
	require.Equal(t, "example.com/b v0.2.0 h1:b=\nexample.com/b v0.2.0/go.mod h1:bm=\nexample.com/bb v1.0.0/go.mod h1:x=\n"+
		"example.com/c v0.2.0 h1:c=\nexample.com/c v0.2.0/go.mod h1:cm=\n", sums)
	_, err = addSums("example.com/b v0.1.0\n", "v0.2.0", nil)
	require.ErrorContains(t, err, `"example.com/b v0.1.0\n" is no line of module, version and hash`)
}

// TestWhatCannotBePublishedIsRefused plants each reason in a checkout.
func TestWhatCannotBePublishedIsRefused(t *testing.T) {
	t.Parallel()
	root := checkout(t)
	tag := func(version string) error {
		return run(t.Context(), []string{"tag", "--root", root, "--version", version}, t.Output())
	}
	for version, message := range map[string]string{
		"v0.1":        `--version: is "v0.1", must be a version`,
		"v2.0.0":      `--version: is "v2.0.0", must be like v0.1.0 or v1.2.0-rc.1`,
		"v1.02.0":     `--version: is "v1.02.0", must be like`,
		"v1.0.0-a..b": `--version: is "v1.0.0-a..b", must be like`,
	} {
		require.ErrorContains(t, tag(version), message)
	}
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	if bytes.Contains(text, []byte("No version is published yet")) {
		refused := tag("v0.1.0")
		for _, page := range []string{
			"README.md", "SECURITY.md", "CHANGELOG.md", "doc.go", "docs/tutorial.md", "docs/versions.md", "docs/running.md", "docs/expected.md",
		} {
			require.ErrorContains(t, refused, page+":")
		}
		require.ErrorContains(t, refused, `says "which takes minutes.": docs/releasing.md has the text of a release`)
		require.ErrorContains(t, refused, `says "there once the first tag is published"`)
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "new.txt"), nil, 0o600))
	require.ErrorContains(t, tag("v0.1.0-rc.1"), "the checkout differs from its commit: commit or remove\n?? new.txt")
	require.NoError(t, os.Remove(filepath.Join(root, "new.txt")))

	inRepo(t, root, "tag", "cmd/v0.3.0")
	require.ErrorContains(t, tag("v0.3.0"), "--version: is v0.3.0, but the tag cmd/v0.3.0 exists")
	out := filepath.Join(t.TempDir(), "v0.3.0")
	err = run(t.Context(), []string{"cut", "--root", root, "--out", out, "--version", "v0.3.0"}, t.Output())
	require.ErrorContains(t, err, "the tag cmd/v0.3.0 exists")
	require.NoDirExists(t, out, "it would be refused as not empty, or be taken for a release")
	inRepo(t, root, "tag", "v0.2.0")
	require.ErrorContains(t, tag("v0.2.0-rc.1"), "--version: is v0.2.0-rc.1, must be above the last tag v0.2.0")
	require.Equal(t, "cmd/v0.3.0\nv0.2.0", inRepo(t, root, "tag", "--list"))

	for page, line := range map[string]string{"cmd/go.mod": "\nreplace example.com/a => ../a\n", "go.work": ""} {
		text, err := os.ReadFile(filepath.Join(root, page))
		require.NoError(t, err)
		changed := strings.ReplaceAll(string(text), trueup+"/cmd v0.0.0 =>", trueup+"/cmd v0.0.1 =>") + line
		require.NoError(t, os.WriteFile(filepath.Join(root, page), []byte(changed), 0o600))
		inRepo(t, root, "commit", "--quiet", "--all", "--no-gpg-sign", "--message", "plant")
		want := "cmd/go.mod: has a replace of example.com/a"
		if line == "" {
			want = "go.work: has no replace of " + trueup + "/cmd v0.0.0"
		}
		require.ErrorContains(t, tag("v0.4.0-rc.1"), want)
		inRepo(t, root, "reset", "--quiet", "--hard", "HEAD~1")
	}
	require.Equal(t, "cmd/v0.3.0\nv0.2.0", inRepo(t, root, "tag", "--list"))
}
