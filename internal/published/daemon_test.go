package published_test

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/pkg/controller/podgc"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// daemonSets is a user who makes, rolls out and deletes two DaemonSets, and makes, labels
// and deletes three nodes. At the end each node has the pods that it should have.
func daemonSets() simtest.Scenario {
	s := withNodes(workloads(func(
		ctx context.Context, client kubernetes.Interface, f informers.SharedInformerFactory,
	) ([]func(context.Context), error) {
		gc := podgc.NewPodGC(ctx, client, f.Core().V1().Pods(), f.Core().V1().Nodes(), 12500)
		c, err := daemon.NewDaemonSetsController(
			ctx, f.Apps().V1().DaemonSets(), f.Apps().V1().ControllerRevisions(), f.Core().V1().Pods(), f.Core().V1().Nodes(),
			client, flowcontrol.NewBackOff(time.Second, 15*time.Minute),
		)
		return []func(context.Context){gc.Run, func(ctx context.Context) { c.Run(ctx, 1) }}, err
	}))
	s.Edits = 40
	s.Edit = func(w *simtest.World) {
		n, pool := w.Random.IntN(3), fmt.Sprint("p", w.Random.IntN(2))
		resource, namespace, name := "nodes", "", fmt.Sprint("node-", n)
		o := simtest.Object{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name, "labels": map[string]any{"pool": pool}}}
		change := func(live simtest.Object) { live.Set(pool, "metadata", "labels", "pool") }
		if w.Random.IntN(2) == 0 {
			resource, namespace, name = "daemonsets.apps", "shop", fmt.Sprint("d", n%2)
			pod := simtest.Object(template(name, fmt.Sprint("example.com/d:", w.Random.IntN(3)), nil))
			if n%2 == 1 {
				pod.Set(map[string]any{"pool": pool}, "spec", "nodeSelector")
			}
			o = simtest.Object{
				"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": map[string]any{"namespace": namespace, "name": name},
				"spec": map[string]any{"template": map[string]any(pod), "selector": map[string]any{"matchLabels": map[string]any{"app": name}}},
			}
			change = func(live simtest.Object) { live.Set(map[string]any(pod), "spec", "template") }
		}
		if w.Random.IntN(4) == 0 && w.Delete(resource, namespace, name) == nil || w.Update(resource, namespace, name, change) == nil {
			return
		}
		_ = w.Create(o) // it does not exist
	}
	s.Converged = func(w *simtest.World) error {
		for _, set := range w.Objects("daemonsets.apps") {
			want, got := map[string]int{}, map[string]int{}
			for _, node := range w.Objects("nodes") {
				if pool := set.Field("spec", "template", "spec", "nodeSelector", "pool"); pool == nil || node.Label("pool") == pool {
					want[node.Name()]++
				}
			}
			for _, pod := range w.Objects("pods") {
				if pod.Owner() == set.UID() {
					got[fmt.Sprint(pod.Field("spec", "nodeName"))]++
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				return fmt.Errorf("%s has %v and wants %v", set.Name(), got, want)
			}
			if n := set.Field("status", "numberAvailable"); n != float64(len(want)) && len(want) > 0 {
				return fmt.Errorf("%s counts %v of %d", set.Name(), n, len(want))
			}
		}
		return nil
	}
	s.State = func(*simtest.World) string { return "" } // revisions depend on the history
	return s
}
