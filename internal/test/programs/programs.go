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
	if len(names) == 0 {
		return nil
	}
	args := []string{"build", "-ldflags=-w", "-o", dir + string(filepath.Separator)}
	for _, name := range names {
		args = append(args, module+name)
	}
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("go %v: %w: %s", args, err, out)
	}
	return nil
}
