package published_test

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/cronjob"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// cronJobs is a user who makes, changes and deletes two CronJobs. Their Jobs end by
// themselves.
func cronJobs() simtest.Scenario {
	s := workloads(func(ctx context.Context, client kubernetes.Interface, f informers.SharedInformerFactory) ([]func(context.Context), error) {
		c, err := cronjob.NewControllerV2(ctx, f.Batch().V1().Jobs(), f.Batch().V1().CronJobs(), client)
		return []func(context.Context){func(ctx context.Context) { c.Run(ctx, 1) }}, err
	})
	s.Rest = 1 // it writes each minute
	s.Edit = func(w *simtest.World) {
		name, policy := fmt.Sprint("c", w.Random.IntN(2)), []string{"Allow", "Forbid", "Replace"}[w.Random.IntN(3)]
		if w.Random.IntN(4) == 0 && w.Delete("cronjobs.batch", "shop", name) == nil {
			return
		}
		_ = w.Create(simtest.Object{ // it may exist
			"apiVersion": "batch/v1", "kind": "CronJob", "metadata": map[string]any{"namespace": "shop", "name": name},
			"spec": map[string]any{
				"schedule": "*/1 * * * *", "concurrencyPolicy": policy,
				"jobTemplate": map[string]any{"spec": map[string]any{"template": template(name, "example.com/c:1", "Never")}},
			},
		})
	}
	s.Actors = []func(*simtest.World, simtest.Change){func(w *simtest.World, c simtest.Change) {
		if c.Before == nil && c.After["kind"] == "Job" {
			w.After(time.Duration(1+w.Dice("job "+c.After.Name()).IntN(150))*time.Second, func() {
				_ = w.As("job controller").Update("jobs.batch", "shop", c.After.Name(), func(o simtest.Object) { // it may have gone
					o.Set([]any{map[string]any{"type": "Complete", "status": "True"}}, "status", "conditions")
				})
			})
		}
	}}
	run := func(o simtest.Object) string { return "the run " + o.Owner() + "/" + o.Name() }
	s.Check = simtest.Checks(simtest.NeverTwice("jobs.batch", run), func(w *simtest.World, c simtest.Change) error {
		if c.By != "program" || c.Before != nil || c.Request.Resource != "jobs" {
			return nil
		}
		for _, other := range w.Objects("jobs.batch") {
			forbids := false
			for _, owner := range w.Objects("cronjobs.batch") {
				forbids = forbids || owner.UID() == c.After.Owner() && owner.Field("spec", "concurrencyPolicy") == "Forbid"
			}
			beside := other.Owner() == c.After.Owner() && other.UID() != c.After.UID()
			if forbids && beside && other.Field("status", "conditions") == nil && !other.Deleting() {
				return fmt.Errorf("%s is made, and %s still runs", c.After.Name(), other.Name())
			}
		}
		return nil
	})
	s.State = func(*simtest.World) string { return "" } // which runs are left depends on the time
	return s
}
