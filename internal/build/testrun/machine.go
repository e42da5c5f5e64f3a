package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// errMachine is a machine, or a call, that cannot run the tests.
var errMachine = errors.New("testrun")

// The least free space. A cold run writes 9 GB of build cache.
const (
	cacheNeeds = 2 << 30
	tempNeeds  = 1 << 30
)

// longestTemp is how long the folder for temporary files may be: a path of a Unix socket has at most
// 107 bytes, and PostgreSQL adds 45 to the folder.
const longestTemp = 60

// A machine is what the tests find on it.
type machine struct {
	race    bool
	missing []string // one line for each part, with what to do
}

// look examines the machine. What no test can do without is an error.
func look(ctx context.Context) (machine, error) {
	var m machine
	cache, err := goEnv(ctx, "GOCACHE")
	if err != nil {
		return m, err
	}
	cgo, err := goEnv(ctx, "CGO_ENABLED")
	if err != nil {
		return m, err
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return m, fmt.Errorf("%w: no cache folder: %w; set HOME or XDG_CACHE_HOME", errMachine, err)
	}
	if temp := os.TempDir(); len(temp) > longestTemp {
		return m, fmt.Errorf(
			"%w: TMPDIR has %d characters: sockets below it would be longer than a system takes; set it to a folder of at most %d",
			errMachine, len(temp), longestTemp,
		)
	}
	for _, place := range []struct {
		path, variable string
		needs          uint64
	}{
		{cache, "GOCACHE", cacheNeeds},
		{cmp.Or(os.Getenv("TRUEUP_KUBE_CACHE"), cache), "TRUEUP_KUBE_CACHE", cacheNeeds / 2},
		{filepath.Join(user, "trueup"), "XDG_CACHE_HOME", cacheNeeds / 2},
		{os.TempDir(), "TMPDIR", tempNeeds},
	} {
		if err := writable(place.path); err != nil {
			return m, fmt.Errorf("%w: %w; make it writable or set %s to a folder that is", errMachine, err, place.variable)
		}
		if free, ok := freeSpace(place.path); ok && free < place.needs {
			return m, fmt.Errorf(
				"%w: %s has %d MB free and needs %d; free some or set %s to a folder with more",
				errMachine,
				place.path,
				free>>20,
				place.needs>>20,
				place.variable,
			)
		}
	}
	m.race = cgo == "1"
	if !m.race {
		m.missing = append(m.missing, "a C compiler: the race detector is off (Debian: apt-get install gcc libc6-dev)")
	}
	for _, part := range []struct {
		what  string
		there bool
		cure  string
	}{
		{"PostgreSQL", exists("/usr/lib/postgresql/*/bin/initdb") || inPath("initdb"), "apt-get install postgresql"},
		{"Java, for Keycloak", inPath("java"), "apt-get install default-jre-headless"},
		{"Python 3, for the EC2 emulator", inPath("python3"), "apt-get install python3-venv"},
		{"Chromium, for the status page", inPath("chromium") || inPath("google-chrome"), "apt-get install chromium"},
		{"npm, for the status page", inPath("npm"), "apt-get install npm"},
	} {
		if !part.there {
			m.missing = append(m.missing, part.what+": its tests are skipped (Debian: "+part.cure+")")
		}
	}
	return m, nil
}

func goEnv(ctx context.Context, name string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", name).Output()
	if err != nil {
		return "", fmt.Errorf("%w: go env %s: %w", errMachine, name, err)
	}
	return strings.TrimSpace(string(out)), nil
}

func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "testrun-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func inPath(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

func exists(pattern string) bool {
	found, err := filepath.Glob(pattern)
	return err == nil && len(found) > 0
}
