package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const trueup = "github.com/seed-9e1ffd66/trueup"

// platform is what a program runs on.
type platform struct{ system, architecture string }

func (p platform) String() string { return p.system + "/" + p.architecture }

// build compiles a program, and returns the path of the file. Zone data are part of it: an
// image without a base has none.
func (r *release) build(ctx context.Context, program string, p platform) (string, error) {
	into, err := filepath.Abs(r.binary(program, p))
	if err != nil {
		return "", err
	}
	version := ""
	if r.version != development {
		version = r.version
	}
	fmt.Fprintf(r.log, "building %s for %s\n", program, p) //nolint:errcheck // progress
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", "timetzdata",
		"-ldflags", "-s -w -buildid= -X "+trueup+"/cmd/internal/program.release="+version, "-o", into, "./cmd/"+program)
	cmd.Dir = r.root
	work, err := filepath.Abs(filepath.Join(r.root, "go.work"))
	if err != nil {
		return "", err
	}
	cmd.Env = append(
		os.Environ(),
		"CGO_ENABLED=0",
		"GOOS="+p.system,
		"GOARCH="+p.architecture,
		"GOWORK="+work,
		"GOFLAGS=-buildvcs=true", // also where the settings of the go command say otherwise
		"GOAMD64=v1",
		"GOARM64=v8.0",
	)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s for %s: %w\n%s", program, p, err, out)
	}
	return into, nil
}

// binary is where a program is built.
func (r *release) binary(program string, p platform) string {
	if p.system == "windows" {
		program += ".exe"
	}
	return filepath.Join(r.out, "bin", p.system+"-"+p.architecture, program)
}

// commit returns the commit that is built, and its time.
func (r *release) commit(ctx context.Context) (revision string, at time.Time, err error) {
	cmd := exec.CommandContext(ctx, "git", "log", "-1", "--format=%H %cI")
	cmd.Dir = r.root
	out, err := cmd.Output()
	if err != nil {
		return "", at, fmt.Errorf("git log: %w", err)
	}
	revision, text, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	at, err = time.Parse(time.RFC3339, text)
	return revision, at.UTC(), err
}
