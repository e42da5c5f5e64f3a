// Command embed is the operator of examples/operator inside a Manager of
// sigs.k8s.io/controller-runtime. The Manager has the WebApps, the election, the Events and the
// metrics; it caches no children. It takes over from examples/internal/createorupdate.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/seed-9e1ffd66/trueup/examples/internal/webapp"
	"github.com/seed-9e1ffd66/trueup/reconcile/controllerruntime"
	"github.com/seed-9e1ffd66/trueup/reconcile/operator"
)

func main() {
	// controller-runtime has added --kubeconfig to these flags.
	namespace := flag.String("namespace", "webapp-embed", "namespace of the Lease")
	flag.Parse()
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)))
	config, err := ctrl.GetConfig()
	if err == nil {
		err = start(ctrl.SetupSignalHandler(), config, ctrl.Options{
			LeaderElection: true, LeaderElectionID: "webapp-embed", LeaderElectionNamespace: *namespace, LeaderElectionReleaseOnCancel: true,
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "embed:", err)
		os.Exit(1)
	}
}

// start runs a Manager with the operator.
func start(ctx context.Context, config *rest.Config, options ctrl.Options) error {
	options.Scheme, options.Metrics = runtime.NewScheme(), server.Options{BindAddress: "0"}
	if err := webapp.AddToScheme(options.Scheme); err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		return err
	}
	err = controllerruntime.Add(mgr, &operator.Operator[*webapp.WebApp]{
		Name: "webapp-embed", Domain: "example.com", Supersedes: []string{"createorupdate"},
		Owns: []schema.GroupVersionKind{
			{Group: "apps", Version: "v1", Kind: "Deployment"}, {Version: "v1", Kind: "Service"}, {Version: "v1", Kind: "ConfigMap"},
		},
		Children: func(_ context.Context, app *webapp.WebApp) ([]operator.Object, error) {
			return operator.Objects(webapp.Children(app)...), nil
		},
		Conditions: func(app *webapp.WebApp) *[]metav1.Condition { return &app.Status.Conditions },
	})
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}
