//trueup:pure

package demand

import (
	"cmp"
	"maps"
	"slices"
)

const hostname = "kubernetes.io/hostname"

// model is the input of one call of [Place] in a compact form. It does not change
// while pods are packed.
type model struct {
	in         *Input
	pods       []*Pod // pods to place, sorted
	unmodelled []*Pod
	classes    []*class // in the order in which they are placed
	namespaces map[string]map[string]string

	names    []string // of extended resources
	dims     int
	supplies []*supply // higher weight first, then by name

	topology  topology // what terms and constraints count
	shapes    map[string]int32
	nodeKeys  []string // labels of nodes that pods ask for
	nodeNames bool     // whether pods ask for names of nodes
	ports     bool     // whether pods ask for ports of nodes

	nodes    []*site
	starting []*site
}

// supply is a [Supply] with its machines.
type supply struct {
	offer     *Supply
	index     int32
	standby   []*site
	templates []*site
	fallback  []int64 // assumed requests of a pod without requests; nil: a whole machine
}

func newModel(in *Input) *model {
	m := &model{in: in, shapes: map[string]int32{}}
	for _, p := range sortPods(in.Pods) {
		if len(p.Unmodelled) > 0 {
			m.unmodelled = append(m.unmodelled, p)
		}
	}
	m.pods = sortPods(in.Pods)
	if len(m.unmodelled) > 0 {
		m.pods = slices.DeleteFunc(slices.Clone(m.pods), func(p *Pod) bool { return len(p.Unmodelled) > 0 })
	}
	m.namespaces = namespaceLabels(in)

	// The kinds of pods, without their labels; then which labels matter; then
	// the classes.
	specs, spec := newGrouping(), make([]int32, len(m.pods))
	for i, p := range m.pods {
		spec[i] = specs.of(p, specHash(p), sameSpec)
	}
	m.readKeys(specs.pods)
	m.readTopology(specs.pods)
	m.readSupplies()
	m.readClasses(specs, spec)
	m.readSites()
	m.readTallies()
	m.orderClasses()
	return m
}

// namespaceLabels adds the label that every namespace has.
func namespaceLabels(in *Input) map[string]map[string]string {
	const label = "kubernetes.io/metadata.name"
	all := make(map[string]map[string]string, len(in.Namespaces))
	for name, labels := range in.Namespaces {
		if _, there := labels[label]; !there {
			labels = maps.Clone(labels)
			if labels == nil {
				labels = map[string]string{}
			}
			labels[label] = name
		}
		all[name] = labels
	}
	return all
}

// readKeys finds which labels and names of nodes the specs refer to.
func (m *model) readKeys(specs []*Pod) {
	labels, extended := map[string]bool{}, map[string]bool{}
	for _, p := range specs {
		for key := range p.NodeSelector {
			labels[key] = true
		}
		m.readTerms(p.NodeAffinity, labels)
		for i := range p.Volumes {
			m.readTerms(p.Volumes[i].Nodes, labels)
		}
		for name := range p.Requests.Extended {
			extended[name] = true
		}
		m.ports = m.ports || len(p.HostPorts) > 0
	}
	for i := range m.in.Supplies {
		for name := range m.in.Supplies[i].DefaultRequests.Extended {
			extended[name] = true
		}
	}
	m.nodeKeys = slices.Sorted(maps.Keys(labels))
	m.names = slices.Sorted(maps.Keys(extended))
	m.dims = dimExtended + len(m.names)
}

func (m *model) readTerms(terms []NodeTerm, labels map[string]bool) {
	for i := range terms {
		for j := range terms[i].Labels {
			labels[terms[i].Labels[j].Key] = true
		}
		m.nodeNames = m.nodeNames || len(terms[i].Names) > 0
	}
}

func (m *model) readSupplies() {
	m.supplies = make([]*supply, len(m.in.Supplies))
	for i := range m.in.Supplies {
		s := &supply{offer: &m.in.Supplies[i]}
		if !s.offer.DefaultRequests.empty() {
			s.fallback = m.needs(&s.offer.DefaultRequests)
		}
		m.supplies[i] = s
	}
	slices.SortStableFunc(m.supplies, func(a, b *supply) int {
		return cmp.Or(cmp.Compare(b.offer.Weight, a.offer.Weight), cmp.Compare(a.offer.Pool, b.offer.Pool))
	})
	for i, s := range m.supplies {
		s.index = int32(i) //nolint:gosec // fewer pools than that
	}
}

// needs is the vector of requests that one pod takes from a node.
func (m *model) needs(r *Resources) []int64 {
	v := make([]int64, m.dims)
	r.vector(m.names, v)
	v[dimPods] = 1
	return v
}

func (m *model) readClasses(specs *grouping, spec []int32) {
	nothing := make([]bool, len(specs.pods))
	needs := make([][]int64, len(specs.pods))
	for i, p := range specs.pods {
		nothing[i], needs[i] = p.Requests.empty(), m.needs(&p.Requests)
	}
	type identity struct {
		spec int32
		set  *labelSet
	}
	ids, last := map[identity]*class{}, (*class)(nil)
	var lastID identity
	for i, p := range m.pods {
		id := identity{spec[i], m.labelSet(p)}
		c := last
		if c == nil || id != lastID {
			c = ids[id]
		}
		if c == nil {
			c = &class{pod: p, set: id.set, need: needs[id.spec], nothing: nothing[id.spec]}
			ids[id] = c
			m.classes = append(m.classes, c)
		}
		c.members = append(c.members, int32(i)) //nolint:gosec // fewer pods than that
		last, lastID = c, id
	}
}

// orderClasses puts the classes into the order in which they are placed.
func (m *model) orderClasses() {
	largest := make([]int64, m.dims)
	each := func(sites []*site) {
		for _, s := range sites {
			for d, n := range s.free {
				largest[d] = max(largest[d], n)
			}
		}
	}
	for _, s := range m.supplies {
		each(s.standby)
		each(s.templates)
	}
	if len(m.supplies) == 0 {
		each(m.nodes)
	}
	for _, c := range m.classes {
		for d, n := range c.need {
			if d != dimPods && n > 0 {
				c.size += float64(n) / float64(max(largest[d], 1))
			}
		}
	}
	slices.SortStableFunc(m.classes, func(a, b *class) int {
		return cmp.Or(
			cmp.Compare(b.pod.Priority, a.pod.Priority),
			cmp.Compare(b.alone(), a.alone()),
			cmp.Compare(b.size, a.size),
			slices.Compare(b.need, a.need),
			comparePods(a.pod, b.pod))
	})
}
