// Command consumercost measures what importing a package of this module costs:
// the lines of go.sum that a module ends up with which imports that package and
// nothing else. It prints a figure for each package, and one for a peer, and
// fails when a mark is missed. What it costs to embed an operator in a Manager of
// controller-runtime is the difference to a module that has a Manager alone, and the size of two
// programs that do the same.
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

// nested are the folders of modules of this repository that a consumer may require.
func nested() []string {
	return []string{"", "/reconcile/controllerruntime", "/reconcile/operatormetrics", "/reconcile/tracing"}
}

// manager are the packages that an operator on controller-runtime imports.
const manager = "sigs.k8s.io/controller-runtime k8s.io/client-go/kubernetes/scheme"

// consumer is a module that imports packages, with spaces between them.
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
		{"manager", manager, "sigs.k8s.io/controller-runtime", "v0.23.3", -1},
		{
			"embedded", manager + " " + trueup + "/reconcile/controllerruntime " + trueup + "/reconcile/operator",
			trueup + "/reconcile/controllerruntime", "", -1,
		},
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
		failed = errors.Join(failed, c.missed(lines))
	}
	for name, folder := range map[string]string{"createorupdate": "./examples/internal/createorupdate", "embedded": "./examples/embed"} {
		size, err := programSize(ctx, folder)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", folder, err))
			continue
		}
		fmt.Printf("figure program_size_%s %.1f MB\n", name, float64(size)/1e6)
	}
	return failed
}

// programSize returns the bytes of a program without symbols.
func programSize(ctx context.Context, folder string) (n int64, err error) {
	dir, err := os.MkdirTemp("", "program-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder that stays is no reason to fail
	path := filepath.Join(dir, "program")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, folder)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("go build: %w: %s", err, out)
	}
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// missed returns an error if the lines are above the mark.
func (c consumer) missed(lines int) error {
	if c.limit >= 0 && lines > c.limit {
		return fmt.Errorf("%s: is %d lines, must be at most %d", c.name, lines, c.limit)
	}
	return nil
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
		mod += fmt.Sprintf("require %s v0.0.0\n", c.module)
		for _, folder := range nested() {
			mod += fmt.Sprintf("replace %s => %s\n", trueup+folder, repo+folder) //nolint:modernize // a few lines
		}
	} else {
		mod += fmt.Sprintf("require %s %s\n", c.module, c.version)
	}
	program := "package main\n"
	for pkg := range strings.FieldsSeq(c.pkg) {
		program += fmt.Sprintf("\nimport _ %q\n", pkg)
	}
	program += "\nfunc main() {}\n"
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
	// What is not imported is not required any more, and costs nothing.
	tidied, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return 0, err
	}
	if !bytes.Contains(tidied, []byte("require "+c.module+" ")) && !bytes.Contains(tidied, []byte("\t"+c.module+" ")) {
		return 0, fmt.Errorf("%s: is no package of %s, must be one that it needs", c.pkg, c.module)
	}
	sum, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	return bytes.Count(sum, []byte("\n")), err
}
