// Package ec2test runs an EC2 for tests: the emulator moto over real HTTP, in a
// process of its own that ends with the test. It is installed once, from PyPI,
// into a virtual environment in the cache folder.
package ec2test

import (
	"context"
	_ "embed" // for the emulator
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/seed-9e1ffd66/trueup/internal/test/process"
)

// Version is the version of moto.
const Version = "5.2.5"

// ErrNotInstalled is a machine on which moto cannot be installed.
var ErrNotInstalled = errors.New("no EC2 emulator: it needs python3 with venv and pip, and PyPI (Debian: apt-get install python3-venv)")

// startLimit bounds the start of the emulator, which takes three seconds on a quiet machine.
const startLimit = 5 * time.Minute

//go:embed emulator.py
var emulator []byte

// Options say how the emulator behaves.
type Options struct {
	// Transition is how long a machine is pending, stopping or shutting down.
	// Default 200ms.
	Transition time.Duration
}

// Server is a running emulator.
type Server struct {
	// URL is its endpoint, for every service of AWS. Any credentials are good.
	URL string
}

// Start starts an emulator that ends with the test. Where moto cannot be
// installed the test is skipped, or fails if TRUEUP_REQUIRE_SERVICES is 1.
func Start(tb testing.TB, options Options) *Server {
	tb.Helper()
	dir := tb.TempDir()
	group := process.NewGroup(dir)
	tb.Cleanup(group.Close)
	s, err := start(tb.Context(), group, dir, options)
	process.Started(tb, err, ErrNotInstalled)
	return s
}

func start(ctx context.Context, group *process.Group, dir string, options Options) (*Server, error) {
	python, err := install(ctx)
	if err != nil {
		return nil, err
	}
	script := filepath.Join(dir, "emulator.py")
	if err := os.WriteFile(script, emulator, 0o600); err != nil {
		return nil, err
	}
	port, err := process.Port(ctx)
	if err != nil {
		return nil, err
	}
	transition := options.Transition
	if transition <= 0 {
		transition = 200 * time.Millisecond
	}
	p, err := group.Run(
		"moto",
		python,
		[]string{"TRANSITION=" + strconv.FormatFloat(transition.Seconds(), 'f', -1, 64)},
		script,
		strconv.Itoa(port),
	)
	if err != nil {
		return nil, err
	}
	s := &Server{URL: "http://127.0.0.1:" + strconv.Itoa(port)}
	if err := p.Answers(ctx, s.URL+"/moto-api/", 0, startLimit); err != nil {
		return nil, err
	}
	return s, nil
}

// install returns the interpreter of an environment that has moto. The
// environment is made beside its place and then renamed, so that one that is
// there is whole; of two at a time, the second is thrown away.
func install(ctx context.Context) (python string, err error) {
	parent, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	place := filepath.Join(parent, "trueup", "moto-"+Version)
	python = filepath.Join(place, "bin", "python")
	if _, err := os.Stat(python); err == nil {
		return python, nil
	}
	base, err := exec.LookPath("python3")
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotInstalled, err)
	}
	if err := os.MkdirAll(filepath.Dir(place), 0o750); err != nil {
		return "", err
	}
	temporary, err := os.MkdirTemp(filepath.Dir(place), "moto-*.tmp")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temporary) //nolint:errcheck // gone if it was renamed
	for _, args := range [][]string{
		{base, "-m", "venv", temporary},
		{filepath.Join(temporary, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "moto[ec2,iam,server]==" + Version},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w: %v: %w\n%s", ErrNotInstalled, args, err, out)
		}
	}
	if err := os.Rename(temporary, place); err != nil {
		if _, there := os.Stat(python); there != nil {
			return "", err
		}
	}
	return python, nil
}
