package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	clientmetadata "k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/buffers"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/pools"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/internal/kubewatch"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// The resources that are watched.
var (
	nodesResource      = corev1.SchemeGroupVersion.WithResource("nodes")        //nolint:gochecknoglobals // constant
	podsResource       = corev1.SchemeGroupVersion.WithResource("pods")         //nolint:gochecknoglobals // constant
	namespacesResource = corev1.SchemeGroupVersion.WithResource("namespaces")   //nolint:gochecknoglobals // constant
	daemonsResource    = appsv1.SchemeGroupVersion.WithResource("daemonsets")   //nolint:gochecknoglobals // constant
	poolsResource      = v1alpha1.GroupVersion().WithResource("nodepools")      //nolint:gochecknoglobals // constant
	classesResource    = v1alpha1.GroupVersion().WithResource("awsnodeclasses") //nolint:gochecknoglobals // constant
)

// bufferStrategy is the provisioningStrategy of the CapacityBuffers that are served.
const bufferStrategy = "buffer.stratos.sh/standby-capacity"

// How many objects of a kind are worked on at a time. Nodes have the most workers: a machine
// that has started waits for its Node's pass before pods may come to it.
const (
	poolWorkers  = 8
	nodeWorkers  = 16
	classWorkers = 4
	podWorkers   = 4
)

// operator is the work of the process while it holds the Lease. Each term of the lease has a
// new one, with empty memory.
//
// Pools, classes, Nodes and pods each have a controller with its own workers, and demand has a
// loop, so that a slow call for one of them delays no start of a machine.
type operator struct {
	config Operator

	client  dynamic.Interface
	logger  *slog.Logger
	dry     bool // nothing is written
	now     func() time.Time
	version func(ctx context.Context) (*apiversion.Info, error)
	// transitionAge is how old a list of the cloud may be while machines change state.
	transitionAge time.Duration
	cluster       *nodes.Cluster
	demand        *pools.ScaleUp
	announced     pools.Announced
	buffers       *buffers.Controller
	events        *recorder
	metrics       *metrics
	clouds        *clouds

	pools       kube.Controller[*v1alpha1.NodePool]
	classOf     kube.Controller[*v1alpha1.AWSNodeClass]
	nodes       kube.Controller[*corev1.Node]
	pods        kube.Controller[*corev1.Pod]
	daemons     kube.Controller[*appsv1.DaemonSet]
	namespaces  kube.Controller[*corev1.Namespace]
	storage     storage
	budgets     kube.Controller[*policyv1.PodDisruptionBudget]
	finalize    kube.Finalizer
	keepClass   kube.Finalizer
	keepProfile kube.Finalizer
	status      kube.Status[*v1alpha1.NodePool]
	classStatus kube.Status[*v1alpha1.AWSNodeClass]

	mu sync.Mutex // of the maps below; never held during a call
	// states has the last published state of each pool, by name.
	states   map[string]*poolState
	memories map[types.UID]*poolMemory
	// resolved is until when the resolution of a version of a class is valid.
	resolved map[resolved]time.Time
}

