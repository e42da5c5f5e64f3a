package fleet_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/cluster"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/db"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/guard"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/limits"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/serve"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/starbase/server"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

const (
	adminToken = "the-admin-token-of-the-fleet"
	bearer     = "the-shared-bearer-of-the-fleet"
	// bookmarks is the time between two messages of a stream at rest.
	bookmarks = 300 * time.Millisecond
)

// plane is one replica of the control plane, put together as cmd/controlplane does.
type plane struct {
	address string
	agents  *cluster.Service
	// stop ends the replica and closes its database.
	stop func()
}

// startPlane starts a replica on the database.
func startPlane(tb testing.TB, source string, logger *slog.Logger, wrap func(http.Handler) http.Handler) *plane {
	tb.Helper()
	database, err := db.Open(tb.Context(), source)
	require.NoError(tb, err)
	registry := prometheus.NewRegistry()
	attempts, err := guard.New(guard.Config{Logger: logger, Registerer: registry})
	require.NoError(tb, err)
	usage, err := limits.New(limits.Config{Registerer: registry})
	require.NoError(tb, err)
	regions, clusters := &cluster.Store{Database: database}, &server.Store{Database: database}
	api, err := server.New(server.Config{
		Store: clusters, AdminToken: adminToken,
		AdminRoutes: cluster.AdminRoutes(regions), AdminConditions: cluster.AdminConditions(),
		Guard: attempts, Limits: usage, Logger: logger, Registerer: registry,
	})
	require.NoError(tb, err)
	logMetrics := cluster.NewLogMetrics(database.Log, logger)
	logMetrics.Observe()
	feed := &statesync.Server{Log: database.Log, Heartbeat: bookmarks, Logger: logger}
	p := &plane{}
	p.agents, err = cluster.New(cluster.Config{Database: database, Feed: feed, Bearer: bearer, Guard: attempts, Limits: usage, Logger: logger, Registerer: registry})
	require.NoError(tb, err)
	mux := http.NewServeMux()
	p.agents.Mount(mux)
	mux.Handle("/", api)
	address := make(chan string, 1)
	group := reconcile.Group{Members: []reconcile.Member{
		{Name: "change log", Starter: database.Log},
		{Name: "feed", Starter: feed},
		{Name: "revocation", Starter: p.agents},
		{Name: "reconciler", Starter: &cluster.Reconciler{Store: regions, Every: time.Second, Settle: 500 * time.Millisecond, Logger: logger, Registerer: registry}},
		{Name: "listener", Starter: &serve.Server{
			Handler: wrap(mux), UnencryptedHTTP2: true, Logger: logger,
			Checks:      []serve.Check{{Name: "database", Func: database.Ping}, {Name: "numbering", Func: logMetrics.Ready}},
			OnListen:    func(at net.Addr) { address <- at.String() },
			StopTimeout: time.Millisecond, // it is killed, not stopped
		}},
	}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan error, 1)
	go func() { done <- group.Start(ctx) }()
	var once sync.Once
	p.stop = func() {
		once.Do(func() {
			cancel()
			require.NoError(tb, errors.Join(<-done, database.Close()))
		})
	}
	tb.Cleanup(p.stop)
	select {
	case p.address = <-address:
	case err := <-done:
		require.NoError(tb, err)
	}
	return p
}

// balancer is one address for the replicas that are alive.
type balancer struct {
	listener net.Listener

	mu       sync.Mutex
	replicas []string
	next     int
	open     map[net.Conn]string // by the replica that it leads to
	// idle, if not 0, is how long a connection may carry nothing, in nanoseconds.
	idle atomic.Int64
}

func startBalancer(tb testing.TB) *balancer {
	tb.Helper()
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	b := &balancer{listener: listener, open: map[net.Conn]string{}}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			group.Go(func() { b.forward(client) })
		}
	})
	tb.Cleanup(func() {
		_ = listener.Close()
		for _, address := range b.alive() {
			b.remove(address)
		}
		group.Wait()
	})
	return b
}

func (b *balancer) alive() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.replicas)
}

func (b *balancer) add(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replicas = append(b.replicas, address)
}

// remove takes a replica out and breaks its connections.
func (b *balancer) remove(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replicas = slices.DeleteFunc(b.replicas, func(a string) bool { return a == address })
	for conn, to := range b.open {
		if to == address {
			_ = conn.Close()
		}
	}
}

// choose returns a replica for the connection, none while there is none.
func (b *balancer) choose(client net.Conn) (address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.replicas) == 0 {
		return ""
	}
	b.next++
	address = b.replicas[b.next%len(b.replicas)]
	b.open[client] = address
	return address
}

func (b *balancer) forward(client net.Conn) {
	defer func() {
		_ = client.Close()
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.open, client)
	}()
	address := b.choose(client)
	if address == "" {
		return
	}
	replica, err := (&net.Dialer{Timeout: 10 * time.Second}).Dial("tcp", address)
	if err != nil {
		return
	}
	var both sync.WaitGroup
	var idle *time.Timer
	if most := time.Duration(b.idle.Load()); most > 0 {
		idle = time.AfterFunc(most, func() { _ = client.Close() })
		defer idle.Stop()
		client, replica = used{client, idle, most}, used{replica, idle, most}
	}
	for _, way := range [][2]net.Conn{{client, replica}, {replica, client}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_ = client.Close()
			_ = replica.Close()
		})
	}
	both.Wait()
}

// used is a connection that puts the end of an idle one off.
type used struct {
	net.Conn

	idle *time.Timer
	most time.Duration
}

func (u used) Read(p []byte) (int, error) {
	n, err := u.Conn.Read(p)
	if n > 0 {
		u.idle.Reset(u.most)
	}
	return n, err
}
