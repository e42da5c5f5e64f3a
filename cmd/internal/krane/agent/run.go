package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	clientmetadata "k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/budget"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/breaker"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/config"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/control"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/render"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/stream"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/vault"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// run is the agent at work.
type run struct {
	Agent
	cell     render.Cell
	client   ctrlv1connect.ClusterServiceClient
	metrics  *metrics
	alarms   *alarms
	budget   *budget.Budget
	book     *book
	theirs   foreigners
	parts    map[render.Component]*part
	replicas map[stream.Collection]*statesync.Replica
	outage   map[stream.Collection]*atomic.Bool
	reporter *reporter
	asks     *breaker.Set
	sweep    *reconcile.Loop
	repairs  *reconcile.Queue[statesync.Key]
	queries  *reconcile.Queue[statesync.Key]
	members  []reconcile.Member
}

func (a *Agent) newRun(m *metrics) (*run, error) {
	r := &run{
		Agent: *a, metrics: m, budget: &budget.Budget{}, book: newBook(), client: a.Client,
		cell: render.Cell{
			Region: a.Config.Cluster.Region, Platform: a.Config.Cluster.Platform, RuntimeClass: a.Config.RuntimeClass, StorageClass: a.Config.StorageClassName,
			Registry: render.Registry{URL: a.Config.Registry.URL, Username: a.Config.Registry.Username, Password: a.Config.Registry.Password.Reveal()},
		},
		parts: map[render.Component]*part{}, replicas: map[stream.Collection]*statesync.Replica{}, outage: map[stream.Collection]*atomic.Bool{},
	}
	r.Periods = a.Periods.complete()
	r.alarms = newAlarms(m.held)
	r.asks = &breaker.Set{OnChange: m.breaker, Pause: r.Periods.Pause, Failed: breaker.Unreachable}
	if r.client == nil {
		r.client = control.New(a.Config)
	}
	if r.Vault == nil {
		r.Vault = newVault(a.Config.Vault)
	}
	access := rest.CopyConfig(a.Kubernetes)
	access.UserAgent = "krane"
	access.QPS, access.Burst = float32(a.Config.Kubernetes.QPS), a.Config.Kubernetes.Burst
	if access.QPS == 0 {
		access.QPS = -1 // the server's fairness decides
	}
	access.Wrap(r.budget.Wrap)
	metadata, err := clientmetadata.NewForConfig(access)
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	r.addParts(metadata, client.Discovery())
	r.addReporter(client)
	r.addReplicas()
	r.addLoops()
	return r, nil
}

func newVault(c config.Vault) vault.Decrypter {
	switch {
	case c.URL != nil:
		return vault.NewService(c.URL, c.Token.Reveal())
	case c.KeyFile != "":
		return &vault.KeyFile{Path: c.KeyFile}
	default:
		return vault.None{}
	}
}

func (r *run) add(name string, s reconcile.Starter) {
	r.members = append(r.members, reconcile.Member{Name: name, Starter: s})
}

// components are all that the agent applies.
func components() []render.Component {
	return []render.Component{render.Namespace, render.Account, render.Deployment, render.Sentinel, render.Policy}
}

func (r *run) addParts(client clientmetadata.Interface, known apply.Discovery) {
	// The kinds are known beforehand, so no discovery is needed.
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.AddSpecific(schema.GroupVersionKind{Group: "cilium.io", Version: "v2", Kind: "CiliumNetworkPolicy"},
		schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "ciliumnetworkpolicies"},
		schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "ciliumnetworkpolicy"}, meta.RESTScopeNamespace)
	for _, c := range components() {
		for _, kind := range render.Kinds(c) {
			switch kind.Kind {
			case "CiliumNetworkPolicy":
			case "Namespace":
				mapper.Add(kind, meta.RESTScopeRoot)
			default:
				mapper.Add(kind, meta.RESTScopeNamespace)
			}
		}
	}
	for _, c := range components() {
		owner := render.Owner(c, r.cell.Region)
		live := &apply.Live{
			Client: client, Mapper: mapper, Owner: owner, Kinds: render.Kinds(c), Logger: r.Logger,
			OnDrift: func(o apply.Observed) { r.drifted(c, o.ID) },
		}
		applier := &apply.Applier{Live: live, Discovery: known, Concurrency: 16}
		switch c {
		case render.Namespace:
			applier.Adoption = apply.SkipForeign
		case render.Account:
			applier.Adoption = apply.AdoptForeign
		default:
		}
		p := &part{component: c, owner: owner, live: live, applier: applier}
		r.parts[c] = p
		r.add("live "+string(c), live)
	}
}

