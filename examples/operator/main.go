// Command operator is a whole operator. Each WebApp (examples/internal/webapp) has a
// Deployment, a Service and, if it has a configuration, a ConfigMap, which are
// created, repaired, pruned and deleted with it. At rest it sends nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/examples/internal/webapp"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "file with the access to the cluster; empty in a pod")
	namespace := flag.String("namespace", "webapp-operator", "namespace of the Lease")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err == nil {
		err = run(ctx, config, *namespace, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "operator:", err)
		os.Exit(1)
	}
}

// run works while this replica holds the Lease, and restarts when it takes it again.
func run(ctx context.Context, config *rest.Config, namespace string, logger *slog.Logger) error {
	config.QPS = -1 // the server has a limit of its own
	client, failed := dynamic.NewForConfig(config)
	metadataClient, err := metadata.NewForConfig(config)
	if err = errors.Join(failed, err); err != nil {
		return err
	}
	work := reconcile.StarterFunc(func(ctx context.Context) error { return newOperator(client, metadataClient, logger).Start(ctx) })
	return (&kube.Lease{Client: client, Namespace: namespace, Name: "webapp-operator", Starter: work, Logger: logger}).Start(ctx)
}

// operator makes the children of all WebApps. Those of one WebApp are a part of what
// it owns, and carry its UID as a label.
type operator struct {
	applier    apply.Applier
	controller kube.Controller[*webapp.WebApp]
	finalizer  kube.Finalizer
	status     kube.Status[*webapp.WebApp]
}

func newOperator(client dynamic.Interface, metadataClient metadata.Interface, logger *slog.Logger) *reconcile.Group {
	o, resource := &operator{}, webapp.Version().WithResource("webapps")
	o.controller.Client, o.controller.Kind.Resource, o.controller.Logger = client, resource, logger
	o.controller.Reconcile, o.controller.IgnoreStatus, o.controller.Workers = o.reconcile, true, 8
	o.finalizer = kube.Finalizer{Client: client, Resource: resource, Name: "example.com/children", OnWrite: o.controller.Wrote}
	o.status = kube.Status[*webapp.WebApp]{Client: client, Resource: resource, OnWrite: o.controller.Wrote}
	// One view of the children of all: what it shows starts a pass for their WebApp.
	wake := func(child apply.Observed) { o.controller.AddUID(child.Controller, types.UID(child.Part)) }
	mapper := meta.NewDefaultRESTMapper(nil)
	live := &apply.Live{Client: metadataClient, Mapper: mapper, OnChange: wake, OnDrift: wake, Logger: logger, Owner: apply.Owner{
		Manager: "webapp-operator", Domain: "example.com", PartLabel: "example.com/webapp",
		Labels: map[string]string{"app.kubernetes.io/managed-by": "webapp-operator"},
	}}
	for _, kind := range []schema.GroupVersionKind{{Group: "apps", Version: "v1", Kind: "Deployment"}, {Version: "v1", Kind: "Service"}, {Version: "v1", Kind: "ConfigMap"}} {
		mapper.Add(kind, meta.RESTScopeNamespace)
		live.Kinds = append(live.Kinds, kind)
	}
	o.applier.Live, o.applier.Objects, o.controller.Await = live, client, live.WaitSynced
	return &reconcile.Group{Members: []reconcile.Member{{Name: "live", Starter: live}, {Name: "controller", Starter: &o.controller}}}
}

// reconcile does one pass for one WebApp.
func (o *operator) reconcile(ctx context.Context, _ types.NamespacedName, app *webapp.WebApp) (reconcile.Result, error) {
	if app == nil {
		return reconcile.Result{}, nil // its children went before the finalizer
	}
	owner, part := o.applier.Live.Owner, apply.SetOptions{Part: string(app.UID)}
	alive, result, err := o.finalizer.Finalize(ctx, app, func(ctx context.Context) (gone bool, err error) {
		left, err := o.applier.DeletePart(ctx, part.Part, apply.DeleteOptions{})
		return left.Remaining == 0, err
	})
	if !alive || err != nil {
		return result, err
	}
	set, invalid := apply.NewSet(owner, webapp.Children(app), part)
	report, failed := o.applier.Apply(ctx, set)
	_, kept := o.applier.Prune(ctx, set, apply.PruneOptions{Complete: invalid == nil})
	ready, unread := o.applier.Readiness(ctx, set)
	err = errors.Join(invalid, failed, kept, unread)
	state, reason, message := webapp.Progress(report, ready, err)
	return result, errors.Join(err, o.status.Update(ctx, app, func(app *webapp.WebApp) {
		kube.SetState(&app.Status.Conditions, state, reason, message)
	}))
}
