package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// progressEvery is how often a run reports the running packages.
const progressEvery = 20 * time.Second

// A runner runs steps one after the other, to the end also when one fails.
type runner struct {
	out     io.Writer
	machine machine
	root    string
	start   time.Time
	log     *os.File // receives all events of go test
	// variables tell the tests of the parts that they share.
	variables []string
	left      int       // tests of packages that are not linked, as -short skips all of them
	self      string    // the path of this program
	last      time.Time // nothing begins after it; zero: no limit
	turn      turn

	mu      sync.Mutex // guards out and what batches hold
	batches []*batch
	steps   []result // name and seconds
	// untimely are the steps and packages that were left out for want of time.
	untimely []string
	turned   []string // what was left to other turns
}

// A step is a go test.
type step struct {
	name     string
	dir      string   // beside the root of the checkout
	env      []string // beside the machine's
	flags    []string // beside -json
	packages []string
	again    bool // they were run before
}

func newRunner(ctx context.Context, name string, out io.Writer, m machine) (*runner, error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOWORK").Output()
	if err != nil {
		return nil, fmt.Errorf("%w: go env GOWORK: %w", errMachine, err)
	}
	path := strings.TrimSpace(string(root))
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("%w: GOWORK is %q; run it by make, which sets it to this checkout's go.work", errMachine, path)
	}
	dir := filepath.Join(os.TempDir(), "trueup-test-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("%w: %w", errMachine, err)
	}
	if err := forget(dir); err != nil {
		return nil, fmt.Errorf("%w: %w", errMachine, err)
	}
	last, err := lastStart(time.Now())
	if err != nil {
		return nil, err
	}
	turn, err := thisTurn()
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMachine, err)
	}
	// Another run may go on beside this one.
	log, err := os.CreateTemp(dir, name+"-*.json")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMachine, err)
	}
	return &runner{out: out, machine: m, root: filepath.Dir(path), start: time.Now(), log: log, self: self, last: last, turn: turn}, nil
}

// forget removes the logs that are older than a day.
func forget(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < 24*time.Hour {
			continue // another run has removed it, or uses it
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (r *runner) close() error { return r.log.Close() }

// say writes a line.
func (r *runner) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.print(format, args...)
}

func (r *runner) print(format string, args ...any) {
	fmt.Fprintf(r.out, format+"\n", args...) //nolint:errcheck // a run does not fail for want of a reader
}

// command runs a program; what it prints is reported if it fails.
func (r *runner) command(ctx context.Context, name, dir string, env []string, args ...string) {
	if r.late(name) {
		return
	}
	began := time.Now()
	r.say("== %s", name)
	cmd := r.prepare(ctx, dir, env, args)
	out, err := cmd.CombinedOutput()
	seconds := time.Since(began).Seconds()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, result{test: name, seconds: seconds})
	if err != nil {
		lines := strings.SplitAfter(string(out)+err.Error(), "\n")
		r.print("%s", out)
		r.batches = append(r.batches, &batch{failed: []result{{pkg: name, output: lines, command: shell(dir, env, args)}}})
	}
}

