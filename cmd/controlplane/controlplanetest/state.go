package controlplanetest

import (
	"net/http"
	"testing"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/keyring"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
)

// What a test of an agent reads and writes in the database of the control plane, past its
// API.
type (
	// Tx is a transaction.
	Tx = db.Tx
	// Keys encrypt the values of var groups.
	Keys = keyring.Ring

	// Clusters is the desired and the reported state of clusters.
	Clusters = clusters.Store
	// ServiceState is the stored state of a service.
	ServiceState = clusters.ServiceState
	// Standing is where a service stands, as the status page shows it.
	Standing = clusters.Standing

	// Regions is the desired and the reported state of regions.
	Regions = regions.Store
	// Region is a region.
	Region = regions.Region
	// Resource is a deployment, sentinel or policy of a region, Want what is wanted of one, and
	// Instance a pod of a deployment.
	Resource = regions.Resource
	Want     = regions.Wanted
	Instance = regions.Instance
)

// StandingDeleted is the standing of a service that its agent has reported as deleted.
const StandingDeleted = clusters.StandingDeleted

// ParseKeys reads the keys of a key file: lines of a name and 32 bytes in base64.
func ParseKeys(text string) (*Keys, error) { return keyring.Parse(text) }

// Open opens a database as db.Open does. The caller closes it.
func Open(tb testing.TB, source string) *db.Database {
	tb.Helper()
	database, err := db.Open(tb.Context(), source)
	check(tb, err)
	return database
}

// ClusterAPI returns the API that agents of clusters and administrators with [AdminToken]
// speak to, without a listener.
func ClusterAPI(tb testing.TB, store *Clusters) http.Handler {
	tb.Helper()
	handler, err := clusters.New(clusters.Config{Store: store, Admins: tokens.Only(AdminToken)})
	check(tb, err)
	return handler
}
