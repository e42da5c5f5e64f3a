package published_test

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/podgc"
	"k8s.io/kubernetes/pkg/controller/ttlafterfinished"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// jobTTLs is a user who makes and deletes four Jobs with a time to live, and gives
// others more of it. None goes before its time, and none stays.
func jobTTLs() simtest.Scenario {
	s := workloads(func(ctx context.Context, client kubernetes.Interface, f informers.SharedInformerFactory) ([]func(context.Context), error) {
		c := ttlafterfinished.New(ctx, f.Batch().V1().Jobs(), client)
		return []func(context.Context){func(ctx context.Context) { c.Run(ctx, 1) }}, nil
	})
	s.Edit = func(w *simtest.World) {
		name, ttl := fmt.Sprint("j", w.Random.IntN(4)), w.Random.IntN(90)
		switch n := w.Random.IntN(4); {
		case n == 0 && w.Delete("jobs.batch", "shop", name) == nil:
		case n == 1 && w.Update("jobs.batch", "shop", name, func(o simtest.Object) { o.Set(ttl, "spec", "ttlSecondsAfterFinished") }) == nil:
		default:
			_ = w.Create(simtest.Object{ // it may exist
				"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"namespace": "shop", "name": name},
				"spec": map[string]any{"ttlSecondsAfterFinished": ttl, "template": template(name, "example.com/j:1", "Never")},
			})
		}
	}
	s.Actors = []func(*simtest.World, simtest.Change){finishJobs}
	left := func(job simtest.Object) (time.Duration, bool) {
		conditions, _ := job.Field("status", "conditions").([]any)
		ttl, ok := job.Field("spec", "ttlSecondsAfterFinished").(float64)
		if len(conditions) == 0 || !ok {
			return 0, false
		}
		ended := simtest.Object(conditions[0].(map[string]any)) //nolint:forcetypeassert // by its type
		at, err := time.Parse(time.RFC3339, fmt.Sprint(ended["lastTransitionTime"]))
		return time.Until(at.Add(time.Duration(ttl) * time.Second)), err == nil
	}
	s.Check = func(_ *simtest.World, c simtest.Change) error {
		if c.By != "program" || c.Request.Verb != "delete" {
			return nil
		}
		if d, ok := left(c.Before); !ok || d > 0 {
			return fmt.Errorf("%s: it has %v to live", c.Request, d)
		}
		return nil
	}
	s.Converged = func(w *simtest.World) error {
		for _, job := range w.Objects("jobs.batch") {
			if d, ok := left(job); ok && d < 0 {
				return fmt.Errorf("job %s should have gone %v ago", job.Name(), -d)
			}
		}
		return nil
	}
	s.State = func(*simtest.World) string { return "" } // when a Job was made is chance
	return s
}

// finishJobs is an actor who ends each Job within a minute.
func finishJobs(w *simtest.World, c simtest.Change) {
	if c.Before != nil || c.After["kind"] != "Job" {
		return
	}
	w.After(time.Duration(1+w.Dice("job "+c.After.Name()).IntN(60))*time.Second, func() {
		_ = w.As("job controller").Update("jobs.batch", "shop", c.After.Name(), func(o simtest.Object) { // it may have gone
			o.Set([]any{map[string]any{
				"type": "Complete", "status": "True", "lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
			}}, "status", "conditions")
		})
	})
}

// podGC is a user who makes and deletes two nodes, and six pods that end. One pod
// that has ended may stay, and none without its node.
func podGC() simtest.Scenario {
	const stay = 1
	s := withNodes(workloads(func(
		ctx context.Context, client kubernetes.Interface, f informers.SharedInformerFactory,
	) ([]func(context.Context), error) {
		return []func(context.Context){podgc.NewPodGC(ctx, client, f.Core().V1().Pods(), f.Core().V1().Nodes(), stay).Run}, nil
	}))
	s.Edits = 40
	s.Edit = func(w *simtest.World) {
		resource, namespace, name := "pods", "shop", fmt.Sprint("p", w.Random.IntN(6))
		o := simtest.Object{"apiVersion": "v1", "kind": "Pod", "spec": template("", "example.com/p:1", "Never")["spec"]}
		if w.Random.IntN(4) == 0 {
			resource, namespace, name = "nodes", "", fmt.Sprint("node-", w.Random.IntN(2))
			o = simtest.Object{"apiVersion": "v1", "kind": "Node"}
		}
		if w.Random.IntN(3) == 0 && w.Delete(resource, namespace, name) == nil {
			return
		}
		o["metadata"] = map[string]any{"namespace": namespace, "name": name}
		_ = w.Create(o) // it may exist
	}
	ended := func(pod simtest.Object) bool {
		return pod.Field("status", "phase") == "Succeeded" || pod.Field("status", "phase") == "Failed"
	}
	lost := func(w *simtest.World, pod simtest.Object) bool {
		node, bound := pod.Field("spec", "nodeName").(string)
		return bound && w.Object("nodes", "", node) == nil || !bound && pod.Deleting()
	}
	s.Check = func(w *simtest.World, c simtest.Change) error {
		if c.By == "program" && c.Before["kind"] == "Pod" && !ended(c.Before) && !lost(w, c.Before) {
			return fmt.Errorf("%s: the pod is %v on %v", c.Request, c.Before.Field("status", "phase"), c.Before.Field("spec", "nodeName"))
		}
		return nil
	}
	s.Converged = func(w *simtest.World) error {
		n := 0
		for _, pod := range w.Objects("pods") {
			if lost(w, pod) {
				return fmt.Errorf("pod %s stays", pod.Name())
			}
			if ended(pod) {
				n++
			}
		}
		if n > stay {
			return fmt.Errorf("%d pods stay that have ended", n)
		}
		return nil
	}
	s.State = func(*simtest.World) string { return "" } // which pods stay depends on when they ended
	return s
}
