// Command hello applies two ConfigMaps to the cluster of the current kubeconfig
// and prints what it did. Run it twice: the second run changes nothing.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/seed-9e1ffd66/trueup/apply"
)

func main() {
	flag.Parse() // --kubeconfig; by default KUBECONFIG or ~/.kube/config
	if err := run(ctrl.SetupSignalHandler(), ctrl.GetConfigOrDie(), greeting("hello"), greeting("welcome")); err != nil {
		fmt.Fprintln(os.Stderr, "hello:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, config *rest.Config, objects ...*unstructured.Unstructured) error {
	owner := apply.Owner{
		Manager: "hello", Domain: "example.com", // the field manager, and the prefix of our annotations
		Labels: map[string]string{"app.kubernetes.io/managed-by": "hello"}, // on all our objects: Prune goes by them
	}
	web, noClient := rest.HTTPClientFor(config)
	mapper, noMapper := apiutil.NewDynamicRESTMapper(config, web)
	client, noMetadata := metadata.NewForConfigAndClient(config, web)
	set, invalid := apply.NewSet(owner, objects, apply.SetOptions{})
	if err := errors.Join(noClient, noMapper, noMetadata, invalid); err != nil {
		return err
	}
	applier := apply.Applier{Live: &apply.Live{Client: client, Mapper: mapper, Owner: owner}}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() { stop(applier.Live.Start(ctx)) }() // the watches of our objects: without them Apply ends, too
	report, err := applier.Apply(ctx, set)
	for _, result := range report.Results {
		fmt.Println(result.Action, result.ID)
	}
	fmt.Println("Unchanged:", report.Unchanged)
	return cmp.Or(context.Cause(ctx), err)
}

func greeting(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": name, "namespace": "default"},
		"data":     map[string]any{"greeting": name},
	}}
}
