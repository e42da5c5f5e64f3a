// Command consumercost measures what importing a package of this module costs:
// the lines of go.sum that a module ends up with which imports that package and
// nothing else. It prints a figure for each package, and one for a peer, and
// fails when a mark is missed.
//
// Run it from the root of the repository, or with "make consumer-cost".
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
)

const trueup = "github.com/seed-9e1ffd66/trueup"

// consumer is a module that imports one package.
type consumer struct {
	name, pkg string
	// module and version are what it requires; an empty version is this
	// repository.
	module, version string
	// limit is the mark; negative means that there is none.
	limit int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "consumercost:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	repo, err := os.Getwd()
	if err != nil {
		return err
	}
	consumers := []consumer{
		{"reconcile", trueup + "/reconcile", trueup, "", 0},
		{"diff", trueup + "/diff", trueup, "", -1},
		{"apply", trueup + "/apply", trueup, "", 227},
		{"flux_ssa", "github.com/fluxcd/pkg/ssa", "github.com/fluxcd/pkg/ssa", "v0.78.0", -1},
	}
	var failed error
	for _, c := range consumers {
		lines, err := c.measure(ctx, repo)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", c.name, err))
			continue
		}
		fmt.Printf("figure consumer_gosum_%s %d lines\n", c.name, lines)
		if c.limit >= 0 && lines > c.limit {
			failed = errors.Join(failed, fmt.Errorf("%s: %d lines; the mark is at most %d", c.name, lines, c.limit))
		}
	}
	return failed
}

// measure returns the lines of the consumer's go.sum after go mod tidy.
func (c consumer) measure(ctx context.Context, repo string) (int, error) {
	dir, err := os.MkdirTemp("", "consumer-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder that stays is no reason to fail
	mod := "module example.com/consumer\n\ngo 1.26.0\n\n"
	if c.version == "" {
		mod += fmt.Sprintf("require %s v0.0.0\n\nreplace %s => %s\n", c.module, c.module, repo)
	} else {
		mod += fmt.Sprintf("require %s %s\n", c.module, c.version)
	}
	program := fmt.Sprintf("package main\n\nimport _ %q\n\nfunc main() {}\n", c.pkg)
	for name, content := range map[string]string{"go.mod": mod, "main.go": program} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return 0, err
		}
	}
	cmd := exec.CommandContext(ctx, "go", "mod", "tidy")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	if out, err := cmd.CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return 0, fmt.Errorf("go mod tidy: %w: %s", err, lines[len(lines)-1])
	}
	sum, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	return bytes.Count(sum, []byte("\n")), err
}
