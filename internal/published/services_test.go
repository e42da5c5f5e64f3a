package published_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/endpointslice"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// endpointSlices is a user who makes and deletes two Services and six pods, each of which is
// of one of them. At the end the slices have the addresses of the pods.
func endpointSlices() simtest.Scenario {
	s := withNodes(workloads(func(
		ctx context.Context, client kubernetes.Interface, f informers.SharedInformerFactory,
	) ([]func(context.Context), error) {
		c := endpointslice.NewController(
			ctx, f.Core().V1().Pods(), f.Core().V1().Services(), f.Core().V1().Nodes(), f.Discovery().V1().EndpointSlices(), 2, client, time.Second,
		)
		return []func(context.Context){func(ctx context.Context) { c.Run(ctx, 1) }}, nil
	}))
	s.Edits = 25
	s.Edit = func(w *simtest.World) {
		n := w.Random.IntN(6)
		pod, service := fmt.Sprint("p", n), fmt.Sprint("s", n%2)
		resource, name, o := "pods", pod, simtest.Object{"apiVersion": "v1", "kind": "Pod", "spec": template("", "example.com/s:1", nil)["spec"]}
		if w.Random.IntN(4) == 0 {
			resource, name = "services", service
			o = simtest.Object{"apiVersion": "v1", "kind": "Service", "spec": map[string]any{
				"clusterIP": fmt.Sprint("10.96.0.1", n%2), "ipFamilies": []any{"IPv4"},
				"selector": map[string]any{"app": service}, "ports": []any{map[string]any{"port": 80}},
			}}
		}
		if w.Random.IntN(3) == 0 && w.Delete(resource, "shop", name) == nil {
			return
		}
		o["metadata"] = map[string]any{"namespace": "shop", "name": name, "labels": map[string]any{"app": service}}
		_ = w.Create(o) // it may exist
	}
	// A slice that is used for something else is updated without its version: finalizers of others are lost.
	s.Without = append(s.Without, simtest.HoldObject)
	s.Check = simtest.NotAnothers("endpointslices.discovery.k8s.io", func(o simtest.Object) bool {
		return o.Label("endpointslice.kubernetes.io/managed-by") == "endpointslice-controller.k8s.io"
	})
	s.Converged = func(w *simtest.World) error {
		want, got := map[string][]string{}, map[string][]string{}
		for _, pod := range w.Objects("pods") {
			if app := pod.Label("app"); pod.Field("status", "phase") == "Running" && w.Object("services", "shop", app) != nil {
				want[app] = append(want[app], fmt.Sprint(pod.Field("status", "podIP")))
			}
		}
		for _, slice := range w.Objects("endpointslices.discovery.k8s.io") {
			endpoints, _ := slice["endpoints"].([]any)
			for _, each := range endpoints {
				address := fmt.Sprint(simtest.Object(each.(map[string]any)).Field("addresses")) //nolint:forcetypeassert // by its type
				got[slice.Label("kubernetes.io/service-name")] = append(got[slice.Label("kubernetes.io/service-name")], address[1:len(address)-1])
			}
		}
		for _, all := range []map[string][]string{want, got} {
			for name := range all {
				slices.Sort(all[name])
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("the slices have %v, and the pods %v", got, want)
		}
		return nil
	}
	s.State = func(*simtest.World) string { return "" } // in which slice an address is depends on the history
	return s
}
