package modbuild_test

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/internal/test/modbuild"
	"github.com/seed-9e1ffd66/trueup/internal/test/process"
)

const lockName = "lock"

// hello is a module that needs no other. The line of its version is a comment.
func hello(code string) modbuild.Recipe {
	return modbuild.Recipe{
		Name: "hello", Version: regexp.MustCompile(`// example\.com/hello (v\S+)`),
		Files: []modbuild.File{
			{Name: "go.mod", Content: []byte("module example.com/hello // example.com/hello v1.2.3\n\ngo 1.26.0\n")},
			{Name: "go.sum"},
			{Name: "main.go", Content: []byte(code)},
		},
		Build: func(ctx context.Context, b modbuild.Builder) error {
			b.Say("building hello %s", b.Version)
			return b.Compile(ctx, "hello", "", ".")
		},
	}
}

// TestABuildIsFreeOfWhatTheCallerHasSet: the workspace, flags and target are of the caller's module.
func TestABuildIsFreeOfWhatTheCallerHasSet(t *testing.T) {
	t.Setenv("TRUEUP_KUBE_CACHE", t.TempDir())
	t.Setenv("GOFLAGS", "-mod=vendor -modfile=other.mod -tags=none -p=1")
	t.Setenv("GOWORK", filepath.Join(t.TempDir(), "go.work"))
	t.Setenv("GOOS", "plan9")
	recipe := hello("package main\n\nfunc main() { println(1) }\n")
	var progress bytes.Buffer
	dir, err := recipe.Folder(t.Context(), &progress)
	require.NoError(t, err)
	require.Contains(t, progress.String(), "building hello v1.2.3\n")
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "hello")).CombinedOutput() //nolint:gosec // built here
	require.NoError(t, err)
	require.Equal(t, "1\n", string(out))
	left, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "*"))
	require.NoError(t, err)
	require.Equal(t, []string{dir, dir + ".lock"}, left)
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, names, 1, "the source does not stay")
	other, err := hello("package main\n\nfunc main() { println(2) }\n").Folder(t.Context(), &progress)
	require.NoError(t, err)
	require.NotEqual(t, dir, other, "other code of the same version is another result")
	t.Setenv("PATH", "") // once it is there, go is not run
	again, err := recipe.Folder(t.Context(), &progress)
	require.NoError(t, err)
	require.Equal(t, dir, again)
}

func TestABuildThatFailsSaysWhyAndLeavesNothing(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("TRUEUP_KUBE_CACHE", cache)
	_, err := hello("package main\n\nfunc main() { missing() }\n").Folder(t.Context(), &bytes.Buffer{})
	require.ErrorContains(t, err, "building hello v1.2.3: hello: exit status 1")
	require.ErrorContains(t, err, "undefined: missing")
	left, err := filepath.Glob(filepath.Join(cache, "*"))
	require.NoError(t, err)
	require.Len(t, left, 1, "the lock: %v", left)
}

func TestAKilledBuildIsRemovedByTheNextOfTheSameVersion(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "kube-v1-abc")
	killed, err := modbuild.WorkDir(dir)
	require.NoError(t, err)
	other, err := modbuild.WorkDir(dir + "d")
	require.NoError(t, err)
	next, err := modbuild.WorkDir(dir)
	require.NoError(t, err)
	require.NoDirExists(t, killed)
	require.DirExists(t, other)
	require.DirExists(t, next)
}

// TestALockHoldsOrItsFolderIsGone: a start must not take the lock of a file that
// another start has just removed as abandoned.
func TestALockHoldsOrItsFolderIsGone(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	var removers sync.WaitGroup
	for range 2 {
		removers.Go(func() {
			for ctx.Err() == nil {
				process.RemoveAbandoned(filepath.Join(parent, "*", lockName))
			}
		})
	}
	for i := range 2000 {
		dir := filepath.Join(parent, strconv.Itoa(i))
		require.NoError(t, os.Mkdir(dir, 0o700))
		unlock, err := modbuild.Lock(t.Context(), filepath.Join(dir, lockName))
		if err != nil {
			assert.ErrorIs(t, err, fs.ErrNotExist)
			continue
		}
		assert.FileExists(t, filepath.Join(dir, lockName))
		unlock()
	}
	cancel()
	removers.Wait()
}
