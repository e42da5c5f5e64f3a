// Command embed is a program on sigs.k8s.io/controller-runtime that keeps the
// ConfigMaps of a YAML file in the manager's cluster. It shows that the loops of
// trueup run under a manager as they are: Start(ctx) error is all that the two
// know of each other.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

func main() {
	// controller-runtime has added --kubeconfig to these flags.
	file := flag.String("file", "configmaps.yaml", "YAML file with the ConfigMaps; replace it with a rename, never in place")
	name := flag.String("name", "embed", "name of this set of ConfigMaps; what carries it and is not in the file is deleted")
	interval := flag.Duration("interval", 10*time.Second, "time between two looks at the file")
	flag.Parse()
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctrl.SetLogger(logr.FromSlogHandler(logger.Handler()))
	if err := start(ctrl.SetupSignalHandler(), *file, *name, *interval, logger); err != nil {
		fmt.Fprintln(os.Stderr, "embed:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, file, name string, interval time.Duration, logger *slog.Logger) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	mgr, err := newManager(config, file, name, interval, logger)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// newManager makes a manager and adds a live view and a loop to it.
func newManager(config *rest.Config, file, name string, interval time.Duration, logger *slog.Logger) (manager.Manager, error) {
	mgr, err := ctrl.NewManager(config, ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return nil, err
	}
	client, err := metadata.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	live := &apply.Live{
		Client: client,
		Mapper: mgr.GetRESTMapper(),
		Owner:  apply.Owner{Manager: "embed", Labels: map[string]string{"embed.example.com/set": name}, Domain: "embed.example.com"},
		Kinds:  []schema.GroupVersionKind{{Version: "v1", Kind: "ConfigMap"}},
		Logger: logger,
	}
	loop := &reconcile.Loop{
		Name:       "configmaps",
		Reconciler: &keeper{file: file, applier: &apply.Applier{Live: live}, logger: logger},
		Interval:   interval,
		Timeout:    time.Minute,
		Logger:     logger,
	}
	live.OnDrift = func(apply.Observed) { loop.Trigger() }
	return mgr, errors.Join(mgr.Add(live), mgr.Add(loop))
}

// keeper makes the cluster hold what the file says.
type keeper struct {
	file    string
	applier *apply.Applier
	logger  *slog.Logger
}

// Reconcile does one pass.
func (k *keeper) Reconcile(ctx context.Context) (reconcile.Result, error) {
	if err := k.applier.Live.WaitSynced(ctx); err != nil {
		return reconcile.Result{}, err
	}
	objects, err := read(k.file)
	if err != nil {
		return reconcile.Result{}, err // a file that was not read whole changes nothing
	}
	set, invalid := apply.NewSet(k.applier.Live.Owner, objects, apply.SetOptions{})
	if set == nil {
		return reconcile.Result{}, invalid
	}
	applied, failed := k.applier.Apply(ctx, set)
	pruned, kept := k.applier.Prune(ctx, set, apply.PruneOptions{Complete: invalid == nil})
	for _, r := range append(applied.Results, pruned.Results...) {
		k.logger.InfoContext(ctx, "object", slog.String("id", r.ID.String()), slog.String("action", string(r.Action)))
	}
	return reconcile.Result{}, errors.Join(invalid, failed, kept)
}

// read returns the ConfigMaps of a file, or an error if it holds anything else.
func read(file string) ([]*unstructured.Unstructured, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer in.Close() //nolint:errcheck // it was only read
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(in, 4096); ; {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		switch kind := object.GroupVersionKind(); {
		case object.Object == nil: // an empty document
		case kind != schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}:
			return nil, fmt.Errorf("%s: holds a %s; want ConfigMaps only", file, kind)
		default:
			objects = append(objects, object)
		}
	}
}