func (r *runner) prepare(ctx context.Context, dir string, env, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = filepath.Join(r.root, dir)
	cmd.Env = slices.Concat(os.Environ(), r.variables, env)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// test runs a go test and collects what failed.
func (r *runner) test(ctx context.Context, s step) {
	if len(s.packages) == 0 || r.late(s.name) {
		return
	}
	began := time.Now()
	r.say("== %s", s.name)
	alone := func(pkg, test string) string {
		args := append(
			[]string{"go", "test"},
			slices.DeleteFunc(slices.Clone(s.flags), func(f string) bool { return strings.HasPrefix(f, "-run") || f == "-json" })...)
		if test != "" {
			args = append(args, "-v", "-run", "'^"+strings.ReplaceAll(test, "/", "$/^")+"$'")
		}
		return shell(s.dir, s.env, append(args, pkg))
	}
	b := newBatch(len(s.packages), func(line string) { r.print("%s", line) }, alone)
	b.once = !s.again && slices.Contains(s.flags, "-race")
	err := r.events(ctx, s, b)
	if again := s; len(b.crashed) > 0 {
		again.name, again.packages, again.again = s.name+", again after a crash of the race detector", b.crashed, true
		r.test(ctx, again)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batches = append(r.batches, b)
	for _, pkg := range b.untimely {
		r.untimely = append(r.untimely, s.name+" "+pkg)
	}
	r.steps = append(r.steps, result{test: s.name, seconds: time.Since(began).Seconds()})
	if err != nil && len(b.failed) == 0 && len(b.crashed) == 0 {
		b.failed = append(
			b.failed,
			result{
				pkg:     s.name,
				output:  []string{err.Error()},
				command: shell(s.dir, s.env, append([]string{"go", "test"}, append(s.flags, s.packages...)...)),
			},
		)
	}
}

func (r *runner) events(ctx context.Context, s step, b *batch) error {
	// Without the few analyzers of vet that go test has: rest runs all of them, once.
	cmd := r.prepare(ctx, s.dir, s.env, slices.Concat([]string{"go", "test", "-json", "-vet=off"}, r.within(), s.flags, s.packages))
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	var progress sync.WaitGroup
	progress.Go(func() { r.progress(b, done) })
	readErr := b.read(io.TeeReader(stdout, r.log), r.mu.Lock, r.mu.Unlock)
	err = cmd.Wait()
	close(done)
	progress.Wait()
	if err != nil {
		return fmt.Errorf("%w %w %s", err, ctx.Err(), stderr.String())
	}
	return readErr
}

// progress reports the running packages now and then.
func (r *runner) progress(b *batch, done <-chan struct{}) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		r.mu.Lock()
		var at []string
		for _, pkg := range slices.SortedFunc(maps.Keys(b.running), func(x, y string) int { return b.running[x].Compare(b.running[y]) }) {
			at = append(at, fmt.Sprintf("%s %.0f s", short(pkg), time.Since(b.running[pkg]).Seconds()))
		}
		if len(at) == 0 {
			at = []string{"compiling"}
		}
		r.print("... %s: %s", time.Since(r.start).Round(time.Second), strings.Join(at, ", "))
		r.mu.Unlock()
	}
}

// shell returns a command as a person types it at the root of the checkout.
func shell(dir string, env, args []string) string {
	line := strings.Join(append(slices.Clone(env), args...), " ")
	if dir != "" {
		return "(cd " + dir + " && " + line + ")"
	}
	return line
}

func (r *runner) failed() bool {
	return slices.ContainsFunc(r.batches, func(b *batch) bool { return len(b.failed) > 0 })
}

// summary prints the skipped tests, where the time went, and last the failures.
func (r *runner) summary(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var tests, failed []result
	skipped := map[string]int{}
	for _, b := range r.batches {
		tests, failed = append(tests, b.tests...), append(failed, b.failed...)
		for why, n := range b.skipped {
			skipped[why] += n
		}
	}
	r.print("\nthe slowest tests:")
	for _, t := range slowest(tests, 10) {
		r.print("%7.1f s  %s %s", t.seconds, t.pkg, t.test)
	}
	for _, s := range r.steps {
		r.print("%7.1f s  %s", s.seconds, s.test)
	}
	for _, why := range slices.Sorted(maps.Keys(skipped)) {
		if !strings.HasPrefix(why, longMark) {
			r.print("not run: %d: %s", skipped[why], why)
		}
	}
	long := r.left
	for why, n := range skipped {
		if strings.HasPrefix(why, longMark) {
			long += n
		}
	}
	if long > 0 {
		r.print("left to make test-all: %d", long)
	}
	for _, line := range r.machine.missing {
		r.print("missing: %s", line)
	}
	for _, what := range r.untimely {
		r.print("left out for want of time (%s=%s): %s", withinVariable, os.Getenv(withinVariable), what)
	}
	for _, what := range r.turned {
		r.print("left to other turns (%s=%d/%d): %s", turnVariable, r.turn.number, r.turn.of, what)
	}
	r.print("figure test_%s_minutes %.1f min (%d tests, load %s)", name, time.Since(r.start).Minutes(), len(tests), load())
	for _, f := range failed {
		r.print("\n--- FAIL: %s %s (%.1f s)", f.pkg, f.test, f.seconds)
		for _, line := range f.essence() {
			r.print("%s", line)
		}
		r.print("alone: %s", f.command)
	}
	if len(failed) > 0 {
		r.print("\n%d failed; all that was printed: %s", len(failed), r.log.Name())
	}
}

// longMark begins the reason of a test that -short skips.
const longMark = "long:"

// load returns the mean load of the last minute, or ? where it is not known.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
