package published_test

import (
	"context"
	"fmt"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/disruption"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// disruptions is a user with four pods who makes and changes a
// PodDisruptionBudget, and drains. No eviction is allowed that leaves less than the
// budget asks for.
func disruptions() simtest.Scenario {
	s := workloads(func(ctx context.Context, client kubernetes.Interface, f informers.SharedInformerFactory) ([]func(context.Context), error) {
		c := disruption.NewDisruptionController(
			ctx, f.Core().V1().Pods(), f.Policy().V1().PodDisruptionBudgets(), f.Core().V1().ReplicationControllers(),
			f.Apps().V1().ReplicaSets(), f.Apps().V1().Deployments(), f.Apps().V1().StatefulSets(),
			client, nil, nil, client.Discovery(), // for scales of custom resources alone
		)
		return []func(context.Context){c.Run}, nil
	})
	selector := map[string]any{"matchLabels": map[string]any{"app": "web"}}
	s.Start = func(w *simtest.World) {
		_ = w.Create(simtest.Object{ // it is new
			"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": map[string]any{"namespace": "shop", "name": "web"},
			"spec": map[string]any{"replicas": 4, "template": template("web", "example.com/w:1", nil), "selector": selector},
		})
	}
	s.Edits = 40
	s.Edit = func(w *simtest.World) {
		least, pods := w.Random.IntN(4), w.Objects("pods")
		exists := w.Object("poddisruptionbudgets.policy", "shop", "web") != nil
		switch n := w.Random.IntN(4); {
		case !exists:
			_ = w.Create(simtest.Object{ // it does not exist
				"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": map[string]any{"namespace": "shop", "name": "web"},
				"spec": map[string]any{"minAvailable": least, "selector": selector},
			})
		case n == 0:
			_ = w.Update("poddisruptionbudgets.policy", "shop", "web", func(o simtest.Object) { o.Set(least, "spec", "minAvailable") }) // it exists
		case len(pods) > 0:
			_ = w.As("drain").Evict("shop", pods[w.Random.IntN(len(pods))].Name()) // the budget may not allow it
		}
	}
	ready := func(pod simtest.Object) bool { return pod.Field("status", "phase") == "Running" && !pod.Deleting() }
	healthy := func(w *simtest.World) (n int) {
		for _, pod := range w.Objects("pods") {
			if ready(pod) {
				n++
			}
		}
		return n
	}
	s.Actors = append(s.Actors, keepFour)
	s.Check = func(w *simtest.World, c simtest.Change) error {
		budget := w.Object("poddisruptionbudgets.policy", "shop", "web")
		if c.By != "drain" || c.Before["kind"] != "Pod" || !ready(c.Before) || c.After != nil && ready(c.After) || budget == nil {
			return nil // one that is not ready may always go
		}
		if least := budget.Field("spec", "minAvailable"); fmt.Sprint(healthy(w)) < fmt.Sprint(least) {
			return fmt.Errorf("an eviction leaves %d healthy pods, and the budget asks for %v", healthy(w), least)
		}
		return nil
	}
	s.Converged = func(w *simtest.World) error {
		for _, budget := range w.Objects("poddisruptionbudgets.policy") {
			if n := budget.Field("status", "currentHealthy"); fmt.Sprint(n) != fmt.Sprint(healthy(w)) {
				return fmt.Errorf("the budget has counted %v pods of %d", n, healthy(w))
			}
		}
		return nil
	}
	// It takes a pod for one that stays if it does not see its deletion for two minutes.
	s.Without = append(s.Without, simtest.SilenceWatches, simtest.SkewClock)
	return s
}

// keepFour is an actor who gives the ReplicaSet web four pods.
func keepFour(w *simtest.World, c simtest.Change) {
	set := w.Object("replicasets.apps", "shop", "web")
	if set == nil || c.After != nil && c.After["kind"] != "ReplicaSet" {
		return
	}
	for i := owned(w, "pods", set.UID()); i < 4; i++ {
		pod := simtest.Object(template("web", "example.com/w:1", nil))
		pod["apiVersion"], pod["kind"] = "v1", "Pod"
		pod.Set("shop", "metadata", "namespace")
		pod.Set("web-", "metadata", "generateName")
		pod.Set([]any{map[string]any{
			"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": set.UID(), "controller": true,
		}}, "metadata", "ownerReferences")
		_ = w.As("replicaset controller").Create(pod) // it is new
	}
}
