package main

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tree is a copy of the files of this repository.
func tree(t *testing.T) string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "git", "-C", "../../..", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	out, err := list.Output()
	if err != nil {
		t.Skipf("the files are not in a repository of git: %v", err)
	}
	root := t.TempDir()
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join("../../..", name))
		if os.IsNotExist(err) {
			continue // removed, and not committed
		}
		require.NoError(t, err)
		into := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(into), 0o700))
		require.NoError(t, os.WriteFile(into, text, 0o600))
	}
	return root
}

// left returns the files that still have one of the names.
func left(t *testing.T, root string, old ...string) (files []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, file fs.DirEntry, err error) error {
		if err != nil || file.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		for _, name := range old {
			if bytes.Contains(text, []byte(name)) {
				files = append(files, path+": "+name)
			}
		}
		return err
	}))
	return files
}

// TestNothingHasTheOldName renames a copy of this repository.
func TestNothingHasTheOldName(t *testing.T) {
	t.Parallel()
	root := tree(t)
	before, err := now(root)
	require.NoError(t, err)
	changed, err := rename(root, names{module: "github.com/Acme/trueup"})
	require.NoError(t, err)
	require.Greater(t, len(changed), 1000)
	owner := strings.Split(before.module, "/")[1]
	require.Empty(t, left(t, root, before.module, before.images, owner+"/", "@"+owner))
	reviewers, err := os.ReadFile(filepath.Join(root, ".github", "CODEOWNERS"))
	require.NoError(t, err)
	require.Contains(t, string(reviewers), "@Acme")
	after, err := now(root)
	require.NoError(t, err)
	require.Equal(t, names{"github.com/Acme/trueup", "ghcr.io/acme/trueup"}, after)
	again, err := rename(root, names{module: "github.com/Acme/trueup"})
	require.NoError(t, err)
	require.Empty(t, again)
}

// TestARenamedRepositoryBuilds also compiles the tests of the root module.
func TestARenamedRepositoryBuilds(t *testing.T) {
	if testing.Short() {
		t.Skip("long: compiles the packages of every module again")
	}
	t.Parallel()
	root := tree(t)
	before, err := now(root)
	require.NoError(t, err)
	require.NoError(t, run(t.Context(), root, names{module: "example.org/acme/tools/trueup", images: "registry.example.org:5000/acme/trueup"}))
	require.Empty(t, left(t, root, before.module, before.images))
	for _, dir := range []string{".", "cmd", "examples", "statesync/sqlstore", "cloud/aws", "reconcile/controllerruntime"} {
		cmd := exec.CommandContext(t.Context(), "go", "build", "./...")
		cmd.Dir, cmd.Env = filepath.Join(root, dir), append(os.Environ(), "GOWORK="+filepath.Join(root, "go.work"), "GOFLAGS=-buildvcs=false")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", dir, out)
	}
}

func TestNamesThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		to      names
		message string
	}{
		{names{}, `-module: is "", must be a path like github.com/acme/trueup`},
		{names{module: "https://github.com/acme/trueup"}, `-module: is "https://`},
		{names{module: "github.com/acme/trueup/v2"}, `-module: is "github.com/acme/trueup/v2", must not end in a major version`},
		{names{module: "trueup"}, `-module: is "trueup"`},
		{names{module: "example.com/trueup"}, "-images: is required, such as registry.example.com/team/trueup: example.com/trueup is not"},
		{names{module: "github.com/acme/trueup", images: "ghcr.io/Acme"}, `-images: is "ghcr.io/Acme", must be like`},
	} {
		_, err := rename(t.TempDir(), c.to)
		require.ErrorContains(t, err, c.message)
	}
}

// TestOnlyTheFilesOfTheRepositoryChange: what is built or installed is left, and a script can still be run.
func TestOnlyTheFilesOfTheRepositoryChange(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	const old = "example.com/a/b"
	ours := []string{"Makefile", "docs/bin/run.sh", "go.mod"}
	for _, name := range append([]string{".git/config", "bin/a.txt", "dist/a.txt", "site/node_modules/a.js"}, ours...) {
		name = filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte("module "+old+"\nREPO ?= example.com/images\n"), 0o700)) //nolint:gosec // one is a script
	}
	changed, err := rename(root, names{"example.com/c/b", "example.com/images/b"})
	require.NoError(t, err)
	for i, name := range ours {
		require.Equal(t, filepath.Join(root, name), changed[i])
		info, err := os.Stat(changed[i])
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o700), info.Mode().Perm(), name)
	}
	require.Len(t, changed, len(ours))
}

// TestNamesThatContainEachOtherChangeOnce has an owner whose path begins with the old one.
func TestNamesThatContainEachOtherChangeOnce(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/a/b\n", "Makefile": "REPO ?= example.com/images\n", "go.bin": "\x00example.com/a/b",
		"a.go": "package a\n\nimport (\n\t_ \"example.com/a/b/c\"\n\t_ \"example.com/x\"\n)\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	changed, err := rename(root, names{"example.com/y/example.com/a/b", "example.com/images/b"})
	require.NoError(t, err)
	require.Len(t, changed, 3)
	text, err := os.ReadFile(filepath.Join(root, "a.go"))
	require.NoError(t, err)
	require.Equal(t, "package a\n\nimport (\n\t_ \"example.com/x\"\n\t_ \"example.com/y/example.com/a/b/c\"\n)\n", string(text))
	require.Equal(t, []string{filepath.Join(root, "go.bin") + ": \x00example.com/a/b"}, left(t, root, "\x00example.com/a/b"))
}
