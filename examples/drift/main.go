// Command drift reports which of the objects that a field manager has applied to a
// namespace were touched by others since, and by whom. What was applied is read
// from a YAML file; of the cluster, metadata only is read, and nothing written.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seed-9e1ffd66/trueup/diff"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

func main() {
	var d drift
	flag.StringVar(&d.file, "file", "desired.yaml", "YAML file with the objects as they were applied")
	flag.StringVar(&d.namespace, "namespace", "default", "namespace to look at")
	flag.StringVar(&d.manager, "manager", "kubectl", "field manager that applied them")
	interval := flag.Duration("interval", time.Minute, "time between two looks")
	flag.Parse()
	cluster, err := client.New(ctrl.GetConfigOrDie(), client.Options{})
	if err == nil {
		d.reader, d.out, d.untouched = cluster, os.Stdout, map[string]diff.Sum{}
		err = (&reconcile.Loop{Reconciler: &d, Interval: *interval, OnPass: func(pass reconcile.Pass) {
			if pass.Err != nil {
				fmt.Fprintln(os.Stderr, "drift:", pass.Err)
			}
		}}).Start(ctrl.SetupSignalHandler())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "drift:", err)
		os.Exit(1)
	}
}

type drift struct {
	file, namespace, manager string

	reader    client.Reader
	out       io.Writer
	untouched map[string]diff.Sum // digests of untouched objects
}

// Reconcile looks at every object once.
func (d *drift) Reconcile(ctx context.Context) (reconcile.Result, error) {
	in, err := os.Open(d.file)
	if err != nil {
		return reconcile.Result{}, err
	}
	defer in.Close() //nolint:errcheck // it was only read
	var failed error
	for decoder := yaml.NewYAMLOrJSONDecoder(in, 4096); ; {
		var object unstructured.Unstructured
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return reconcile.Result{}, failed
		} else if err != nil {
			return reconcile.Result{}, err
		}
		if object.GetNamespace() == d.namespace {
			verdict, err := d.look(ctx, &object)
			failed = errors.Join(failed, err)
			if verdict != "" {
				fmt.Fprintf(d.out, "%s/%s %s\n", object.GetKind(), object.GetName(), verdict) //nolint:errcheck // a terminal
			}
		}
	}
}

// look compares what the manager owns with what the desired object states. As
// long as the digest equals an untouched object's, there is nothing to report.
func (d *drift) look(ctx context.Context, desired *unstructured.Unstructured) (string, error) {
	var live metav1.PartialObjectMetadata
	live.SetGroupVersionKind(desired.GroupVersionKind())
	if err := d.reader.Get(ctx, client.ObjectKeyFromObject(desired), &live); apierrors.IsNotFound(err) {
		return "was deleted", nil
	} else if err != nil {
		return "", err
	}
	digest, applied := diff.Digest(&live, d.manager)
	if !applied {
		return fmt.Sprintf("holds nothing that %s applied; others: %s", d.manager, d.others(&live)), nil
	}
	if d.untouched[string(live.UID)] == digest {
		return "", nil
	}
	owned, err := diff.Owned(diff.Entry(live.ManagedFields, d.manager))
	if err != nil || !diff.Covers(owned, desired.Object) {
		return "was touched; others: " + d.others(&live), err
	}
	d.untouched[string(live.UID)] = digest
	return "is as applied", nil
}

// others names the other managers of the object, each with its last write.
func (d *drift) others(live *metav1.PartialObjectMetadata) (list string) {
	for _, entry := range live.ManagedFields {
		if entry.Manager != d.manager && entry.Time != nil {
			list += fmt.Sprintf("%s (%s) ", entry.Manager, entry.Time.UTC().Format(time.RFC3339))
		}
	}
	return list
}
