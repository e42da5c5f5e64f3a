// Command embed is the operator of examples/operator inside a Manager of
// sigs.k8s.io/controller-runtime. The Manager has the WebApps, their queue and the
// election; it caches no children. One live view of them is a Runnable of the
// Manager, and wakes the WebApp of each child that has changed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/examples/internal/webapp"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

func main() {
	// controller-runtime has added --kubeconfig to these flags.
	namespace := flag.String("namespace", "webapp-embed", "namespace of the Lease")
	flag.Parse()
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctrl.SetLogger(logr.FromSlogHandler(logger.Handler()))
	if err := start(ctrl.SetupSignalHandler(), *namespace, logger); err != nil {
		fmt.Fprintln(os.Stderr, "embed:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, namespace string, logger *slog.Logger) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.QPS = -1 // the server has a limit of its own
	mgr, err := newManager(ctx, config, namespace, logger)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// newManager makes a manager with the live view and the controller.
func newManager(ctx context.Context, config *rest.Config, namespace string, logger *slog.Logger) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	if err := webapp.AddToScheme(scheme); err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionID: "webapp-embed", LeaderElectionNamespace: namespace, LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return nil, err
	}
	objects, failed := dynamic.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	metadataClient, err := metadata.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err = errors.Join(failed, err); err != nil {
		return nil, err
	}
	r, resource := &reconciler{parents: mgr.GetClient()}, webapp.Version().WithResource("webapps")
	r.finalizer = kube.Finalizer{Client: objects, Resource: resource, Name: "example.com/children"}
	r.status = kube.Status[*webapp.WebApp]{Client: objects, Resource: resource}
	live := &apply.Live{
		Client:   metadataClient,
		Mapper:   mgr.GetRESTMapper(),
		OnChange: r.wake,
		OnDrift:  r.wake,
		Logger:   logger,
		Owner: apply.Owner{
			Manager: "webapp-embed", Domain: "example.com", PartLabel: "example.com/webapp",
			Labels: map[string]string{"app.kubernetes.io/managed-by": "webapp-embed"},
		},
		Kinds: []schema.GroupVersionKind{
			{Group: "apps", Version: "v1", Kind: "Deployment"},
			{Version: "v1", Kind: "Service"},
			{Version: "v1", Kind: "ConfigMap"},
		},
	}
	r.applier = apply.Applier{Live: live, Objects: objects}
	// A child names its parent by UID; a request names it by namespace and name.
	uidOf := func(o client.Object) []string { return []string{string(o.GetUID())} }
	if err := mgr.GetFieldIndexer().IndexField(ctx, &webapp.WebApp{}, byUID, uidOf); err != nil {
		return nil, err
	}
	err = ctrl.NewControllerManagedBy(mgr).
		For(&webapp.WebApp{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Func(r.woken)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 8}).
		Complete(r)
	return mgr, errors.Join(err, mgr.Add(live))
}

// reconciler makes the children of all WebApps. Those of one WebApp are a part of what
// it owns, and carry its UID as a label.
type reconciler struct {
	parents   client.Reader
	applier   apply.Applier
	finalizer kube.Finalizer
	status    kube.Status[*webapp.WebApp]
	queue     atomic.Pointer[queue]
}

// queue holds the WebApps that are due for a pass.
type queue struct {
	workqueue.TypedRateLimitingInterface[ctrl.Request]
}

// woken is a source of the controller, which begins when its queue does. What has
// changed before needs none: the first pass for each WebApp is yet to come.
func (r *reconciler) woken(_ context.Context, requests workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
	r.queue.Store(&queue{requests})
	return nil
}

// byUID is the index of WebApps by UID.
const byUID = "metadata.uid"

// wake starts a pass for the WebApp that is the controller of a child, whatever the name of
// the child. It reads the cache of the Manager.
func (r *reconciler) wake(child apply.Observed) {
	due, parents := r.queue.Load(), webapp.List{}
	if due == nil {
		return // the first pass for each WebApp is yet to come
	}
	of := client.MatchingFields{byUID: string(child.Controller)}
	if err := r.parents.List(context.Background(), &parents, client.InNamespace(child.ID.Namespace), of); err != nil {
		return // the cache has not begun, and neither has the first pass
	}
	for i := range parents.Items {
		due.Add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&parents.Items[i])})
	}
}

// Reconcile does one pass for one WebApp.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	app := &webapp.WebApp{}
	if err := r.parents.Get(ctx, request.NamespacedName, app); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // its children went before the finalizer
	}
	owner, part := r.applier.Live.Owner, apply.SetOptions{Part: string(app.UID)}
	alive, result, err := r.finalizer.Finalize(ctx, app, func(ctx context.Context) (gone bool, err error) {
		left, err := r.applier.DeletePart(ctx, part.Part, apply.DeleteOptions{})
		return left.Remaining == 0, err
	})
	if !alive || err != nil {
		return ctrl.Result{RequeueAfter: result.RequeueAfter}, err
	}
	set, invalid := apply.NewSet(owner, webapp.Children(app), part)
	report, failed := r.applier.Apply(ctx, set)
	_, kept := r.applier.Prune(ctx, set, apply.PruneOptions{Complete: invalid == nil})
	ready, unread := r.applier.Readiness(ctx, set)
	err = errors.Join(invalid, failed, kept, unread)
	state, reason, message := webapp.Progress(report, ready, err)
	return ctrl.Result{}, errors.Join(err, r.status.Update(ctx, app, func(app *webapp.WebApp) {
		kube.SetState(&app.Status.Conditions, state, reason, message)
	}))
}
