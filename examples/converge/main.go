// Command converge makes the YAML files of a folder true in a cluster, keeps it
// so, and deletes what it has made and the folder no longer holds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

func main() {
	c := converge{logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	flag.StringVar(&c.folder, "folder", ".", "folder with *.yaml files")
	flag.StringVar(&c.name, "name", "converge", "name of this set of objects")
	flag.StringVar(&c.namespace, "namespace", "default", "namespace of the ConfigMaps that remember the kinds of the set and its deletions")
	flag.IntVar(&c.guard.Absent.Count, "max-deletions", 5, "max objects that may be deleted in an hour, or -1 for none; or else, if more,")
	flag.IntVar(&c.guard.Absent.Percent, "max-percent", 10, "max percent of its objects that may be deleted in an hour")
	flag.StringVar(&c.approved, "approve", "", "digest of held deletions, as it was logged: exactly these are deleted")
	flag.DurationVar(&c.interval, "interval", 30*time.Second, "time between two looks at the folder")
	flag.Parse()
	if c.guard.Absent == (apply.Limit{}) {
		c.guard.Absent.Count = -1 // the zero Limit would mean the default
	}
	group, err := c.group(ctrl.GetConfigOrDie())
	if err == nil {
		err = group.Start(ctrl.SetupSignalHandler())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "converge:", err)
		os.Exit(1)
	}
}

type converge struct {
	folder, name, namespace string
	guard                   apply.Guard
	approved                string
	interval                time.Duration
	logger                  *slog.Logger
	applier                 apply.Applier
}

func (c *converge) group(config *rest.Config) (*reconcile.Group, error) {
	web, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	mapper, unmapped := apiutil.NewDynamicRESTMapper(config, web)
	client, unmade := metadata.NewForConfigAndClient(config, web)
	objects, failed := dynamic.NewForConfigAndClient(config, web)
	known, unknown := discovery.NewDiscoveryClientForConfigAndClient(config, web)
	loop := &reconcile.Loop{
		Name:       "converge",
		Reconciler: c,
		Interval:   c.interval,
		Timeout:    time.Minute,
		Backoff:    reconcile.Backoff{Jitter: 0.2},
		Logger:     c.logger,
	}
	live := &apply.Live{
		Client: client, Mapper: mapper, Discovery: known, Logger: c.logger, OnDrift: func(apply.Observed) { loop.Trigger() },
		Owner: apply.Owner{
			Manager: "converge", Labels: map[string]string{"converge.example.com/set": c.name}, Domain: "converge.example.com",
			ApplySet: apply.ID{Kind: "ConfigMap", Namespace: c.namespace, Name: "converge-" + c.name}, // so that kinds come and go
		},
	}
	c.applier.Live = live
	c.guard.Memory = &apply.ConfigMapMemory{Client: objects, Namespace: c.namespace, Name: "converge-" + c.name + "-deletions"}
	members := []reconcile.Member{{Name: "live", Starter: live}, {Name: "loop", Starter: loop}}
	return &reconcile.Group{Members: members}, errors.Join(unmapped, unmade, failed, unknown)
}

// Reconcile does one pass. A folder that was not read whole applies and deletes
// nothing; one with an object that is invalid applies the others.
func (c *converge) Reconcile(ctx context.Context) (reconcile.Result, error) {
	objects, err := read(c.folder)
	if err = errors.Join(err, c.applier.Live.WaitSynced(ctx)); err != nil {
		return reconcile.Result{}, err
	}
	set, invalid := apply.NewSet(c.applier.Live.Owner, objects, apply.SetOptions{})
	if set == nil {
		return reconcile.Result{}, invalid
	}
	applied, failed := c.applier.Apply(ctx, set)
	pruned, kept := c.applier.Prune(ctx, set, apply.PruneOptions{Complete: invalid == nil, Guard: &c.guard, Approved: c.approved})
	for _, unit := range pruned.Held.Units {
		c.logger.WarnContext(
			ctx, "deletion held", slog.String("unit", unit.Unit), slog.String("reason", unit.Reason), slog.String("digest", pruned.Held.Digest),
		)
	}
	for _, r := range append(applied.Results, pruned.Results...) {
		c.logger.InfoContext(ctx, "object", slog.String("id", r.ID.String()), slog.String("action", string(r.Action)))
	}
	return reconcile.Result{}, errors.Join(invalid, failed, kept)
}

func read(folder string) (objects []*unstructured.Unstructured, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	for _, file := range files {
		data, unread := os.ReadFile(file)
		err = errors.Join(err, unread)
		for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(string(data)), 4096); ; {
			object := &unstructured.Unstructured{}
			wrong := decoder.Decode(&object.Object)
			if wrong == nil && object.Object != nil {
				objects = append(objects, object)
			}
			if wrong != nil {
				if !errors.Is(wrong, io.EOF) {
					err = errors.Join(err, fmt.Errorf("%s: %w", file, wrong))
				}
				break
			}
		}
	}
	return objects, err
}
