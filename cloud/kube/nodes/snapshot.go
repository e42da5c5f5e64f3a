package nodes

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube"
)

// Read calls do with what is stored now. Nothing changes during the call: do must be short,
// and must not call the Cluster.
func (c *Cluster) Read(do func(Snapshot)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do(c.snapshot())
}

// A Snapshot is what a [Cluster] has during a call of [Cluster.Read].
type Snapshot struct {
	c       *Cluster
	waiting []*demand.Pod
	coming  map[string][]*PodView
	drivers map[string]bool // resources of which the volumes of waiting pods take some
}

func (c *Cluster) snapshot() Snapshot {
	s := Snapshot{c: c, coming: c.coming(), drivers: map[string]bool{}}
	for _, p := range c.pods {
		if p.Waiting.IsZero() || p.Pod == nil {
			continue
		}
		pod := c.volumes.attach(&p)
		s.waiting = append(s.waiting, pod)
		if len(p.claims) > 0 {
			for resource := range pod.Requests.Extended {
				if strings.HasPrefix(resource, kube.AttachLimit("")) {
					s.drivers[resource] = true
				}
			}
		}
	}
	slices.SortFunc(s.waiting, func(a, b *demand.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return s
}

// Waiting returns the pods that look for a place and find none, by namespace and name, with what
// their claims demand of a node.
func (s Snapshot) Waiting() []*demand.Pod { return s.waiting }

// Namespaces returns the labels of each namespace. The map is a copy.
func (s Snapshot) Namespaces() map[string]map[string]string { return maps.Clone(s.c.namespaces) }

// Nodes returns every Node, by name.
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

// PodsOn returns the pods that use a Node, those on their way to it included.
func (s Snapshot) PodsOn(node string) []*demand.Pod {
	pods := make([]*demand.Pod, 0, len(s.c.onNode[node]))
	add := func(p *PodView) {
		switch {
		case p.Pod == nil:
		case len(s.drivers) > 0: // what is attached counts
			pods = append(pods, s.c.volumes.attach(p))
		default:
			pods = append(pods, p.Pod)
		}
	}
	for key := range s.c.onNode[node] {
		p := s.c.pods[key]
		add(&p)
	}
	for _, p := range s.coming[node] {
		if p.Waiting.IsZero() { // else it is one of Waiting
			add(p)
		}
	}
	return pods
}
