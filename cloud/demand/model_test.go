package demand_test

import (
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

// world is a cluster as plainly as it can be written: what the scheduler would
// say, without any thought of speed.
type world struct {
	namespaces map[string]map[string]string
	nodes      []*dumbNode
}

type dumbNode struct {
	*demand.Node
	stopped bool // its Node object is there, with a taint, but takes no pods
	pods    []*demand.Pod
}

func (w *world) add(n *demand.Node) *dumbNode {
	d := &dumbNode{Node: n, pods: slices.Clone(n.Pods)}
	w.nodes = append(w.nodes, d)
	return d
}

func dumbRequirement(r demand.Requirement, labels map[string]string) bool {
	value, there := labels[r.Key]
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return math.MinInt64
		}
		return n
	}
	switch r.Operator {
	case demand.In:
		return there && slices.Contains(r.Values, value)
	case demand.NotIn:
		return !slices.Contains(r.Values, value) || !there
	case demand.Exists:
		return there
	case demand.DoesNotExist:
		return !there
	case demand.Gt:
		return there && number(value) > number(r.Values[0])
	case demand.Lt:
		return there && number(value) != math.MinInt64 && number(value) < number(r.Values[0])
	}
	return false
}

func dumbSelects(s demand.Selector, labels map[string]string) bool {
	for _, r := range s {
		if !dumbRequirement(r, labels) {
			return false
		}
	}
	return s != nil
}

func dumbAffinity(p *demand.Pod, n *demand.Node) bool {
	for k, v := range p.NodeSelector {
		if have, there := n.Labels[k]; !there || have != v {
			return false
		}
	}
	return dumbTerms(p.NodeAffinity, n) || len(p.NodeAffinity) == 0
}

func dumbVolumes(p *demand.Pod, n *demand.Node) bool {
	for _, v := range p.Volumes {
		if !dumbTerms(v.Nodes, n) {
			return false
		}
	}
	return true
}

func dumbTerms(terms []demand.NodeTerm, n *demand.Node) bool {
	for _, t := range terms {
		all := len(t.Labels)+len(t.Names) > 0
		for _, r := range t.Labels {
			all = all && dumbRequirement(r, n.Labels)
		}
		for _, r := range t.Names {
			r.Key = "name"
			all = all && dumbRequirement(r, map[string]string{"name": n.Name})
		}
		if all {
			return true
		}
	}
	return false
}

func dumbTolerates(p *demand.Pod, taint demand.Taint) bool {
	return slices.ContainsFunc(p.Tolerations, func(t demand.Toleration) bool {
		return (t.Effect == "" || t.Effect == taint.Effect) && (t.Key == "" || t.Key == taint.Key) && (t.Exists || t.Value == taint.Value)
	})
}

func dumbTaints(p *demand.Pod, n *dumbNode) bool {
	taints := n.Taints
	if n.stopped {
		taints = append(slices.Clone(taints), demand.Taint{Key: "stopped", Effect: demand.NoExecute})
	}
	for _, t := range taints {
		if t.Effect != "PreferNoSchedule" && !dumbTolerates(p, t) {
			return false
		}
	}
	return true
}

func (w *world) term(t demand.PodTerm, owner, other *demand.Pod) bool {
	in := owner.Namespace == other.Namespace
	if len(t.Namespaces) > 0 || t.NamespaceSelector != nil {
		in = slices.Contains(t.Namespaces, other.Namespace) || dumbSelects(t.NamespaceSelector, w.namespaces[other.Namespace])
	}
	return in && dumbSelects(t.Selector, other.Labels)
}

func (w *world) allTerms(ts []demand.PodTerm, owner, other *demand.Pod) bool {
	for _, t := range ts {
		if !w.term(t, owner, other) {
			return false
		}
	}
	return len(ts) > 0
}

