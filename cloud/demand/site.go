//trueup:pure

package demand

import (
	"maps"
	"strconv"
)

// site is a machine that pods can be placed on, or a template of machines.
type site struct {
	node     *Node
	on       Where
	supply   *supply // nil for a node of the cluster, and for an unknown pool
	template int     // place in Supply.Templates
	shape    int32
	free     []int64
	domains  []int32 // by topology key; noDomain, or ownDomain for a template
	launches []int32 // the own domain of each launch so far
	counted  []tallied
	ports    []HostPort
}

// tallied is how many pods of a site a tally counts.
type tallied struct {
	tally, pods int32
}

const (
	noDomain  = -1
	ownDomain = -2
)

func (m *model) readSites() {
	for _, n := range m.in.Nodes {
		m.nodes = append(m.nodes, m.site(n, OnNode, nil))
	}
	for i := range m.in.Starting {
		m.starting = append(m.starting, m.site(m.in.Starting[i].Node, OnStarting, m.pool(m.in.Starting[i].Pool)))
	}
	for _, s := range m.supplies {
		for _, n := range s.offer.Standby {
			s.standby = append(s.standby, m.site(n, OnStandby, s))
		}
		for i := range s.offer.Templates {
			n := &s.offer.Templates[i].Node
			if _, there := n.Labels[hostname]; there || n.Name != "" {
				anonymous := *n
				anonymous.Name, anonymous.Labels = "", maps.Clone(n.Labels)
				delete(anonymous.Labels, hostname)
				n = &anonymous
			}
			t := m.site(n, OnLaunch, s)
			t.template = i
			s.templates = append(s.templates, t)
		}
	}
}

func (m *model) pool(name string) *supply {
	for _, s := range m.supplies {
		if s.offer.Pool == name {
			return s
		}
	}
	return nil
}

func (m *model) site(n *Node, on Where, of *supply) *site {
	s := &site{node: n, on: on, supply: of, shape: m.shape(n), free: make([]int64, m.dims)}
	n.Allocatable.vector(m.names, s.free)
	for _, p := range n.Pods {
		s.free[dimCPU] -= p.Requests.CPU
		s.free[dimMemory] -= p.Requests.Memory
		s.free[dimStorage] -= p.Requests.EphemeralStorage
		s.free[dimPods]--
		for i, name := range m.names {
			s.free[dimExtended+i] -= p.Requests.Extended[name]
		}
		if m.ports {
			s.ports = append(s.ports, p.HostPorts...)
		}
	}
	s.domains = m.domainsOf(n, on)
	return s
}

// shape returns the number of the node's shape: nodes of one shape are equal to the
// node selectors, affinities and tolerations of the pods.
func (m *model) shape(n *Node) int32 {
	var key []byte
	for _, label := range m.nodeKeys {
		if value, there := n.Labels[label]; there {
			key = append(strconv.AppendInt(key, int64(len(value)), 10), ':')
			key = append(key, value...)
		} else {
			key = append(key, '-')
		}
	}
	for i := range n.Taints {
		for _, part := range []string{n.Taints[i].Key, n.Taints[i].Value, n.Taints[i].Effect} {
			key = append(append(strconv.AppendInt(key, int64(len(part)), 10), ':'), part...)
		}
	}
	if n.Unschedulable {
		key = append(key, '!')
	}
	if m.nodeNames {
		key = append(append(key, '@'), n.Name...)
	}
	id, there := m.shapes[string(key)]
	if !there {
		id = int32(len(m.shapes)) //nolint:gosec // fewer nodes than that
		m.shapes[string(key)] = id
	}
	return id
}

// The properties of a shape for a pod. Zero means not computed yet.
const (
	askedBit     = 1 << iota // the other bits are set
	affinityBit              // node selector and affinity admit it
	toleratesBit             // no taint keeps the pod away
	cordonBit                // it is schedulable, or the pod tolerates the cordon
	volumesBit               // every volume of the pod can be attached to it
	admitted     = askedBit | affinityBit | toleratesBit | cordonBit | volumesBit
)

// seen returns the properties of s for p, cached.
func (m *model) seen(p *Pod, memory *[]uint8, s *site) uint8 {
	if *memory == nil {
		*memory = make([]uint8, len(m.shapes))
	}
	bits := &(*memory)[s.shape]
	if *bits == 0 {
		*bits = askedBit
		if p.matchesNode(s.node) {
			*bits |= affinityBit
		}
		if p.untolerated(s.node) == nil {
			*bits |= toleratesBit
		}
		if !p.refusesCordon(s.node) {
			*bits |= cordonBit
		}
		if p.unattachable(s.node) == nil {
			*bits |= volumesBit
		}
	}
	return *bits
}

// need is the requests of a pod of c on s; nil means a machine of its own.
func (s *site) need(c *class) []int64 {
	switch {
	case !c.nothing || s.on == OnNode:
		return c.need
	case s.supply == nil:
		return nil
	default:
		return s.supply.fallback
	}
}
