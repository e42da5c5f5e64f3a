package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/internal/kubewatch"
	"github.com/seed-9e1ffd66/trueup/internal/serve"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// Process is what a program has around its operator: the Lease, health, readiness and the end.
// Set the fields, then call Start, once. Fields must not change afterwards.
type Process struct {
	// Config is the access to the API server. Its limit of requests is not used: the server
	// has one of its own. Required.
	Config *rest.Config
	// Work makes the work of one term of the Lease. It gets a copy of Config, and ctx ends with
	// the term. What it makes must remember nothing of an earlier term: another replica has
	// worked since. Required; for an [Operator] its method Work.
	Work func(ctx context.Context, config *rest.Config) (Work, error)
	// Lease decides which replica works. Namespace and Name are required in it; its Starter is
	// set by Start, its Client and Logger where they are nil. Nil: only one replica may run.
	Lease *kube.Lease
	// Resource is the kind whose objects the operator works for. A replica is ready to take
	// over once the API server has listed it. Required.
	Resource schema.GroupVersionResource
	// Address is host:port of /healthz, /readyz and /metrics. "0": nothing listens. Default a
	// free port of 127.0.0.1.
	Address string
	// MetricsAddress is host:port of a listener of its own for /metrics. Default Address.
	MetricsAddress string
	// Metrics answers /metrics. Default nil: there is no such path.
	Metrics http.Handler
	// StopTimeout bounds how long requests and work may continue after ctx has ended. Default 15s.
	StopTimeout time.Duration
	// OnListen and OnListenMetrics are called with the address that is listened on. Default nil.
	OnListen, OnListenMetrics func(net.Addr)
	// Logger receives the addresses, taken and lost leases, and what fails. Default nil, which is
	// silent.
	Logger *slog.Logger

	client  dynamic.Interface
	current atomic.Pointer[Work]
	ready   atomic.Bool
}

// Work is the work of one term. An [Operator] is one.
type Work interface {
	// Start works until ctx ends, and returns nil then.
	Start(ctx context.Context) error
	// Synced reports whether all that the work needs has been seen. The error says what is
	// missing, or is not current; /readyz shows it.
	Synced() (bool, error)
}

// Start works until ctx ends, and returns nil then. It returns an error if a field is missing,
// an address cannot be listened on, or the work ends by itself.
//
// The process is ready once the work of its first term has seen everything and may watch it. Where another
// replica works, it is ready once the API server has listed Resource. Once ready, it stays so.
func (p *Process) Start(ctx context.Context) error {
	switch {
	case p.Config == nil:
		return errors.New("operator: Process.Config: is required")
	case p.Work == nil:
		return errors.New("operator: Process.Work: is required")
	case p.Resource.Resource == "" || p.Resource.Version == "":
		return errors.New("operator: Process.Resource: is required")
	}
	config := rest.CopyConfig(p.Config)
	config.QPS = -1
	var err error
	if p.client, err = kubewatch.Dynamic(config, nil); err != nil {
		return fmt.Errorf("operator: Process.Config: %w", err)
	}
	logger, timeout := cmp.Or(p.Logger, slog.New(slog.DiscardHandler)), cmp.Or(p.StopTimeout, 15*time.Second)
	var work reconcile.Starter = reconcile.StarterFunc(func(ctx context.Context) error { return p.term(ctx, config) })
	if lease := p.Lease; lease != nil {
		if lease.Client == nil {
			lease.Client = p.client
		}
		lease.Starter, lease.Logger = work, cmp.Or(lease.Logger, logger)
		work = lease
	}
	group := reconcile.Group{StopTimeout: timeout + 2*time.Second, Members: []reconcile.Member{
		{Name: "server", Starter: &serve.Server{
			Address: p.Address, MetricsAddress: p.MetricsAddress, Metrics: p.Metrics, Logger: logger, StopTimeout: timeout,
			Checks: []serve.Check{{Name: "watches", Func: p.check}}, OnListen: p.OnListen, OnListenMetrics: p.OnListenMetrics,
		}},
		{Name: "operator", Starter: work},
	}}
	return group.Start(ctx)
}

// term works for one term of the Lease.
func (p *Process) term(ctx context.Context, config *rest.Config) error {
	work, err := p.Work(ctx, rest.CopyConfig(config))
	if err != nil {
		return err
	}
	p.current.Store(&work)
	defer p.current.Store(nil)
	return work.Start(ctx)
}

// check returns an error until the process is ready.
func (p *Process) check(ctx context.Context) error {
	if p.ready.Load() {
		return nil
	}
	if work := p.current.Load(); work != nil {
		if synced, err := (*work).Synced(); !synced {
			return errors.Join(errNotSeen, err)
		} else if err != nil {
			return err // what was seen is not current
		}
	} else if p.Lease == nil { // the work is about to begin
		return errNotSeen
	} else if _, err := p.client.Resource(p.Resource).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		return fmt.Errorf("the API server does not list %s: %w", p.Resource.GroupResource(), err)
	}
	p.ready.Store(true)
	return nil
}

// errNotSeen is why a process is not ready.
var errNotSeen = errors.New("not everything is seen yet")