func (r *run) addReporter(client kubernetes.Interface) {
	r.reporter = &reporter{
		client: r.client, breakers: &breaker.Set{OnChange: r.metrics.breaker, Pause: r.Periods.Pause}, metrics: r.metrics, logger: r.Logger, book: r.book,
		session: uint64(time.Now().UnixNano()), //nolint:gosec // after 1970
		observed: func(collection string) uint64 {
			return r.replicas[stream.Collection(collection)].Status().Applied.Version
		},
	}
	r.reporter.init()
	r.reporter.observer = newObserver(client, r.cell.Region, r.metrics, r.Logger, r.reporter.changed)
	r.add("observer", r.reporter.observer)
	r.add("reports", r.reporter.queue)
	r.add("report loop", &reconcile.Loop{Name: "reports", Reconciler: r.reporter, Interval: r.Periods.Report, Jitter: 0.1, Logger: r.Logger})
	r.add("heartbeat", &reconcile.Loop{
		Name: "heartbeat", Interval: r.Periods.Heartbeat, Logger: r.Logger,
		Backoff: reconcile.Backoff{Min: min(time.Second, r.Periods.Heartbeat), Max: r.Periods.Heartbeat, Jitter: 0.5},
		Reconciler: &heartbeater{
			reporter: r.reporter, region: r.cell.Region, platform: r.cell.Platform, interval: r.Periods.Heartbeat,
			acknowledged: r.acknowledged,
			reconnect: func() {
				for _, replica := range r.replicas {
					replica.Reconnect()
				}
			},
		},
	})
}

// acknowledged returns how far all streams are, if they speak of one epoch. The mark
// is that of the stream that is behind.
func (r *run) acknowledged() statesync.Cursor {
	at := statesync.Cursor{Version: math.MaxUint64}
	for _, replica := range r.replicas {
		applied := replica.Status().Applied
		if applied.Epoch == "" || at.Epoch != "" && at.Epoch != applied.Epoch {
			return statesync.Cursor{}
		}
		if applied.Version < at.Version {
			at = applied
		}
	}
	return at
}

func (r *run) addReplicas() {
	for _, res := range resources() {
		name := string(res.collection)
		r.outage[res.collection] = &atomic.Bool{}
		source := &heard{}
		source.Source = &stream.Source{
			Client: r.client, Collection: res.collection, Silence: r.Periods.Silence, Patience: r.Periods.Patience, Logger: r.Logger,
			OnMessage: func(version uint64) {
				source.message = true
				r.alarms.set(name, "")
				r.metrics.events.WithLabelValues(name).Inc()
				if version > 0 {
					r.metrics.lastSeen.WithLabelValues(name).Set(float64(version))
				}
			},
		}
		var epoch string
		replica := &statesync.Replica{
			Source: source, Scope: r.cell.Region, Collections: []string{name}, Handle: r.handle, Workers: 16, Retry: r.Periods.Retry, Relist: r.Periods.Relist, Logger: r.Logger,
			OnSynced: func(s statesync.Snapshot) {
				r.metrics.fullSyncs.WithLabelValues(name).Inc()
				r.metrics.connections.WithLabelValues(name, "synced").Inc()
				r.metrics.fullSync.WithLabelValues(name).Observe(time.Since(source.opened).Seconds())
				if epoch != "" && epoch != s.Cursor.Epoch {
					// The database is another, and what was reported may not be in it.
					r.reporter.again(res.collection)
				}
				epoch = s.Cursor.Epoch
				r.book.forget(name, s.Items)
				r.sweep.Trigger()
			},
			OnStream: func(s statesync.Stream) { r.ended(name, s.Err, source.message) },
			OnHandled: func(p reconcile.KeyPass[statesync.Key]) {
				if p.Parked && errors.Is(p.Err, errVault) {
					r.outage[res.collection].Store(true)
				}
			},
		}
		r.replicas[res.collection] = replica
		r.add("replica "+name, r.settled(replica))
	}
}

