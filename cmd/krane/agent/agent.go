package agent

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/config"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/vault"
	"github.com/seed-9e1ffd66/trueup/internal/serve"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// Agent is the program. Set the fields and Start it once.
type Agent struct {
	Config config.Config
	// Kubernetes reaches the API server. It is copied. Required.
	Kubernetes *rest.Config
	// Control carries the requests to the control plane. Default: a transport of its own.
	Control http.RoundTripper
	// Vault decrypts variables. Nil: one is made of Config.
	Vault vault.Decrypter
	// Address is where health and metrics are served. Empty: the port of Config.
	Address string
	// OnListen is called, if set, with the address that is listened on.
	OnListen func(net.Addr)
	// Logger gets everything. Required.
	Logger *slog.Logger
	// Periods are the agent's intervals. The zero Periods are the contract's intervals.
	Periods Periods
}

// Periods are when things happen. Each zero field has the default that it states.
type Periods struct {
	// Relist is the time between full lists, 20 % more or less. 10 minutes.
	Relist time.Duration
	// Absence is how far apart the two lists must be from which something is
	// absent, before it is deleted. 60 s.
	Absence time.Duration
	// Window is the time within which the limit of deletions holds. An hour.
	Window time.Duration
	// Resync is the time between the point queries of each owned workload. 60 s.
	Resync time.Duration
	// Report is the time between checks for unreported changes. 30 s.
	Report time.Duration
	// Inventory is how long an accepted report holds: then the same is reported again,
	// in case that the control plane has lost it. 10 minutes.
	Inventory time.Duration
	// Heartbeat is the time between heartbeats. 30 s.
	Heartbeat time.Duration
	// Namespace is how long a namespace must be empty before it is deleted. 10
	// minutes.
	Namespace time.Duration
	// Retry is the backoff of a resource that failed. 1 s, doubled up to a minute,
	// half as much more or less, 10 attempts.
	Retry reconcile.Backoff
	// Settle is how long the start waits for the live views. What is not observed by
	// then is logged, and work on it fails and is retried. 10 s.
	Settle time.Duration
	// Pause is how long an RPC that failed five times is left alone. 30 s.
	Pause time.Duration
	// Silence and Patience are the fields of stream.Source.
	Silence, Patience time.Duration
}

func (p Periods) complete() Periods {
	p.Relist = cmp.Or(p.Relist, 10*time.Minute)
	p.Absence = cmp.Or(p.Absence, time.Minute)
	p.Window = cmp.Or(p.Window, time.Hour)
	p.Resync = cmp.Or(p.Resync, time.Minute)
	p.Report = cmp.Or(p.Report, 30*time.Second)
	p.Inventory = cmp.Or(p.Inventory, 10*time.Minute)
	p.Heartbeat = cmp.Or(p.Heartbeat, 30*time.Second)
	p.Namespace = cmp.Or(p.Namespace, 10*time.Minute)
	p.Settle = cmp.Or(p.Settle, 10*time.Second)
	p.Retry = cmp.Or(p.Retry, reconcile.Backoff{Min: time.Second, Max: time.Minute, Jitter: 0.5, Retries: 9})
	return p
}

const stopTimeout = 15 * time.Second

// Start runs the agent until ctx ends; then it returns nil within 20 s.
func (a *Agent) Start(ctx context.Context) error {
	if a.Kubernetes == nil || a.Logger == nil {
		return errors.New("agent: Kubernetes and Logger: required")
	}
	program.WarnPlain(ctx, a.Logger, map[string]*url.URL{"control.url": a.Config.Control.URL, "vault.url": a.Config.Vault.URL})
	m := newMetrics()
	w, err := a.assemble(m)
	if err != nil {
		return err
	}
	var serving atomic.Bool
	server := &serve.Server{
		Address: cmp.Or(
			a.Address,
			a.Config.HealthAddress,
		),
		MetricsAddress: a.Config.MetricsAddress,
		Metrics:        program.Metrics(m.registry),
		Logger:         a.Logger,
		StopTimeout:    stopTimeout,
		Checks: []serve.Check{{Name: "agent", Func: func(context.Context) error {
			if !serving.Load() {
				return errors.New("starting")
			}
			return w.ready()
		}}},
		OnListen: a.OnListen,
	}
	group := reconcile.Group{StopTimeout: stopTimeout + 2*time.Second, Members: []reconcile.Member{
		{Name: "server", Starter: server},
		{Name: "agent", Starter: reconcile.StarterFunc(func(ctx context.Context) error {
			serving.Store(true)
			defer serving.Store(false)
			return w.group.Start(ctx)
		})},
	}}
	return group.Start(ctx)
}
