// Package modbuild builds programs from the Go modules that a go.mod pins, once for each version, into a
// cache folder. Processes that need the same wait for one another.
package modbuild

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Recipe says what is built from a module.
type Recipe struct {
	// Name of the result: the first part of the name of its folder.
	Name string
	// Version matches the line of go.mod whose version, the first group, names the result.
	Version *regexp.Regexp
	// Files are the module: go.mod, go.sum and what it has of Go. A change of one is another result.
	Files []File
	// Build fills the folder.
	Build func(context.Context, Builder) error
}

// A File of a module.
type File struct {
	Name    string
	Content []byte
}

// Folder returns the folder of what is built, and builds it if this machine has none of the version. It
// lies in TRUEUP_KUBE_CACHE, an absolute path, or else in the user's cache folder. Progress of a build is
// written to progress, a line every ten seconds. Only a build needs the network and the go command.
func (r Recipe) Folder(ctx context.Context, progress io.Writer) (string, error) {
	version, key, err := r.version()
	if err != nil {
		return "", err
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, r.Name+"-"+version+"-"+key)
	if isDir(dir) {
		return dir, nil
	}
	unlock, err := Lock(ctx, dir+".lock")
	if err != nil {
		return "", fmt.Errorf("waiting for another build of %s: %w", dir, err)
	}
	defer unlock()
	if isDir(dir) {
		return dir, nil
	}
	work, err := WorkDir(dir)
	if err != nil {
		return "", fmt.Errorf("cache folder: %w", err)
	}
	defer os.RemoveAll(work) //nolint:errcheck // after the rename there is nothing left to remove
	source := filepath.Join(work, "source")
	if err := r.write(source); err != nil {
		return "", fmt.Errorf("cache folder: %w", err)
	}
	if err := r.Build(ctx, Builder{Dir: work, Version: version, source: source, progress: progress}); err != nil {
		return "", fmt.Errorf("building %s %s: %w", r.Name, version, err)
	}
	if err := errors.Join(os.RemoveAll(source), os.Rename(work, dir)); err != nil {
		return "", fmt.Errorf("cache folder: %w", err)
	}
	return dir, nil
}

// version returns the version that the module pins, and a key that changes with anything that could
// change the build.
func (r Recipe) version() (version, key string, err error) {
	digest := sha256.New()
	digest.Write([]byte(runtime.Version() + " " + runtime.GOOS + " " + runtime.GOARCH + "\n"))
	for _, file := range r.Files {
		if file.Name == "go.mod" {
			found := r.Version.FindSubmatch(file.Content)
			if found == nil {
				return "", "", fmt.Errorf("the go.mod of %s does not require %s", r.Name, r.Version)
			}
			version = string(found[1])
		}
		digest.Write(file.Content)
	}
	return version, hex.EncodeToString(digest.Sum(nil))[:12], nil
}

// write writes the module into a folder, which it makes.
func (r Recipe) write(source string) error {
	if err := os.Mkdir(source, 0o700); err != nil {
		return err
	}
	for _, file := range r.Files {
		if err := os.WriteFile(filepath.Join(source, file.Name), file.Content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// WorkDir makes the folder that a build fills, and removes what killed builds
// of the same left. The caller holds the lock.
func WorkDir(dir string) (string, error) {
	prefix := dir + ".building-"
	left, err := filepath.Glob(prefix + "*")
	if err != nil {
		return "", err
	}
	for _, path := range left {
		if err := os.RemoveAll(path); err != nil {
			return "", err
		}
	}
	return os.MkdirTemp(filepath.Dir(dir), filepath.Base(prefix)+"*")
}

// A Builder fills the folder Dir with what is built of a module at Version.
type Builder struct {
	Dir, Version string

	source   string
	progress io.Writer
}

// Say writes a line of progress.
func (b Builder) Say(format string, args ...any) {
	// A build does not fail for want of a reader.
	_, _ = fmt.Fprintf(b.progress, "kubetest: "+format+"\n", args...)
}

// Compile builds the package into the program name of the folder, with the package count as
// progress.
func (b Builder) Compile(ctx context.Context, name, ldflags, pkg string) error {
	cmd := b.goCommand(ctx, "build", "-v", "-trimpath", "-buildvcs=false",
		"-ldflags", strings.TrimSpace("-s -w "+ldflags), "-o", filepath.Join(b.Dir, name), pkg)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var compiled atomic.Int64
	done := make(chan struct{})
	var reporter sync.WaitGroup
	reporter.Go(func() { b.report(name, &compiled, done) })
	var last []string
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		compiled.Add(1)
		last = append(last, lines.Text())
		last = last[max(0, len(last)-20):]
	}
	err = cmd.Wait()
	close(done)
	reporter.Wait()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, strings.Join(last, "\n"))
	}
	return nil
}

