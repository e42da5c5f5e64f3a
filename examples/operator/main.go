// Command operator is a whole operator. Each WebApp (examples/internal/webapp) has a
// Deployment, a Service and, if it has a configuration, a ConfigMap, which are
// created, repaired, pruned and deleted with it. At rest it sends nothing.
package main

import (
	"context"
	"flag"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/seed-9e1ffd66/trueup/examples/internal/webapp"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
	"github.com/seed-9e1ffd66/trueup/reconcile/operator"
	"github.com/seed-9e1ffd66/trueup/reconcile/operatormetrics"
)

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "file with the access to the cluster; empty in a pod")
	namespace := flag.String("namespace", "webapp-operator", "namespace of the Lease")
	health := flag.String("health-address", "0.0.0.0:8080", "host:port of /healthz, /readyz and /metrics; 0: none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err == nil {
		err = run(ctx, config, *namespace, *health, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	}
	stop()
	if err != nil {
		log.Fatalln("operator:", err)
	}
}

func run(ctx context.Context, config *rest.Config, namespace, health string, logger *slog.Logger) error {
	o := newOperator(logger)
	return (&operator.Process{
		Config: config, Resource: webapp.Version().WithResource("webapps"), Address: health, Logger: logger,
		Lease: &kube.Lease{Namespace: namespace, Name: "webapp-operator"}, Work: o.Work, Metrics: operatormetrics.New(o).Handler(),
	}).Start(ctx)
}

func newOperator(logger *slog.Logger) *operator.Operator[*webapp.WebApp] {
	return &operator.Operator[*webapp.WebApp]{
		Name: "webapp-operator", Domain: "example.com", Kind: webapp.Version().WithKind("WebApp"), Logger: logger,
		Owns: []schema.GroupVersionKind{
			{Group: "apps", Version: "v1", Kind: "Deployment"}, {Version: "v1", Kind: "Service"}, {Version: "v1", Kind: "ConfigMap"},
		},
		Children: func(_ context.Context, app *webapp.WebApp) ([]operator.Object, error) {
			return operator.Objects(webapp.Children(app)...), nil
		},
		Conditions: func(app *webapp.WebApp) *[]metav1.Condition { return &app.Status.Conditions },
	}
}
