// Command controlplane is the control plane: it holds what every cluster
// shall look like in a database, lets administrators change it, and serves it
// to the agents of the clusters.
//
// One listener (--listen) answers the API below /api/v1/, ctrl.v1.ClusterService,
// the page /status for administrators, /healthz and /readyz. A second one
// (--metrics-listen) answers /metrics, and nothing that needs a credential; empty
// turns it off. Every flag has an environment variable as fallback:
// TRUEUP_CONTROLPLANE_ and the name of the flag in capitals with _ for -. /readyz
// fails while the database cannot be read, or committed changes get no version.
//
// Rows of wanted state that somebody changes in the database by hand reach the
// agents within minutes. What was archived is purged after seven days, once no
// agent needs it.
//
// The program ends with code 0 after SIGTERM or SIGINT, 2 when a flag or its
// environment variable is wrong, and 1 when it cannot run for another reason.
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
)

const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	code := run(ctx, os.Args[1:], os.LookupEnv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run runs the program and returns its exit code.
func run(ctx context.Context, args []string, lookupEnv func(string) (string, bool), stdout, stderr io.Writer) int {
	command := newRootCommand(lookupEnv) //nolint:contextcheck // ExecuteContext passes it
	command.SetArgs(args)
	command.SetOut(stdout)
	command.SetErr(stderr)
	err := command.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	line := strings.Join(strings.Fields(err.Error()), " ")
	// There is nobody left to tell when this cannot be written.
	_, _ = fmt.Fprintln(stderr, "controlplane: "+line)
	var usage *usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailure
}

// usageError is a flag, environment variable or argument that is wrong.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}