func (b Builder) report(name string, compiled *atomic.Int64, done <-chan struct{}) {
	start := time.Now()
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			b.Say("building %s: %d packages compiled, %s", name, compiled.Load(), time.Since(start).Round(time.Second))
		}
	}
}

// Join writes the YAML files that the patterns match inside a module into one.
// A pattern that matches nothing is an error: the module has changed its layout.
func (b Builder) Join(ctx context.Context, name, module string, patterns ...string) error {
	dir, err := b.moduleDir(ctx, module)
	if err != nil {
		return err
	}
	var joined strings.Builder
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(files) == 0 {
			return errors.Join(err, fmt.Errorf("%s: no file matches %s", module, pattern))
		}
		for _, file := range files {
			if filepath.Base(file) == "kustomization.yaml" {
				continue
			}
			data, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			joined.WriteString("\n---\n")
			joined.Write(data)
		}
	}
	return os.WriteFile(filepath.Join(b.Dir, name), []byte(joined.String()), 0o600)
}

// moduleDir returns the folder of the module, which it downloads if need be: of
// a module that is used for its files alone, nothing was compiled before.
func (b Builder) moduleDir(ctx context.Context, module string) (string, error) {
	out, err := b.goCommand(ctx, "mod", "download", "-json", module).Output()
	var downloaded struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(out, &downloaded); jsonErr != nil || downloaded.Dir == "" {
		return "", fmt.Errorf("%s: %w", module, errors.Join(withStderr(err), jsonErr, errors.New("not downloaded: "+downloaded.Error)))
	}
	return downloaded.Dir, nil
}

// goCommand returns a command of go that is free of what the caller's module and environment say about
// theirs: its workspace, its -mod, its target. Of GOFLAGS it keeps what bounds the machine.
func (b Builder) goCommand(ctx context.Context, args ...string) *exec.Cmd {
	kept := []string{"-mod=readonly"} // never empty: then the flags of "go env -w" would count
	for flag := range strings.FieldsSeq(os.Getenv("GOFLAGS")) {
		if flag == "-modcacherw" || strings.HasPrefix(flag, "-p=") {
			kept = append(kept, flag)
		}
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.source
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOFLAGS="+strings.Join(kept, " "),
		"GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	return cmd
}

func cacheDir() (string, error) {
	dir, err := FolderVariable("TRUEUP_KUBE_CACHE")
	if err != nil {
		return "", err
	}
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no cache folder: %w; set TRUEUP_KUBE_CACHE", err)
		}
		dir = filepath.Join(user, "trueup")
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", fmt.Errorf("cache folder: %w", err)
	}
	return dir, nil
}

// FolderVariable reads an environment variable that names a folder, or is empty.
// A relative path is an error: go test runs each package in a folder of its own.
func FolderVariable(name string) (string, error) {
	dir := os.Getenv(name)
	if dir != "" && !filepath.IsAbs(dir) {
		return "", fmt.Errorf("%s must be an absolute path, not %q", name, dir)
	}
	return dir, nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// withStderr adds what the command wrote to its standard error.
func withStderr(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return err
}
