// Package programs gives tests the programs below cmd as a user has them: built.
package programs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Variable names the environment variable by which a run of many packages tells its tests
// of a folder that has the programs already.
const Variable = "TRUEUP_TEST_PROGRAMS"

const module = "github.com/seed-9e1ffd66/trueup/cmd/"

// Dir returns a folder of the test's own with the named programs. It takes the programs
// of the run, or else builds them, in the workspace of the working directory.
func Dir(tb testing.TB, names ...string) string {
	tb.Helper()
	dir := tb.TempDir()
	var missing []string
	for _, name := range names {
		built := filepath.Join(os.Getenv(Variable), name)
		if _, err := os.Stat(built); os.Getenv(Variable) == "" || errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, name)
		} else if err := os.Symlink(built, filepath.Join(dir, name)); err != nil {
			tb.Fatal(err)
		}
	}
	if err := Build(tb.Context(), dir, missing...); err != nil {
		tb.Fatal(err)
	}
	return dir
}

// Path returns the path of one program, as Dir does.
func Path(tb testing.TB, name string) string {
	tb.Helper()
	return filepath.Join(Dir(tb, name), name)
}

// Build builds the named programs into a folder, without the symbols of debuggers.
func Build(ctx context.Context, dir string, names ...string) error {
	return build(ctx, dir, []string{"-ldflags=-w"}, nil, names)
}

// Release builds the named programs into a folder as a release does, with further build tags.
func Release(ctx context.Context, dir string, tags []string, names ...string) error {
	all := "-tags=" + strings.Join(append([]string{"timetzdata"}, tags...), ",")
	return build(ctx, dir, []string{"-trimpath", "-ldflags=-s -w", all}, []string{"CGO_ENABLED=0"}, names)
}

func build(ctx context.Context, dir string, flags, env, names []string) error {
	if len(names) == 0 {
		return nil
	}
	args := slices.Concat([]string{"build", "-o", dir + string(filepath.Separator)}, flags)
	for _, name := range names {
		args = append(args, module+name)
	}
	command := exec.CommandContext(ctx, "go", args...)
	command.Env = append(os.Environ(), env...)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("go %v: %w: %s", args, err, out)
	}
	return nil
}
