package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
)

// guarded is a provider that stops no machine with pods on it, and terminates none within
// the time of its drain. The cluster is asked once more: a pod may have come that no watch
// has shown yet.
type guarded struct {
	Provider

	marks *marks
	kept  *poolMemory
	pool  cloud.Pool
}

// StopInstance implements [cloud.PowerControl].
func (g guarded) StopInstance(ctx context.Context, id string, force bool) error {
	return g.StopInstances(ctx, []string{id}, force)[id]
}

// StopInstances implements [cloud.BatchPowerControl].
func (g guarded) StopInstances(ctx context.Context, ids []string, force bool) map[string]error {
	if force {
		return g.Provider.StopInstances(ctx, ids, force)
	}
	free, failed := g.free(ctx, ids)
	if len(free) > 0 {
		maps.Copy(failed, g.Provider.StopInstances(ctx, free, force))
	}
	return failed
}

// TerminateInstance implements [cloud.Machines].
func (g guarded) TerminateInstance(ctx context.Context, id string) error {
	return g.TerminateInstances(ctx, []string{id})[id]
}

// TerminateInstances implements [cloud.BatchMachines].
func (g guarded) TerminateInstances(ctx context.Context, ids []string) map[string]error {
	var draining, others []string
	for _, id := range ids {
		if g.draining(id) {
			draining = append(draining, id)
		} else {
			others = append(others, id)
		}
	}
	free, failed := g.free(ctx, draining)
	if others = append(others, free...); len(others) > 0 {
		maps.Copy(failed, g.Provider.TerminateInstances(ctx, others))
	}
	return failed
}

// draining reports whether a machine runs and the drain that comes before its end is not over
// its time.
func (g guarded) draining(id string) bool {
	v, ok := g.marks.world.byID(id)
	n := g.marks.world.cached(v.status.Name)
	i, known := g.kept.instance(id)
	if !ok || n == nil || !known || i.State != cloud.InstanceRunning || v.status.State != cloud.StateTerminating {
		return false
	}
	var why intent
	err := json.Unmarshal([]byte(n.Annotations[v1alpha1.AnnotationIntent]), &why)
	return err == nil && why.Step == string(cloud.Drain) && g.marks.now().Before(why.Since.Add(g.pool.DrainTimeout))
}

// free returns the machines without pods that have to be evicted, and why the others are not.
func (g guarded) free(ctx context.Context, ids []string) (free []string, failed map[string]error) {
	failed = map[string]error{}
	for _, id := range ids {
		if err := g.empty(ctx, id); err != nil {
			failed[id] = err
		} else {
			free = append(free, id)
		}
	}
	return free, failed
}

// empty returns an error if the Node of a machine has a pod that has to be evicted, also if that
// Node was deleted. A machine that warms up is stopped in any case, as one that stops itself is:
// pods are there that tolerate its cordon, and would have each warm-up of the pool fail.
func (g guarded) empty(ctx context.Context, id string) error {
	node := g.nodeOf(id)
	if node == "" {
		return nil
	}
	pods, err := g.marks.client.Resource(podsResource).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return fmt.Errorf("pods of node %s: %w", node, err)
	}
	for i := range pods.Items {
		p := &corev1.Pod{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(pods.Items[i].Object, p); err != nil {
			return fmt.Errorf("pod %s: %w", pods.Items[i].GetName(), err)
		}
		if viewPod(p).evicted {
			return fmt.Errorf("pod %s/%s is on it: %w", p.Namespace, p.Name, errChanged)
		}
	}
	return nil
}

// nodeOf returns the Node of a machine that may run pods, by the tag of the machine if the Node
// is not there; empty if there is none.
func (g guarded) nodeOf(id string) string {
	if v, ok := g.marks.world.byID(id); ok {
		if v.status.State == cloud.StateWarmup {
			return ""
		}
		return v.status.Name
	}
	i, _ := g.kept.instance(id)
	name := i.Tags[g.pool.Scope.Key("node")]
	if _, another := g.marks.world.view(name); another {
		return ""
	}
	return name
}