func newOperator(config *rest.Config, o Operator, registry prometheus.Registerer) (*operator, error) {
	client, failed := kubewatch.Dynamic(config, nil)
	metadata, err := clientmetadata.NewForConfig(config)
	server, err2 := discovery.NewDiscoveryClientForConfig(config)
	if err = errors.Join(failed, err, err2); err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	w := &operator{
		config:        o,
		client:        client,
		logger:        o.Logger,
		now:           time.Now,
		transitionAge: o.transition(),
		states:        map[string]*poolState{},
		memories:      map[types.UID]*poolMemory{},
		resolved:      map[resolved]time.Time{},
		version:       func(context.Context) (*apiversion.Info, error) { return server.ServerVersion() },
		events:        newRecorder(client, o.Instance, o.Logger),
		metrics:       newMetrics(registry),
	}
	if w.config.Platform.Machine == nil {
		w.config.Platform = awsPlatform()
	}
	w.cluster = nodes.New(v1alpha1.Group, w.config.Platform, w.changed)
	w.demand = w.newDemand()
	scope := cloud.Scope{Domain: v1alpha1.Group, Cluster: o.ClusterName}
	w.clouds = &clouds{homeRegion: o.Region, tags: scope.ClusterTags(), open: func(ctx context.Context, region string) (Region, error) {
		return o.OpenRegion(ctx, region, w.metrics.Called)
	}}

	w.pools.Client, w.pools.Metadata, w.pools.Logger, w.pools.Workers = client, metadata, o.Logger, poolWorkers
	w.pools.Kind, w.pools.IgnoreStatus, w.pools.Reconcile = kube.Kind{Resource: poolsResource}, true, w.reconcile
	w.pools.Backoff = reconcile.Backoff{Min: time.Second, Max: time.Minute, Jitter: 0.2, Seed: o.Instance}
	w.pools.References = func(p *v1alpha1.NodePool) []kube.Reference {
		return []kube.Reference{classReference(p.Spec.Template.NodeClassRef.Name)}
	}
	w.classOf.Client, w.classOf.Logger, w.classOf.Workers = client, o.Logger, classWorkers
	w.classOf.Kind, w.classOf.IgnoreStatus, w.classOf.Reconcile = kube.Kind{Resource: classesResource}, true, w.reconcileClass
	w.classOf.Backoff = w.pools.Backoff
	w.nodes.Client, w.nodes.Logger, w.nodes.Workers = client, o.Logger, nodeWorkers
	w.nodes.Kind, w.nodes.Reconcile = kube.Kind{Resource: nodesResource, Drop: "status.images"}, w.reconcileNode
	w.nodes.Backoff = w.pools.Backoff
	w.pods.Client, w.pods.Logger, w.pods.Workers = client, o.Logger, podWorkers
	w.pods.Kind, w.pods.Reconcile = kube.Kind{
		Resource: podsResource,
		Drop:     "status.containerStatuses,status.initContainerStatuses,status.ephemeralContainerStatuses",
	}, w.reconcilePod
	w.daemons.Client, w.daemons.Logger, w.daemons.IgnoreStatus = client, o.Logger, true
	w.daemons.Kind = kube.Kind{Resource: daemonsResource, Drop: "status"}
	w.daemons.Reconcile = func(_ context.Context, key types.NamespacedName, d *appsv1.DaemonSet) (reconcile.Result, error) {
		w.cluster.SawDaemonSet(key, d)
		return reconcile.Result{}, nil
	}
	w.namespaces.Client, w.namespaces.Logger, w.namespaces.Kind = client, o.Logger, kube.Kind{
		Resource: namespacesResource,
		Drop:     "spec,status",
	}
	w.namespaces.Reconcile = func(_ context.Context, key types.NamespacedName, n *corev1.Namespace) (reconcile.Result, error) {
		w.cluster.SawNamespace(key.Name, n)
		return reconcile.Result{}, nil
	}
	w.watchStorage()
	w.announced.Queue, w.announced.Cluster, w.announced.Logger = o.Notices, w.cluster, o.Logger
	w.announced.Look = func(pool string) { w.pools.Add(poolKey(pool)) }
	w.buffers = &buffers.Controller{
		Client: client, Strategy: bufferStrategy, ScaleUp: w.demand, Seen: w.looked, Events: w.events.writer, Logger: o.Logger,
		Backoff: w.pools.Backoff,
	}
	w.finalize = kube.Finalizer{
		Client:   client,
		Resource: poolsResource,
		Name:     v1alpha1.FinalizerNodePool,
		Poll:     2 * time.Second,
		OnWrite:  w.pools.Wrote,
	}
	w.keepClass = kube.Finalizer{
		Client:   client,
		Resource: classesResource,
		Name:     v1alpha1.FinalizerInUse,
		Poll:     afterCleanup,
		OnWrite:  w.classOf.Wrote,
	}
	w.keepProfile = kube.Finalizer{
		Client:   client,
		Resource: classesResource,
		Name:     v1alpha1.FinalizerInstanceProfile,
		Poll:     afterCleanup,
		OnWrite:  w.classOf.Wrote,
	}
	w.status = kube.Status[*v1alpha1.NodePool]{Client: client, Resource: poolsResource, OnWrite: w.pools.Wrote}
	w.classStatus = kube.Status[*v1alpha1.AWSNodeClass]{Client: client, Resource: classesResource, OnWrite: w.classOf.Wrote}
	return w, nil
}

// newDemand returns the loop that starts machines for pods.
func (o *operator) newDemand() *pools.ScaleUp {
	return &pools.ScaleUp{
		Cluster: o.cluster, Pools: o.startable, Look: func(pool string) { o.pools.Add(poolKey(pool)) },
		OnDecision: func(took time.Duration) { o.metrics.decided.Observe(took.Seconds()) },
		OnUnplaced: o.events.unplaced,
		Trace: pools.Trace{
			OnBound: func(pool string, took time.Duration) { o.metrics.scaleUp.WithLabelValues(pool).Observe(took.Seconds()) },
			OnStage: func(pool string, stage pools.Stage, took time.Duration) {
				o.metrics.scaleUpStage.WithLabelValues(pool, string(stage)).Observe(took.Seconds())
			},
		},
	}
}

func classReference(name string) kube.Reference {
	return kube.Reference{Resource: classesResource, Name: name}
}

