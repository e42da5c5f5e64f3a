//trueup:pure

package demand

import (
	"maps"
	"slices"
)

// class is a set of pods that are equal to the scheduler.
type class struct {
	pod     *Pod    // one of them
	members []int32 // places in model.pods
	set     *labelSet
	need    []int64 // requests
	nothing bool    // requests nothing
	size    float64

	affinity   []int32 // tallies, one for each term
	selfAffine bool    // its own pods satisfy affinity
	anti       []int32
	carries    []int32 // tallies of pods with its anti-affinity terms
	spreads    []int32
	selfs      []int32 // by place in spreads: 1 if the constraint counts its own pods

	seen []uint8 // by shape; see (*model).seen
}

// alike reports that a placed pod of c affects the next one only by the room that is
// left.
func (c *class) alike() bool {
	return len(c.affinity)+len(c.anti)+len(c.spreads)+len(c.pod.HostPorts) == 0
}

// alone is 1 if pods of c have anti-affinity to each other. They come first: they need
// a machine each, and others fill it up.
func (c *class) alone() int {
	for _, id := range c.anti {
		if slices.Contains(c.set.counted, id) {
			return 1
		}
	}
	return 0
}

// labelSet is the pods that all selectors of the input treat alike.
type labelSet struct {
	pod     *Pod
	counted []int32 // tallies that count these pods
	blocked []int32 // tallies of pods whose anti-affinity excludes these
	next    *labelSet
}

// grouping sorts pods into groups of equal ones, by a hash and a comparison.
type grouping struct {
	first map[uint64]int32
	next  []int32
	pods  []*Pod
}

func newGrouping() *grouping {
	return &grouping{first: map[uint64]int32{}}
}

// of returns the number of the group of pods that equal p.
func (g *grouping) of(p *Pod, hash uint64, equal func(a, b *Pod) bool) int32 {
	first, there := g.first[hash]
	if there {
		for i := first; i >= 0; i = g.next[i] {
			if equal(g.pods[i], p) {
				return i
			}
		}
	} else {
		first = -1
	}
	id := int32(len(g.pods)) //nolint:gosec // fewer pods than that
	g.pods, g.next = append(g.pods, p), append(g.next, first)
	g.first[hash] = id
	return id
}

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func hashString(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * fnvPrime
	}
	return (h ^ 0xff) * fnvPrime
}

func hashInt(h uint64, n int64) uint64 {
	h = (h ^ uint64(n)) * fnvPrime
	return h ^ h>>29
}

// hashMap does not depend on the order of m.
func hashMap[V any](h uint64, m map[string]V, value func(uint64, V) uint64) uint64 {
	var sum uint64
	for k, v := range m {
		sum += value(hashString(fnvOffset, k), v)
	}
	return hashInt(hashInt(h, int64(len(m))), int64(sum))
}

// specHash is equal for pods that sameSpec finds equal.
func specHash(p *Pod) uint64 {
	h := hashInt(fnvOffset, p.Requests.CPU)
	h = hashInt(h, p.Requests.Memory)
	h = hashInt(h, p.Requests.EphemeralStorage)
	h = hashInt(h, int64(p.Priority))
	h = hashInt(h, int64(len(p.NodeAffinity))<<32|int64(len(p.Affinity))<<24|int64(len(p.AntiAffinity))<<16|
		int64(len(p.Spread))<<8|int64(len(p.Tolerations)))
	if len(p.Requests.Extended) > 0 {
		h = hashMap(h, p.Requests.Extended, hashInt)
	}
	if len(p.NodeSelector) > 0 {
		h = hashMap(h, p.NodeSelector, hashString)
	}
	for i := range p.NodeAffinity {
		h = hashRequirements(h, p.NodeAffinity[i].Labels)
	}
	for i := range p.Volumes {
		for j := range p.Volumes[i].Nodes {
			h = hashRequirements(h, p.Volumes[i].Nodes[j].Labels)
		}
	}
	for i := range p.Affinity {
		h = hashRequirements(hashString(h, p.Affinity[i].TopologyKey), p.Affinity[i].Selector)
	}
	for i := range p.AntiAffinity {
		h = hashRequirements(hashString(h, p.AntiAffinity[i].TopologyKey), p.AntiAffinity[i].Selector)
	}
	for i := range p.Spread {
		h = hashRequirements(hashString(h, p.Spread[i].TopologyKey), p.Spread[i].Selector)
	}
	for i := range p.Tolerations {
		h = hashString(hashString(h, p.Tolerations[i].Key), p.Tolerations[i].Value)
	}
	for i := range p.HostPorts {
		h = hashInt(h, int64(p.HostPorts[i].Port))
	}
	return h
}

func hashRequirements(h uint64, all []Requirement) uint64 {
	for i := range all {
		h = hashString(hashString(h, all[i].Key), string(all[i].Operator))
		for _, v := range all[i].Values {
			h = hashString(h, v)
		}
	}
	return h
}

// sameSpec reports whether a and b are equal apart from namespace, name and labels.
func sameSpec(a, b *Pod) bool {
	return a.Requests.CPU == b.Requests.CPU && a.Requests.Memory == b.Requests.Memory &&
		a.Requests.EphemeralStorage == b.Requests.EphemeralStorage && a.Priority == b.Priority &&
		sameMap(a.Requests.Extended, b.Requests.Extended) &&
		sameMap(a.NodeSelector, b.NodeSelector) &&
		slices.EqualFunc(a.NodeAffinity, b.NodeAffinity, sameNodeTerm) &&
		slices.EqualFunc(a.Volumes, b.Volumes, sameVolume) &&
		slices.EqualFunc(a.Affinity, b.Affinity, samePodTerm) &&
		slices.EqualFunc(a.AntiAffinity, b.AntiAffinity, samePodTerm) &&
		slices.EqualFunc(a.Spread, b.Spread, sameSpread) &&
		slices.Equal(a.Tolerations, b.Tolerations) &&
		slices.Equal(a.HostPorts, b.HostPorts)
}

func sameMap[V comparable](a, b map[string]V) bool {
	return len(a) == len(b) && (len(a) == 0 || maps.Equal(a, b))
}

func sameRequirement(a, b Requirement) bool {
	return a.Key == b.Key && a.Operator == b.Operator && slices.Equal(a.Values, b.Values)
}

func sameSelector(a, b Selector) bool {
	return (a == nil) == (b == nil) && slices.EqualFunc(a, b, sameRequirement)
}

func sameNodeTerm(a, b NodeTerm) bool {
	return slices.EqualFunc(a.Labels, b.Labels, sameRequirement) && slices.EqualFunc(a.Names, b.Names, sameRequirement)
}

// sameVolume leaves out the name, which decides nothing.
func sameVolume(a, b Volume) bool { return slices.EqualFunc(a.Nodes, b.Nodes, sameNodeTerm) }

func samePodTerm(a, b PodTerm) bool {
	return a.TopologyKey == b.TopologyKey && sameSelector(a.Selector, b.Selector) &&
		slices.Equal(a.Namespaces, b.Namespaces) && sameSelector(a.NamespaceSelector, b.NamespaceSelector)
}

func sameSpread(a, b Spread) bool {
	return a.TopologyKey == b.TopologyKey && a.MaxSkew == b.MaxSkew && a.MinDomains == b.MinDomains &&
		a.IgnoreNodeAffinity == b.IgnoreNodeAffinity && a.HonorTaints == b.HonorTaints && sameSelector(a.Selector, b.Selector)
}
