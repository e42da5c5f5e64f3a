// Command controlplane is the control plane: it keeps the desired state of every
// cluster in a database, lets administrators change it, and serves it to the
// agents of the clusters.
//
// One listener (--listen) answers the API below /api/v1/, ctrl.v1.ClusterService and the
// reflection of it, the page /status for administrators, /healthz and /readyz. A second
// one (--metrics-bind-address) answers /metrics without a credential; empty turns it off. Every
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
// within minutes. Rows that no agent needs are purged: archived resources, deleted
// services and projects, and instances without a deployment after 7 days; stopped, stopping
// and standby resources after 30 days. A row is never purged before every live agent has
// confirmed to have applied it. trueup_controlplane_rows counts the rows by state.
//
// The values of var groups are encrypted with AES-256-GCM under the first key of
// --var-group-keys-file, and at each start all that is under another one is re-encrypted.
// A key is replaced in three steps, each with a restart of every replica: the new one is
// added as the last line, is moved to the first, and the old one is removed. Without its
// key a value is lost, so the file belongs into another backup than the database.
//
// The program ends with code 0 after SIGTERM or SIGINT, 2 when a flag or its
// environment variable is wrong, and 1 when it cannot run for another reason.
package main

import (
	"os"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
)

func main() { program.Main(newRootCommand(os.LookupEnv)) }
