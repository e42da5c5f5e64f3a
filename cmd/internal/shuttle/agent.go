package shuttle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	clientmetadata "k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/serve"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// Agent is the program. Set the fields and Start it once.
type Agent struct {
	Config Config
	// Kubernetes reaches the API server. It is copied.
	Kubernetes *rest.Config
	// Logger gets everything. Required.
	Logger *slog.Logger
	// OnListen is called, if set, with the address of the metrics listener.
	OnListen func(net.Addr)
}

const (
	stopTimeout    = 15 * time.Second
	reportInterval = 5 * time.Minute
	jitter         = 0.2
)

// Start runs the agent until ctx ends; then it returns nil within 20 s.
func (a *Agent) Start(ctx context.Context) error {
	metrics := newMetrics()
	owner := Owner(a.Config.ClusterID)
	live, err := a.live(owner, metrics)
	if err != nil {
		return err
	}
	client := newClient(&a.Config, metrics.observeStarbase)
	wanted := &desired{}

	pods, err := a.readiness(owner, metrics)
	if err != nil {
		return err
	}
	status := &reporter{client: client, readiness: pods, instance: instanceID()}
	statusLoop := &reconcile.Loop{Name: "status", Reconciler: status, Interval: reportInterval, Timeout: time.Minute, Backoff: a.backoff(), Logger: a.Logger}
	status.trigger, pods.changed = statusLoop.Trigger, status.changed

	converge := &converger{
		applier: &apply.Applier{Live: live, OnWrite: metrics.observeWrite},
		desired: wanted, limit: a.Config.MaxDeletePercent, metrics: metrics, logger: a.Logger, status: status,
	}
	convergeLoop := a.loop("converge", converge)
	live.OnSynced = func(schema.GroupKind) { convergeLoop.Trigger() }
	if a.Config.WakeOnDrift {
		live.OnDrift = func(apply.ID) { convergeLoop.Trigger() }
	}

	pull := &puller{
		client: client, owner: owner, cluster: a.Config.ClusterID, dns: a.Config.DNS,
		desired: wanted, metrics: metrics, logger: a.Logger, changed: convergeLoop.Trigger,
	}
	pullLoop := a.loop("pull", pull)
	pullLoop.Timeout = a.Config.ReconcileInterval // one call never outlives its interval

	server := &serve.Server{
		Address: a.Config.MetricsAddr, Gatherer: metrics.registry, Logger: a.Logger, StopTimeout: stopTimeout,
		Checks: []serve.Check{{Name: "live view", Func: func(ctx context.Context) error { return syncedNow(ctx, live) }}, {Name: "starbase", Func: wanted.ready}},
		OnListen: func(address net.Addr) {
			a.Logger.InfoContext(ctx, "listening", slog.String("address", address.String()))
			if a.OnListen != nil {
				a.OnListen(address)
			}
		},
	}
	group := reconcile.Group{StopTimeout: stopTimeout + 2*time.Second, Members: []reconcile.Member{
		{Name: "server", Starter: server},
		{Name: "live view", Starter: live},
		{Name: "desired state", Starter: &reconcile.Group{StopTimeout: stopTimeout, Members: []reconcile.Member{
			{Name: "pull", Starter: pullLoop}, {Name: "converge", Starter: convergeLoop}, {Name: "status", Starter: statusLoop}, {Name: "readiness", Starter: pods},
		}}},
	}}
	return group.Start(ctx)
}

func (a *Agent) loop(name string, r reconcile.Reconciler) *reconcile.Loop {
	return &reconcile.Loop{Name: name, Reconciler: r, Interval: a.Config.ReconcileInterval, Jitter: jitter, Backoff: a.backoff(), Logger: a.Logger}
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
		Domain:  "starform.io",
	}
}

// access returns how the agent reaches the API server.
func (a *Agent) access(metrics *metrics) *rest.Config {
	config := rest.CopyConfig(a.Kubernetes)
	config.UserAgent = "shuttle/" + serve.Version()
	config.QPS = -1 // the server's fairness decides
	config.Wrap(metrics.countRequests)
	return config
}

func (a *Agent) readiness(owner apply.Owner, metrics *metrics) (*readiness, error) {
	client, err := dynamic.NewForConfig(a.access(metrics))
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	return &readiness{client: client, owner: owner.Labels}, nil
}

func (a *Agent) live(owner apply.Owner, metrics *metrics) (*apply.Live, error) {
	client, err := clientmetadata.NewForConfig(a.access(metrics))
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	// The kinds are known beforehand, so no discovery is needed.
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range Kinds() {
		scope := meta.RESTScopeNamespace
		if kind.Kind == "Namespace" {
			scope = meta.RESTScopeRoot
		}
		mapper.Add(kind, scope)
	}
	return &apply.Live{Client: client, Mapper: mapper, Owner: owner, Kinds: Kinds(), Logger: a.Logger}, nil
}

// ready is nil once Starbase has answered.
func (d *desired) ready(context.Context) error {
	if _, answered := d.peek(); !answered {
		return errors.New("no answer yet")
	}
	return nil
}

// syncedNow is nil when the live view is complete, without waiting for it.
func syncedNow(ctx context.Context, live *apply.Live) error {
	ended, cancel := context.WithCancel(ctx)
	cancel()
	return live.WaitSynced(ended)
}

// instanceID tells two running agents of one cluster apart.
func instanceID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}
