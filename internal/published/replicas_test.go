package published_test

import (
	"context"
	"fmt"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/statefulset"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// replicas is a user who makes, scales, rolls out and deletes two workloads of a kind.
// At the end each has the pods that it wants, of the image that it wants.
func replicas(kind, resource string, run controllers) simtest.Scenario {
	s := workloads(run)
	s.Edit = func(w *simtest.World) {
		name, n, image := fmt.Sprint("a", w.Random.IntN(2)), w.Random.IntN(4), fmt.Sprint("example.com/a:", w.Random.IntN(3))
		if w.Random.IntN(5) == 0 && w.Delete(resource, "shop", name) == nil {
			return
		}
		spec := map[string]any{
			"replicas": n, "template": template(name, image, nil), "selector": map[string]any{"matchLabels": map[string]any{"app": name}},
		}
		if kind == "StatefulSet" {
			spec["serviceName"], spec["podManagementPolicy"] = name, []string{"OrderedReady", "Parallel"}[n%2]
		}
		if w.Object(resource, "shop", name) == nil {
			_ = w.Create(simtest.Object{ // it does not exist
				"apiVersion": "apps/v1", "kind": kind, "metadata": map[string]any{"namespace": "shop", "name": name}, "spec": spec,
			})
			return
		}
		_ = w.Update(resource, "shop", name, func(o simtest.Object) { // it exists
			o.Set(n, "spec", "replicas")
			o.Set(spec["template"], "spec", "template")
		})
	}
	s.Converged = func(w *simtest.World) error {
		for _, each := range w.Objects(resource) {
			holders := []simtest.Object{each}
			if kind == "Deployment" {
				holders = nil
				for _, set := range w.Objects("replicasets.apps") {
					if set.Owner() == each.UID() {
						holders = append(holders, set)
					}
				}
			}
			n := 0
			for _, holder := range holders {
				n += owned(w, "pods", holder.UID())
			}
			if fmt.Sprint(n) != fmt.Sprint(each.Field("spec", "replicas")) {
				return fmt.Errorf("%s wants %v pods and has %d", each.Name(), each.Field("spec", "replicas"), n)
			}
		}
		return nil
	}
	s.State = func(*simtest.World) string { return "" } // revisions and names depend on the history
	return s
}

func replicaSets() simtest.Scenario {
	return replicas("ReplicaSet", "replicasets.apps",
		func(ctx context.Context, client kubernetes.Interface, f informers.SharedInformerFactory) ([]func(context.Context), error) {
			c := replicaset.NewReplicaSetController(ctx, f.Apps().V1().ReplicaSets(), f.Core().V1().Pods(), client, 500)
			return []func(context.Context){func(ctx context.Context) { c.Run(ctx, 1) }}, nil
		})
}

func deployments() simtest.Scenario {
	return replicas("Deployment", "deployments.apps",
		func(ctx context.Context, client kubernetes.Interface, f informers.SharedInformerFactory) ([]func(context.Context), error) {
			sets := replicaset.NewReplicaSetController(ctx, f.Apps().V1().ReplicaSets(), f.Core().V1().Pods(), client, 500)
			c, err := deployment.NewDeploymentController(ctx, f.Apps().V1().Deployments(), f.Apps().V1().ReplicaSets(), f.Core().V1().Pods(), client)
			return []func(context.Context){
				func(ctx context.Context) { sets.Run(ctx, 1) },
				func(ctx context.Context) { c.Run(ctx, 1) },
			}, err
		})
}

func statefulSets() simtest.Scenario {
	return replicas("StatefulSet", "statefulsets.apps",
		func(ctx context.Context, client kubernetes.Interface, f informers.SharedInformerFactory) ([]func(context.Context), error) {
			c := statefulset.NewStatefulSetController(
				ctx, f.Core().V1().Pods(), f.Apps().V1().StatefulSets(),
				f.Core().V1().PersistentVolumeClaims(), f.Apps().V1().ControllerRevisions(), client,
			)
			return []func(context.Context){func(ctx context.Context) { c.Run(ctx, 1) }}, nil
		})
}
