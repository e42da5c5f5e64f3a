// Command cmd is the manager of Sites.
package main

import (
	"flag"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	webv1 "github.com/seed-9e1ffd66/trueup/examples/kubebuilder/api/v1"
	"github.com/seed-9e1ffd66/trueup/examples/kubebuilder/internal/controller"
)

var scheme = runtime.NewScheme()

func init() {
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(webv1.AddToScheme(scheme))
}

func main() {
	metrics := flag.String("metrics-bind-address", "0", "address of the metrics; 0 for none")
	probes := flag.String("health-probe-bind-address", ":8081", "address of /healthz and /readyz")
	elect := flag.Bool("leader-elect", false, "work only while elected")
	flag.Parse()
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)))
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: *metrics}, HealthProbeBindAddress: *probes,
		LeaderElection: *elect, LeaderElectionID: "sites.web.example.com",
	})
	if err != nil {
		fail(err, "manager not made")
	}
	if err := controller.SetupWithManager(mgr); err != nil {
		fail(err, "controller not made")
	}
	if err := mgr.AddHealthzCheck("healthz", healthz.Ping); err != nil {
		fail(err, "health check not made")
	}
	if err := mgr.AddReadyzCheck("readyz", healthz.Ping); err != nil {
		fail(err, "ready check not made")
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		fail(err, "manager failed")
	}
}

func fail(err error, what string) {
	ctrl.Log.Error(err, what)
	os.Exit(1)
}
