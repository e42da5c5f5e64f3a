// Command testrun runs the tests of this repository, as "make test" and "make test-all" do.
//
//	testrun quick   every unit, property and story test, the simulations at a small number
//	                of histories, and for each program one scenario with each real part
//	testrun rest    what quick leaves out: long tests, the race detector, the root module
//	                outside the workspace, the newest client-go, releases, alerts
//
// A long test is one that asks testing.Short: quick runs with -short, where such a test is
// skipped or shortened, and leaves out the packages that have no other; rest finds these
// tests in the source and runs them in full. The race detector has the short tests alone; "make
// test-long" has all. Rest vets all packages, quick none.
//
// With TRUEUP_TEST_WITHIN=60m, what has not begun after 60 minutes is left out and named. With
// TRUEUP_TEST_TURN=2/3, rest runs the second third of the long tests and of the packages under the
// race detector, and everything else: three turns are everything.
//
// While tests run it prints a line for each package. Last it prints what was not run for
// want of a part of the machine, where the time went, and what failed, in twenty lines each
// with the command that runs it alone. The exit status is 1 when something failed, 2 when
// the machine cannot run the tests.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() {
		orphaned(ctx, os.Getppid, time.Second)
		stop()
	}()
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case errors.Is(err, errMachine):
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// orphaned waits until the parent has ended: a make that was killed tells its children nothing.
// Or until ctx ends.
func orphaned(ctx context.Context, parent func() int, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for first := parent(); parent() == first; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// errFailed is a run with tests that failed; the report names them.
var errFailed = errors.New("FAIL")

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 && args[0] == "begin" {
		return begin(args[1:], out)
	}
	var plan func(context.Context, *runner) error
	switch name := strings.Join(args, " "); name {
	case "quick":
		plan = quick
	case "rest":
		plan = rest
	default:
		return fmt.Errorf("%w: what to run: %q; use quick or rest", errMachine, name)
	}
	machine, err := look(ctx)
	if err != nil {
		return err
	}
	for _, line := range machine.missing {
		fmt.Fprintln(out, "missing:", line) //nolint:errcheck // a run does not fail for want of a reader
	}
	r, err := newRunner(ctx, args[0], out, machine)
	if err != nil {
		return err
	}
	return r.end(args[0], errors.Join(plan(ctx, r), r.close()))
}

// end prints the summary of a plan that has come to its end. The error says that something failed.
func (r *runner) end(name string, err error) error {
	if err != nil {
		return err
	}
	r.summary(name)
	if r.failed() {
		return errFailed
	}
	return nil
}
