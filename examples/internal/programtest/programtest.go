// Package programtest builds and runs the examples in their tests, as a user would.
package programtest

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/seed-9e1ffd66/trueup/internal/test/process"
)

// Build builds the program in the working directory and returns its path.
func Build(t *testing.T) string {
	t.Helper()
	return BuildOf(t, ".")
}

// BuildOf is Build of the program in a folder, whose name it gets.
func BuildOf(t *testing.T, folder string) string {
	t.Helper()
	named, err := filepath.Abs(folder)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), filepath.Base(named))
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, folder).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// Start runs a program until the returned function is called, which sends it a
// SIGTERM and returns how it ended. The process's Log has its output.
func Start(t *testing.T, path string, args ...string) (p *process.Process, stop func() error) {
	t.Helper()
	group := process.NewGroup(t.TempDir())
	t.Cleanup(group.Close)
	p, err := group.Run("program", path, nil, args...)
	if err != nil {
		t.Fatal(err)
	}
	return p, func() error { return p.Stop(20 * time.Second) }
}