// settled starts s once what is in the cluster is known, or takes long.
func (r *run) settled(s reconcile.Starter) reconcile.Starter {
	return reconcile.StarterFunc(func(ctx context.Context) error {
		wait, cancel := context.WithTimeout(ctx, r.Periods.Settle)
		for _, c := range components() {
			if err := r.parts[c].live.WaitSynced(wait); err != nil && ctx.Err() == nil {
				r.Logger.WarnContext(ctx, "a part of the cluster is not known yet", slog.Any("error", err))
			}
		}
		cancel()
		return s.Start(ctx)
	})
}

func (r *run) addLoops() {
	retry := reconcile.Backoff{Min: time.Second, Max: time.Minute, Jitter: 0.5}
	r.repairs = &reconcile.Queue[statesync.Key]{Name: "repairs", Reconcile: r.repair, Workers: 8, Backoff: retry, Logger: r.Logger}
	r.queries = &reconcile.Queue[statesync.Key]{Name: "queries", Reconcile: r.query, Workers: 4, Logger: r.Logger}
	r.sweep = &reconcile.Loop{Name: "strays", Reconciler: newSweeper(r), Interval: r.Periods.Resync, Jitter: 0.1, Logger: r.Logger}
	r.add("repairs", r.settled(r.repairs))
	r.add("queries", r.settled(r.queries))
	r.add("strays", r.sweep)
	r.add("resync", r.settled(&reconcile.Loop{Name: "resync", Reconciler: reconcile.Func(r.resync), Interval: r.Periods.Resync, Jitter: 0.1, Logger: r.Logger}))
	r.add("namespaces", &reconcile.Loop{
		Name: "namespaces", Interval: min(r.Periods.Resync, r.Periods.Namespace), Jitter: 0.1, Logger: r.Logger,
		Reconciler: &tidier{run: r, after: r.Periods.Namespace, empty: map[string]time.Time{}},
	})
	r.add("gauges", &reconcile.Loop{Name: "gauges", Interval: min(15*time.Second, r.Periods.Report), Reconciler: reconcile.Func(func(context.Context) (reconcile.Result, error) {
		r.gauges()
		return reconcile.Result{}, nil
	})})
}

// ended counts a stream, on which a message came or none.
func (r *run) ended(collection string, err error, message bool) {
	status := "ended"
	switch {
	case errors.Is(err, statesync.ErrUnauthenticated):
		status = "unauthenticated"
	case errors.Is(err, statesync.ErrUnknownScope):
		status = unknownRegion
		r.alarms.set(collection, status)
	case errors.Is(err, stream.ErrClaimed):
		status = regionClaimed
		r.alarms.set(collection, status)
	case errors.Is(err, statesync.ErrResync):
		status = "resync"
	case !message:
		status = "failed"
	}
	r.metrics.connections.WithLabelValues(collection, status).Inc()
}

func (r *run) gauges() {
	for _, res := range resources() {
		s := r.replicas[res.collection].Status()
		name := string(res.collection)
		r.metrics.parked.WithLabelValues(name).Set(float64(s.Parked))
		r.metrics.lag.WithLabelValues(name).Set(float64(s.Head - min(s.Head, s.Applied.Version)))
	}
}

// start runs everything until ctx ends.
func (r *run) start(ctx context.Context) error {
	group := reconcile.Group{StopTimeout: stopTimeout, Members: r.members}
	return group.Start(ctx)
}

// ready returns nil once the cluster is known and each list was proven once.
func (r *run) ready() error {
	for _, c := range components() {
		if err := r.parts[c].synced(); err != nil {
			return fmt.Errorf("the cluster is not known yet: %w", err)
		}
	}
	for _, res := range resources() {
		if r.replicas[res.collection].Status().Cursor.Epoch == "" {
			return fmt.Errorf("no list of %s yet", res.collection)
		}
	}
	return nil
}
