package published_test

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/job"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// jobs is a user who makes and deletes two Jobs.
func jobs() simtest.Scenario {
	s := workloads(func(ctx context.Context, client kubernetes.Interface, f informers.SharedInformerFactory) ([]func(context.Context), error) {
		c, err := job.NewController(ctx, client, f.Core().V1().Pods(), f.Batch().V1().Jobs(), nil, nil)
		return []func(context.Context){func(ctx context.Context) { c.Run(ctx, 1) }}, err
	})
	s.Edit = func(w *simtest.World) {
		name := fmt.Sprint("j", w.Random.IntN(2))
		if w.Random.IntN(2) == 0 && w.Delete("jobs.batch", "shop", name) == nil {
			return
		}
		_ = w.Create(simtest.Object{ // it may exist
			"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"namespace": "shop", "name": name},
			"spec": map[string]any{
				"parallelism": 1 + w.Random.IntN(2), "completions": 2, "backoffLimit": 20, "suspend": w.Random.IntN(4) == 0,
				"template": template(name, "example.com/j:1", "Never"),
			},
		})
	}
	s.Edits, s.Actors = 25, []func(*simtest.World, simtest.Change){simtest.Kubelet{Kills: 30}.Act}
	s.Converged = func(w *simtest.World) error {
		for _, pod := range w.Objects("pods") {
			if phase := pod.Field("status", "phase"); pod.Field("metadata", "finalizers") != nil && (phase == "Succeeded" || phase == "Failed") {
				return fmt.Errorf("pod %s is %v, and has the finalizer", pod.Name(), phase)
			}
		}
		for _, job := range w.Objects("jobs.batch") {
			conditions := fmt.Sprint(job.Field("status", "conditions"))
			switch {
			case job.Field("spec", "suspend") == true && !strings.Contains(conditions, "Suspended"):
				return fmt.Errorf("job %s is not marked as suspended", job.Name())
			case job.Field("spec", "suspend") != true && !strings.Contains(conditions, "Complete") && !strings.Contains(conditions, "Failed"):
				return fmt.Errorf("job %s has not ended: %v", job.Name(), job.Field("status"))
			}
		}
		return nil
	}
	s.State = func(*simtest.World) string { return "" } // how many pods failed is chance
	return s
}
