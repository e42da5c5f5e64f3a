// Command controlplane is the control plane: it keeps the desired state of every
// cluster in a database, lets administrators change it, and serves it to the
// agents of the clusters.
//
// One listener (--listen) answers the API below /api/v1/, ctrl.v1.ClusterService,
// the page /status for administrators, /healthz and /readyz. A second one
// (--metrics-listen) answers /metrics without a credential; empty turns it off. Every flag has an environment variable as fallback:
// TRUEUP_CONTROLPLANE_ and the name of the flag in capitals with _ for -. /readyz
// fails while the database cannot be read, or committed changes get no version.
//
// Rows of desired state that are changed in the database by hand reach the agents
// within minutes. What was archived is purged after seven days, once no
// agent needs it.
//
// The program ends with code 0 after SIGTERM or SIGINT, 2 when a flag or its
// environment variable is wrong, and 1 when it cannot run for another reason.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := program.Run(ctx, newRootCommand(os.LookupEnv), os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