// fits is the first rule that keeps p off n, or "".
func (w *world) fits(p *demand.Pod, n *dumbNode) string {
	switch {
	case n.stopped:
		return "stopped"
	case n.Unschedulable && !dumbTolerates(p, demand.Taint{Key: "node.kubernetes.io/unschedulable", Effect: demand.NoSchedule}):
		return "cordon"
	case !dumbAffinity(p, n.Node):
		return "affinity"
	case !dumbVolumes(p, n.Node):
		return "volume"
	case !dumbTaints(p, n):
		return "taint"
	case !dumbRoom(p, n):
		return "room"
	}
	for _, other := range n.pods {
		for _, a := range p.HostPorts {
			for _, b := range other.HostPorts {
				all := func(h demand.HostPort) bool { return h.IP == "" || h.IP == "0.0.0.0" }
				protocol := func(h demand.HostPort) string { return max(h.Protocol, "TCP") }
				if a.Port == b.Port && protocol(a) == protocol(b) && (a.IP == b.IP || all(a) || all(b)) {
					return "port"
				}
			}
		}
	}
	return w.topology(p, n)
}

func dumbRoom(p *demand.Pod, n *dumbNode) bool {
	free := n.Allocatable
	extended := map[string]int64{}
	maps.Copy(extended, free.Extended)
	for _, o := range n.pods {
		free.CPU -= o.Requests.CPU
		free.Memory -= o.Requests.Memory
		free.EphemeralStorage -= o.Requests.EphemeralStorage
		free.Pods--
		for k, v := range o.Requests.Extended {
			extended[k] -= v
		}
	}
	r := p.Requests
	for k, v := range r.Extended {
		if v > 0 && v > extended[k] {
			return false
		}
	}
	return free.Pods > 0 && (r.CPU == 0 || r.CPU <= free.CPU) && (r.Memory == 0 || r.Memory <= free.Memory) &&
		(r.EphemeralStorage == 0 || r.EphemeralStorage <= free.EphemeralStorage)
}

func (w *world) topology(p *demand.Pod, n *dumbNode) string {
	sharing := func(key string, do func(other *demand.Pod)) bool {
		value, there := n.Labels[key]
		for _, m := range w.nodes {
			if have, has := m.Labels[key]; there && has && have == value {
				for _, other := range m.pods {
					do(other)
				}
			}
		}
		return there
	}
	for _, t := range p.AntiAffinity {
		near := false
		sharing(t.TopologyKey, func(other *demand.Pod) { near = near || w.term(t, p, other) })
		if near {
			return "anti-affinity"
		}
	}
	for _, m := range w.nodes {
		for _, other := range m.pods {
			for _, t := range other.AntiAffinity {
				a, one := m.Labels[t.TopologyKey]
				b, two := n.Labels[t.TopologyKey]
				if one && two && a == b && w.term(t, other, p) {
					return "anti-affinity of another"
				}
			}
		}
	}
	near, anywhere := true, false
	for _, t := range p.Affinity {
		here := false
		if !sharing(t.TopologyKey, func(other *demand.Pod) { here = here || w.allTerms(p.Affinity, p, other) }) {
			return "affinity"
		}
		near = near && here
		for _, m := range w.nodes {
			if _, there := m.Labels[t.TopologyKey]; there {
				for _, other := range m.pods {
					anywhere = anywhere || w.allTerms(p.Affinity, p, other)
				}
			}
		}
	}
	if len(p.Affinity) > 0 && !near && (anywhere || !w.allTerms(p.Affinity, p, p)) {
		return "affinity"
	}
	for _, s := range p.Spread {
		if !w.spread(p, s, n) {
			return "spread"
		}
	}
	return ""
}

func (w *world) spread(p *demand.Pod, s demand.Spread, n *dumbNode) bool {
	domains := map[string]int32{}
	for _, m := range w.nodes {
		all := true
		for _, other := range p.Spread {
			_, there := m.Labels[other.TopologyKey]
			all = all && there
		}
		if !all || !s.IgnoreNodeAffinity && !dumbAffinity(p, m.Node) || s.HonorTaints && !dumbTaints(p, m) {
			continue
		}
		domain := m.Labels[s.TopologyKey]
		domains[domain] += 0
		for _, other := range m.pods {
			if other.Namespace == p.Namespace && !other.Terminating && len(s.Selector) > 0 && dumbSelects(s.Selector, other.Labels) {
				domains[domain]++
			}
		}
	}
	fewest := int32(math.MaxInt32)
	for _, count := range domains {
		fewest = min(fewest, count)
	}
	if len(domains) < int(max(s.MinDomains, 1)) {
		fewest = 0
	}
	domain, there := n.Labels[s.TopologyKey]
	count := domains[domain]
	if dumbSelects(s.Selector, p.Labels) {
		count++
	}
	return there && count-fewest <= max(s.MaxSkew, 1)
}
