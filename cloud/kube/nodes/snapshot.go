package nodes

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

// Read calls do with what is stored now. Nothing changes during the call: do must be short,
// and must not call the Cluster.
func (c *Cluster) Read(do func(Snapshot)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do(Snapshot{c})
}

// A Snapshot is what a [Cluster] has during a call of [Cluster.Read].
type Snapshot struct{ c *Cluster }

// Waiting returns the pods that look for a place and find none, by namespace and name.
func (s Snapshot) Waiting() []*demand.Pod {
	var out []*demand.Pod
	for _, p := range s.c.pods {
		if !p.Waiting.IsZero() && p.Pod != nil {
			out = append(out, p.Pod)
		}
	}
	slices.SortFunc(out, func(a, b *demand.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// Namespaces returns the labels of each namespace. The map is a copy.
func (s Snapshot) Namespaces() map[string]map[string]string { return maps.Clone(s.c.namespaces) }

// Nodes returns every Node, by name. Pods that are being deleted are among the Bound, because
// only a kubelet ends these.
func (s Snapshot) Nodes() iter.Seq[View] {
	return func(yield func(View) bool) {
		for _, name := range slices.Sorted(maps.Keys(s.c.nodes)) {
			v := s.c.nodes[name]
			v.Bound = s.c.waiting(name)
			if !yield(v) {
				return
			}
		}
	}
}

// OfMachine returns the Node of a machine.
func (s Snapshot) OfMachine(id string) (View, bool) {
	v, ok := s.c.nodes[s.c.byMachine[id]]
	return v, ok
}

// PodsOn returns the pods that use a Node.
func (s Snapshot) PodsOn(node string) []*demand.Pod {
	pods := make([]*demand.Pod, 0, len(s.c.onNode[node]))
	for key := range s.c.onNode[node] {
		if p := s.c.pods[key]; p.Pod != nil {
			pods = append(pods, p.Pod)
		}
	}
	return pods
}
