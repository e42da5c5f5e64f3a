package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

// workspace returns the modules of go.work, as patterns of packages.
func workspace() []string {
	return []string{
		"./...", "./cloud/aws/...", "./cmd/...", "./examples/...",
		"./reconcile/controllerruntime/...", "./reconcile/operatormetrics/...", "./reconcile/tracing/...",
		"./reconcile/simtest/upstream/...", "./statesync/sqlstore/...",
	}
}

// raced are the packages with concurrency of their own.
var raced = regexp.MustCompile(
	`^\./(internal/kubewatch|reconcile|apply|snapshot|statesync|cloud|cmd/(internal/serve|krane/[a-z]+|shuttle/agent|api/starbase|controlplane/internal/(edge/(guard|limits|tokens)|state/(agents|clusters|regions|keyring))))(/|$)`,
)

// Without -race: the client of EC2 takes minutes to compile, and a simulated world does
// one thing at a time.
var unraced = regexp.MustCompile(`^\./(cloud/aws|reconcile/simtest)(/|$)`)

// clustered are the packages of the root module whose tests start a Kubernetes; outside
// the workspace they are not run a second time.
var clustered = regexp.MustCompile(
	`^\./(apply|reconcile/(kube|operator|simtest)|cloud/kube|internal/(test|sim|bench|build)|diff/internal)(/|$)`,
)

// linked leaves all symbols out, a third of the time that linking takes. A panic has its names still.
const linked = "-ldflags=-s"

// uninstrumented leaves the race detector out of SQLite, which is translated from C and thereby
// twenty times as slow. Locks are seen still: they are of package sync.
const uninstrumented = "-gcflags=modernc.org/...=-race=false"

// simulated are the tests of a whole program in a simulated world, which does one thing at a
// time. They run after the others, on one processor, so that what one instant wakes goes on in
// the same order each time, and without the race detector, which would only make them ten times
// as slow.
const simulated = "(InASimulatedWorld|MayBeKilledAnywhere)$"

// sequential are tests of functions that start nothing, with thousands of inputs each: the race detector
// would find nothing, and takes minutes.
var sequential = []string{ //nolint:gochecknoglobals // constant
	"TestABodyWithAnySingleByteChangedInItsContentIsRefused", "TestAGuardDoesWhatTheModelDoes", "TestNoTwoInputsShareAName",
	"TestNoTwoServicesHaveObjectsOfOneName", "TestWhatCannotBeAppliedAtAllIsReportedOfItsService",
}

var simulatedTest = regexp.MustCompile(`(?m)^func Test\w*(InASimulatedWorld|MayBeKilledAnywhere)\(`)

// seldomCollected is for simulated worlds above all, which make much garbage and keep little: a
// third of their time goes to its collection by default. What package process starts has the
// default. The race detector needs too much memory for it.
var seldomCollected = []string{"GOGC=400", "GODEBUG=memprofilerate=0"} //nolint:gochecknoglobals // constant

// timed are the tests that judge how long real parts take: nothing else runs beside them.
const timed = "^TestLatency$"

func quick(ctx context.Context, r *runner) error {
	return r.withParts(ctx, func(packages []string) error { return r.quick(ctx, packages) })
}

func (r *runner) quick(ctx context.Context, packages []string) error {
	packages, err := r.shortened(packages)
	if err != nil {
		return err
	}
	alone, packages := apart(packages)
	flags := []string{"-short", linked, "-parallel=8", "-timeout=20m"}
	r.test(ctx, step{name: "undisturbed", env: seldomCollected, flags: append(slices.Clone(flags), "-p=1"), packages: alone})
	r.test(ctx, step{name: "quick", env: seldomCollected, flags: append(flags, "-p=3"), packages: packages})
	return ctx.Err()
}

func rest(ctx context.Context, r *runner) error {
	return r.withParts(ctx, func(packages []string) error { return r.rest(ctx, packages) })
}

