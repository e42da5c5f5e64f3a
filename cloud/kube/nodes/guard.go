package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// A Guard keeps a machine running that has pods on it: the last look before a stop. The
// cluster is asked once more, because a pod may have come that no watch has shown yet. Its
// Check is one of [cloud.Executor].
type Guard struct {
	Marks *Marks
	// Scope marks the machines of the pool. DrainTimeout is how long pods have to leave a machine that is
	// terminated. Stops are not bounded: a machine with pods is never stopped.
	Scope        cloud.Scope
	DrainTimeout time.Duration
	// Instance returns a machine of the last list of the cloud. Required.
	Instance func(id string) (cloud.Instance, bool)
}

// Check returns an error that wraps [ErrChanged] if a pod that would have to be evicted is on
// the machine that is to be stopped, or to be terminated within the time of its drain.
func (g Guard) Check(ctx context.Context, a cloud.Action) error {
	if a.Verb == cloud.Stop || a.Verb == cloud.Terminate && g.draining(a.Machine) {
		return g.empty(ctx, a.Machine)
	}
	return nil
}

// draining reports whether a machine runs and the drain that comes before its end is not over
// its time.
func (g Guard) draining(id string) bool {
	c, d := g.Marks.Cluster, g.Marks.Pool.Domain
	v, ok := c.OfMachine(id)
	n := c.node(v.Status.Name)
	i, known := g.Instance(id)
	if !ok || n == nil || !known || i.State != cloud.InstanceRunning || v.Status.State != cloud.StateTerminating {
		return false
	}
	var why intent
	err := json.Unmarshal([]byte(n.Annotations[d.intent()]), &why)
	return err == nil && why.Step == string(cloud.Drain) && g.Marks.time().Before(why.Since.Add(g.DrainTimeout))
}

// empty returns an error if a Node of a machine has a pod that has to be evicted, also if that
// Node was deleted. A machine that warms up is stopped in any case, as one that stops itself is:
// pods are there that tolerate its cordon, and would have each warm-up of the pool fail.
func (g Guard) empty(ctx context.Context, id string) error {
	for _, node := range g.nodesOf(id) {
		if g.Marks.Cluster.expects(node) {
			return fmt.Errorf("a pod is on its way to it: %w", ErrChanged)
		}
		pods, err := g.Marks.Client.Resource(podsResource).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
		if err != nil {
			return fmt.Errorf("pods of node %s: %w", node, err)
		}
		current, _ := g.Marks.Cluster.OfMachine(id)
		for i := range pods.Items {
			p := &corev1.Pod{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(pods.Items[i].Object, p); err != nil {
				return fmt.Errorf("pod %s: %w", pods.Items[i].GetName(), err)
			}
			v := g.Marks.Cluster.viewPod(p)
			// No kubelet ends a pod on a Node that the machine has left.
			left := v.terminating && current.Status.Name != "" && current.Status.Name != node
			if v.evicted && !left {
				return fmt.Errorf("pod %s/%s is on it: %w", p.Namespace, p.Name, ErrChanged)
			}
		}
	}
	return nil
}

// nodesOf returns the Nodes of a machine that may run pods, by the tag of the machine if none is
// there. A machine whose kubelet has registered under another name has several.
func (g Guard) nodesOf(id string) (names []string) {
	c := g.Marks.Cluster
	all := c.namesOf(id)
	for _, name := range all {
		if v, ok := c.Node(name); ok && v.Status.State != cloud.StateWarmup {
			names = append(names, name)
		}
	}
	if len(all) > 0 {
		return names
	}
	i, _ := g.Instance(id)
	name := i.Tags[g.Scope.Key("node")]
	if _, another := c.Node(name); another || name == "" {
		return nil
	}
	return []string{name}
}