// changed starts passes of the pools whose machines have changed. A machine without a pool
// may be one that has just joined: each pool that waits for one looks.
func (o *operator) changed(pools []string, demand bool) {
	for _, name := range pools {
		if name != "" {
			o.pools.Add(poolKey(name))
			continue
		}
		o.mu.Lock()
		for waiting, s := range o.states {
			if s.machines.Joining() {
				o.pools.Add(poolKey(waiting))
			}
		}
		o.mu.Unlock()
	}
	if demand {
		o.demand.Wake()
		o.buffers.Wake()
	}
}

// reconcilePod takes in a pod.
func (o *operator) reconcilePod(_ context.Context, key types.NamespacedName, p *corev1.Pod) (reconcile.Result, error) {
	was, v := o.cluster.SawPod(key, p)
	o.demand.Trace.SawPod(was, v)
	if v.Network && was.Ready.IsZero() != v.Ready.IsZero() {
		o.nodes.Add(poolKey(v.Node))
	}
	return reconcile.Result{}, nil
}

// Start works until ctx ends.
func (o *operator) Start(ctx context.Context) error {
	group := &reconcile.Group{Members: append(o.watches(), []reconcile.Member{
		{Name: "events", Starter: o.events.writer},
		{Name: "pools", Starter: reconcile.StarterFunc(func(ctx context.Context) error {
			// A pod that is not seen yet would be stopped with its machine.
			if err := o.settled(ctx); err != nil {
				return nil //nolint:nilerr // ctx has ended
			}
			return o.pools.Start(ctx)
		})},
		{Name: "demand", Starter: reconcile.StarterFunc(func(ctx context.Context) error {
			if err := o.settled(ctx); err != nil {
				return nil //nolint:nilerr // ctx has ended
			}
			return o.demand.Start(ctx)
		})},
	}...)}
	if o.config.Notices != nil {
		group.Members = append(group.Members, reconcile.Member{Name: "notices", Starter: reconcile.StarterFunc(func(ctx context.Context) error {
			if err := o.settled(ctx); err != nil {
				return nil //nolint:nilerr // ctx has ended
			}
			return o.announced.Start(ctx)
		})})
	}
	return group.Start(ctx)
}

// watches show what the cluster has.
func (o *operator) watches() []reconcile.Member {
	return []reconcile.Member{
		{Name: "namespaces", Starter: &o.namespaces},
		{Name: "daemon sets", Starter: &o.daemons},
		{Name: "nodes", Starter: &o.nodes},
		{Name: "pods", Starter: &o.pods},
		{Name: "classes", Starter: &o.classOf},
		{Name: "buffers", Starter: o.buffers},
		{Name: "claims", Starter: &o.storage.claims},
		{Name: "volumes", Starter: &o.storage.volumes},
		{Name: "storage classes", Starter: &o.storage.classes},
		{Name: "volume limits", Starter: &o.storage.limits},
		{Name: "storage", Starter: reconcile.StarterFunc(func(ctx context.Context) error {
			_ = o.storageSeen(ctx) // it fails when ctx ends
			return nil
		})},
		{Name: "disruption budgets", Starter: &o.budgets},
		{Name: "disruption budgets seen", Starter: reconcile.StarterFunc(func(ctx context.Context) error {
			_ = o.budgetsSeen(ctx) // the same
			return nil
		})},
	}
}

// settled waits until every Node and pod has been taken in.
func (o *operator) settled(ctx context.Context) error { return o.until(ctx, o.viewed) }

// until waits until there is no error.
func (o *operator) until(ctx context.Context, check func() error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if check() == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// viewed returns an error until all that is watched was listed and taken in.
func (o *operator) viewed() error {
	seenNodes, seenPods, seenSets, seenNamespaces := o.cluster.Seen()
	return taken(
		view{o.nodes.Synced, o.nodes.Keys, seenNodes}, view{o.pods.Synced, o.pods.Keys, seenPods},
		view{o.daemons.Synced, o.daemons.Keys, seenSets}, view{o.namespaces.Synced, o.namespaces.Keys, seenNamespaces},
		view{synced: o.classOf.Synced},
	)
}

// Synced reports whether all that passes read has been seen.
func (o *operator) Synced() (bool, error) {
	err := o.seen()
	return err == nil, err
}

// looked returns an error until every pool was looked at as well: what it has would be missing in a plan.
func (o *operator) looked() error {
	if err := o.seen(); err != nil {
		return err
	}
	all, _ := o.pools.List("") // without those that cannot be read, which have no passes
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range all {
		if m := o.memories[p.UID]; p.DeletionTimestamp == nil && (m == nil || !m.looked.Load()) {
			return fmt.Errorf("pool %s is not looked at yet", p.Name)
		}
	}
	return nil
}

// seen returns an error until all views are complete.
func (o *operator) seen() error {
	if err := o.viewed(); err != nil {
		return err
	}
	if ok, err := o.pools.Synced(); !ok {
		return errors.Join(errors.New("the pools are not seen yet"), err)
	}
	return nil
}
