// Package controlplanetest runs replicas of the control plane inside a test, put together as
// cmd/controlplane does, and one address before them, so that tests of agents can have a
// replica fail or end at a chosen moment. [Simulated] is one in a world of package simtest,
// without a listener.
package controlplanetest

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/guard"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/limits"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/oidcauth"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/edge/tokens"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/agents"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/audit"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/keyring"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/usage"
	"github.com/seed-9e1ffd66/trueup/internal/serve"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// AdminToken opens the admin API of each replica.
const AdminToken = "the-admin-token-of-the-tests"

// Options say how a replica runs.
type Options struct {
	// Source is the database, as db.Open takes it. Required.
	Source string
	// Bearer is the token that agents of all regions share. Empty: there is none.
	Bearer string
	// TokenLifetime is --agent-token-lifetime.
	TokenLifetime time.Duration
	// Keys encrypt the values of var groups. Nil: none can be put.
	Keys *keyring.Ring
	// People sign in with OpenID Connect. Nil: there are none.
	People *oidcauth.People
	// Heartbeat is the time between two messages of a stream at rest. Zero: 300 ms.
	Heartbeat time.Duration
	// Wrap, if set, stands before all handlers: the place for faults.
	Wrap func(http.Handler) http.Handler
	// Logger gets the lines of the replica. Nil: nothing is logged.
	Logger *slog.Logger
}

// Plane is one running replica.
type Plane struct {
	// Address is host:port of its listener.
	Address string
	// Regions is the half that agents of regions speak to.
	Regions *regions.Service

	stop func()
}

// replica is a control plane that is not started.
type replica struct {
	database *db.Database
	regions  *regions.Service
	// ready is a check of the numbering of changes.
	ready   func(context.Context) error
	handler http.Handler
	// members are all but the listener.
	members []reconcile.Member
}

// assemble puts a replica together on a database. The reconciler has every as its interval, and
// waits for settle; zero stands for its defaults.
func assemble(tb testing.TB, database *db.Database, o Options, every, settle time.Duration) *replica {
	tb.Helper()
	logger := cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	registry := prometheus.NewRegistry()
	attempts, err := guard.New(guard.Config{Logger: logger, Registerer: registry})
	check(tb, err)
	shares, err := limits.New(limits.Config{Registerer: registry})
	check(tb, err)
	regionStore := &regions.Store{Database: database, TokenLifetime: o.TokenLifetime}
	clusterStore := &clusters.Store{Database: database, TokenLifetime: o.TokenLifetime, Keys: o.Keys}
	used := &tokens.Uses{Database: database, Logger: logger}
	api, err := clusters.New(clusters.Config{
		Store: clusterStore, Admins: tokens.Only(AdminToken), People: o.People, Used: used,
		AdminRoutes: slices.Concat(
			regions.AdminRoutes(regionStore),
			audit.Routes(&audit.Log{Database: database, Logger: logger}),
			tokens.Routes(tokens.Only(AdminToken), used),
			usage.Routes(database),
		),
		AdminConditions: regions.AdminConditions(),
		OpenRoutes: agents.Renewal{
			Scopes: []agents.Scopes{clusterStore.Agents(), regionStore.Agents()}, Shared: o.Bearer, Guard: attempts, Limits: shares,
		}.Routes(),
		Guard: attempts, Limits: shares, Heartbeat: o.Heartbeat, Logger: logger, Registerer: registry,
	})
	check(tb, err)
	logMetrics := regions.NewLogMetrics(database.Log, logger)
	logMetrics.Observe()
	feed := &statesync.Server{Log: database.Log, Heartbeat: o.Heartbeat, Logger: logger}
	streams, err := regions.New(regions.Config{
		Database: database, Feed: feed, Bearer: o.Bearer, TokenLifetime: o.TokenLifetime,
		Guard: attempts, Limits: shares, Logger: logger, Registerer: registry,
	})
	check(tb, err)
	mux := http.NewServeMux()
	streams.Mount(mux)
	mux.Handle("/", api)
	return &replica{database: database, regions: streams, ready: logMetrics.Ready, handler: mux, members: []reconcile.Member{
		{Name: "streams of clusters", Starter: api},
		{Name: "change log", Starter: database.Log},
		{Name: "feed", Starter: feed},
		{Name: "revocation", Starter: streams},
		{Name: "reconciler", Starter: &regions.Reconciler{
			Store: regionStore, Every: every, Settle: settle, Logger: logger, Registerer: registry,
		}},
	}}
}

// Start starts a replica that ends with the test. A failure to start fails the test.
func Start(tb testing.TB, o Options) *Plane {
	tb.Helper()
	o.Heartbeat = cmp.Or(o.Heartbeat, 300*time.Millisecond)
	r := assemble(tb, Open(tb, o.Source), o, time.Second, 500*time.Millisecond)
	p := &Plane{Regions: r.regions}
	if o.Wrap != nil {
		r.handler = o.Wrap(r.handler)
	}
	address := make(chan string, 1)
	group := reconcile.Group{Members: append(r.members, reconcile.Member{Name: "listener", Starter: &serve.Server{
		Handler: r.handler, UnencryptedHTTP2: true, Logger: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		Checks:      []serve.Check{{Name: "database", Func: r.database.Ping}, {Name: "numbering", Func: r.ready}},
		OnListen:    func(at net.Addr) { address <- at.String() },
		StopTimeout: time.Millisecond, // it is killed, not stopped
	}})}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan error, 1)
	go func() { done <- group.Start(ctx) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-done, r.database.Close()); err != nil {
			tb.Errorf("control plane: %v", err)
		}
	})
	tb.Cleanup(p.stop)
	select {
	case p.Address = <-address:
	case err := <-done:
		tb.Fatalf("control plane: it ended: %v", err)
	}
	return p
}

// Stop ends the replica, breaks its connections and closes its database. Calling it again
// does nothing.
func (p *Plane) Stop() { p.stop() }

// check ends the test with an error.
func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatalf("control plane: %v", err)
	}
}