func (r *runner) rest(ctx context.Context, packages []string) error {
	alone := []string{"GOWORK=off"}
	r.command(ctx, "vet", "", nil, append([]string{"go", "vet"}, workspace()...)...)
	r.command(ctx, "vet outside the workspace", "", alone, "go", "vet", "./...")

	// The long tests repeat what short ones do, or wait: they run once, without the race detector.
	r.test(
		ctx,
		step{
			name: "race",
			flags: []string{
				"-race", "-short", linked, uninstrumented, "-p=3", "-parallel=4", "-timeout=30m",
				"-skip=" + simulated + "|^(" + strings.Join(sequential, "|") + ")$",
			},
			packages: r.underRace(packages),
		},
	)
	worlds, err := r.simulated(packages)
	if err != nil {
		return err
	}
	names, packages, err := r.long(packages)
	if err != nil {
		return err
	}
	// First, so that nothing of them is left for want of time.
	r.test(
		ctx,
		step{
			name:     "simulated",
			env:      seldomCollected,
			flags:    []string{linked, "-p=2", "-parallel=1", "-cpu=1", "-timeout=30m", "-run=" + simulated},
			packages: worlds,
		},
	)
	r.test(
		ctx,
		step{
			name: "long",
			env:  seldomCollected,
			flags: []string{
				linked, "-p=2", "-parallel=8", "-timeout=45m", "-run=^(" + strings.Join(names, "|") + ")$",
			},
			packages: packages,
		},
	)
	r.test(
		ctx,
		step{
			name:     "timed",
			flags:    []string{linked, "-p=1", "-timeout=30m", "-run=" + timed},
			packages: []string{module + "/cmd/nodepool/operator"},
		},
	)

	root, err := r.list(ctx, alone, "./...")
	if err != nil {
		return err
	}
	root = slices.DeleteFunc(root, func(pkg string) bool { return clustered.MatchString(short(pkg)) })
	r.test(
		ctx,
		step{
			name:     "outside the workspace",
			env:      append(alone, seldomCollected...),
			flags:    []string{"-short", linked, "-timeout=10m"},
			packages: root,
		},
	)
	for _, module := range slices.Concat(separate, comparisons) {
		r.command(ctx, "vet "+module, module, alone, "go", "vet", "./...")
		r.test(ctx, step{name: module, dir: module, env: alone, flags: []string{"-short", linked, "-timeout=10m"}, packages: []string{"./..."}})
	}
	if err := r.newest(ctx); err != nil {
		return err
	}
	r.newestGo(ctx)
	return ctx.Err()
}

// underRace returns the packages of this turn that run under the race detector, none on a machine
// that has none.
func (r *runner) underRace(packages []string) (race []string) {
	for _, pkg := range packages {
		if path := short(pkg); r.machine.race && raced.MatchString(path) && !unraced.MatchString(path) {
			race = append(race, pkg)
		}
	}
	return r.ofTurn("packages under the race detector", race)
}

// withParts builds and starts what the tests share, and ends it after do. It gives it the
// packages of the workspace.
func (r *runner) withParts(ctx context.Context, do func(packages []string) error) error {
	if _, err := kubetest.BuildAssets(ctx, r.out); err != nil {
		return fmt.Errorf("%w: %w", errMachine, err)
	}
	packages, err := r.list(ctx, nil, workspace()...)
	if err != nil {
		return err
	}
	r.say("== programs")
	began := time.Now()
	built := make(chan struct{})
	go func() {
		for {
			select {
			case <-built:
				return
			case <-time.After(20 * time.Second):
				r.say("... %s: programs are built and a PostgreSQL is started", time.Since(began).Round(time.Second))
			}
		}
	}()
	p, err := startParts(ctx)
	close(built)
	if err != nil {
		return fmt.Errorf("%w: %w", errMachine, err)
	}
	r.variables = p.variables
	r.steps = append(r.steps, result{test: "programs", seconds: time.Since(began).Seconds()})
	return errors.Join(do(packages), p.stop())
}

func (r *runner) list(ctx context.Context, env []string, patterns ...string) ([]string, error) {
	cmd := r.prepare(
		ctx,
		"",
		env,
		append([]string{"go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}"}, patterns...),
	)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: go list: %w", errMachine, err)
	}
	return slowestFirst(strings.Fields(string(out))), nil
}

// simulated returns the packages with a test of a program in a simulated world.
func (r *runner) simulated(packages []string) (with []string, _ error) {
	for _, pkg := range packages {
		files, err := filepath.Glob(filepath.Join(r.root, strings.TrimPrefix(pkg, module), "*_test.go"))
		if err != nil {
			return nil, err
		}
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			if simulatedTest.Match(text) {
				with = append(with, pkg)
				break
			}
		}
	}
	return with, nil
}

// shortened returns the packages with a test that -short does not skip. Linking the others takes
// seconds each; their tests count as left to rest, which also compiles and vets them.
func (r *runner) shortened(packages []string) (with []string, _ error) {
	for _, pkg := range packages {
		n, err := onlyLong(filepath.Join(r.root, strings.TrimPrefix(pkg, module)))
		if err != nil {
			return nil, err
		}
		if n == 0 {
			with = append(with, pkg)
			continue
		}
		r.left += n
		r.say("left to make test-all: %d of %s", n, short(pkg))
	}
	return with, nil
}

// long returns the tests of this turn that -short skips or shortens, and their packages. Simulated and
// timed tests have steps of their own.
func (r *runner) long(packages []string) (names, with []string, err error) {
	others := regexp.MustCompile(timed + "|" + simulated)
	found := map[string][]string{} // by package
	for _, pkg := range packages {
		tests, err := longTests(filepath.Join(r.root, strings.TrimPrefix(pkg, module)))
		if err != nil {
			return nil, nil, err
		}
		found[pkg] = slices.DeleteFunc(tests, others.MatchString)
		names = append(names, found[pkg]...)
	}
	slices.Sort(names)
	names = r.ofTurn("long tests", slices.Compact(names))
	for _, pkg := range packages {
		if slices.ContainsFunc(found[pkg], func(name string) bool { return slices.Contains(names, name) }) {
			with = append(with, pkg)
		}
	}
	return names, with, nil
}
