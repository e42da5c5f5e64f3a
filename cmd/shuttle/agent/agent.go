package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	clientmetadata "k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/budget"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/kubeaccess"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/program"
	"github.com/seed-9e1ffd66/trueup/internal/kubewatch"
	"github.com/seed-9e1ffd66/trueup/internal/serve"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// Agent is the program. Set the fields and Start it once.
type Agent struct {
	Config Config
	// Kubernetes reaches the API server. It is copied.
	Kubernetes *rest.Config
	// Starbase carries the requests to Starbase. Default: a transport of its own.
	Starbase http.RoundTripper
	// Logger gets everything. Required.
	Logger *slog.Logger
	// OnListen is called, if set, with the address of the metrics listener.
	OnListen func(net.Addr)

	budget budget.Budget // of the requests for the work; the Lease is not held back by it
}

const (
	stopTimeout = 15 * time.Second
	// reportInterval is less than the five minutes after which Starbase expects a report: it takes a while.
	reportInterval = 5*time.Minute - 10*time.Second
	jitter         = 0.2
)

// Start runs the agent until ctx ends; then it returns nil within 20 s.
func (a *Agent) Start(ctx context.Context) error {
	program.WarnPlain(ctx, a.Logger, map[string]*url.URL{"STARFORM_STARBASE_URL": a.Config.StarbaseURL})
	metrics := newMetrics()
	var current atomic.Pointer[term]
	var work reconcile.Starter = reconcile.StarterFunc(func(ctx context.Context) error {
		t, err := a.newTerm(metrics)
		if err != nil {
			return err
		}
		current.Store(t)
		defer current.Store(nil)
		metrics.live.Store(t.live)
		defer metrics.live.Store(nil)
		return t.group.Start(ctx)
	})
	if a.Config.LeaderElection {
		lease, err := a.lease(metrics, work)
		if err != nil {
			return err
		}
		work = lease
	}
	check := func(ready func(*term, context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			switch t := current.Load(); {
			case t != nil:
				return ready(t, ctx)
			case a.Config.LeaderElection:
				return nil // standing by is all that is asked of it
			default:
				return errors.New("starting")
			}
		}
	}
	server := &serve.Server{
		Address:        a.Config.HealthAddress,
		MetricsAddress: a.Config.MetricsAddress,
		Metrics:        program.Metrics(metrics.registry),
		Logger:         a.Logger,
		StopTimeout:    stopTimeout,
		Checks:         []serve.Check{{Name: "live view", Func: check((*term).synced)}, {Name: "starbase", Func: check((*term).answered)}},
		OnListen:       a.OnListen,
	}
	group := reconcile.Group{StopTimeout: stopTimeout + 2*time.Second, Members: []reconcile.Member{
		{Name: "server", Starter: server}, {Name: "agent", Starter: work},
	}}
	return group.Start(ctx)
}

// leaseName is the Lease of a term, in the agent's namespace.
const leaseName = "shuttle"

func (a *Agent) namespace() string { return cmp.Or(a.Config.Namespace, Namespace) }

// lease runs the work only while this process holds the Lease.
func (a *Agent) lease(metrics *metrics, work reconcile.Starter) (*kube.Lease, error) {
	client, err := kubewatch.Dynamic(a.access(metrics), nil)
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	return &kube.Lease{Client: client, Namespace: a.namespace(), Name: leaseName, Starter: work, Logger: a.Logger}, nil
}

func (a *Agent) loop(name string, r reconcile.Reconciler) *reconcile.Loop {
	return &reconcile.Loop{
		Name:       name,
		Reconciler: r,
		Interval:   a.Config.ReconcileInterval,
		Jitter:     jitter,
		Backoff:    a.backoff(),
		Logger:     a.Logger,
	}
}

// backoff retries a failed pass sooner than the ticker would, never later.
func (a *Agent) backoff() reconcile.Backoff {
	return reconcile.Backoff{Min: time.Second, Max: a.Config.ReconcileInterval, Jitter: 0.5}
}

// Owner is the identity under which the agent of a cluster applies objects.
func Owner(clusterID string) apply.Owner {
	return apply.Owner{
		Manager: manager,
		Labels:  map[string]string{labelManagedBy: manager, labelClusterID: clusterID},
		Domain:  ownerDomain,
	}
}

// access returns how the agent reaches the API server.
func (a *Agent) access(metrics *metrics) *rest.Config {
	config := kubeaccess.As("shuttle", a.Kubernetes)
	config.Wrap(metrics.countRequests)
	return config
}

// budgeted is access that yields when the API server is busy.
func (a *Agent) budgeted(metrics *metrics) *rest.Config {
	config := a.access(metrics)
	config.Wrap(a.budget.Wrap)
	return config
}

func (a *Agent) rollouts(owner apply.Owner, metrics *metrics) (*rollouts, error) {
	client, err := kubewatch.Dynamic(a.budgeted(metrics), nil)
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	return newRollouts(client, owner.Labels, a.Logger), nil
}

// podView is proven within two of both intervals that depend on it.
func (a *Agent) podView(owner apply.Owner, metrics *metrics) (*podView, error) {
	client, err := kubewatch.Dynamic(a.budgeted(metrics), nil)
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	return newPodView(client, owner.Labels, min(a.Config.SnapshotInterval, a.Config.CapacityInterval), metrics, a.Logger), nil
}

func (a *Agent) live(owner apply.Owner, metrics *metrics) (*apply.Live, error) {
	client, err := clientmetadata.NewForConfig(a.budgeted(metrics))
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	// A cluster may lack the Gateway API, and get it later.
	known, err := discovery.NewDiscoveryClientForConfig(a.budgeted(metrics))
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	mapper := newMapper(restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(known)))
	return &apply.Live{
		Client:    client,
		Mapper:    mapper,
		Discovery: inhabitants{known, mapper},
		Owner:     owner,
		Kinds:     Kinds(),
		Logger:    a.Logger,
	}, nil
}

// instanceID distinguishes two running agents of one cluster.
func instanceID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}
