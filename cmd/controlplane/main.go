// Command controlplane is the control plane: it keeps the desired state of every
// cluster in a database, lets administrators change it, and serves it to the
// agents of the clusters.
//
// One listener (--listen) answers the API below /api/v1/, ctrl.v1.ClusterService and the
// reflection of it, the page /status for administrators, /healthz and /readyz. A second
// one (--metrics-listen) answers /metrics without a credential; empty turns it off. Every
// flag has an environment variable as fallback: TRUEUP_CONTROLPLANE_ and the name of the
// flag in capitals with _ for -. /readyz fails while the database cannot be read, or
// committed changes get no version.
//
// The desired state of a region is read with curl, too, with the token of the region and
// by the rules of ctrl.v1.ClusterService; see [statesync.Handler] for all parameters:
//
//	GET /api/v1/scopes/{region}/items                           a page of it
//	GET /api/v1/scopes/{region}/items?after=..&epoch=..&wait=30s  what follows, waited for
//	GET /api/v1/scopes/{region}/items?watch&heartbeat=15s       a stream, one JSON a line
//
// The header X-Krane-Cell names the cell that reads, as with the other calls. Each answer
// of 400 to 499 has a body of one line with the reason: JSON below /api/v1/ and of RPCs, text
// elsewhere.
//
// Rows of desired state that are changed in the database by hand reach the agents
// within minutes. Rows that no agent needs are purged: what was archived, deleted
// services and projects, and instances without a deployment after 7 days, what is
// stopped, stopping or standby after 30 days. Nothing is purged that a live agent has not
// confirmed to have applied. trueup_controlplane_rows counts the rows by state.
//
// The values of var groups are encrypted with AES-256-GCM under the first key of
// --var-group-keys-file, and at each start all that is under another one is encrypted anew.
// A key is replaced in three steps, each with a restart of every replica: the new one is
// added as the last line, is moved to the first, and the old one is removed. Without its
// key a value is lost, so the file belongs into another backup than the database.
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
