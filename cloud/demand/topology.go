//trueup:pure

package demand

import (
	"fmt"
	"maps"
	"slices"
)

// topology is the domains, and the tallies to count in them.
type topology struct {
	keys     []string           // topology keys
	podKeys  []string           // labels of pods that selectors ask for
	domainID []map[string]int32 // by topology key, then by value of the label
	domains  []int32            // by topology key: the number of domains
	tallies  []*tally
	tallyID  map[string]int32
	sets     map[uint64]*labelSet
	setOrder []*labelSet

	carrying  *grouping // pods by their anti-affinity
	carriedBy [][]int32 // tallies of each group
}

// tally counts pods in the domains of one topology key.
type tally struct {
	kind      tallyKind
	key       int32
	namespace string    // of the pods with the term
	terms     []PodTerm // a pod must match all; for carriers the term itself
	spread    *Spread
	keys      []int32 // for spreading: a node must have these keys to count
	pod       *Pod    // for spreading: this pod's rules decide which nodes count
	seen      []uint8
}

type tallyKind string

const (
	selected  tallyKind = "selected"  // pods that match the terms
	carriers  tallyKind = "carriers"  // pods that have the anti-affinity term
	spreading tallyKind = "spreading" // pods that the constraint counts
)

// readTopology finds the labels of nodes and pods that terms refer to. Pods that are
// already on a machine matter only because of anti-affinity.
func (m *model) readTopology(specs []*Pod) {
	m.topology.tallyID, m.topology.sets, m.topology.carrying = map[string]int32{}, map[uint64]*labelSet{}, newGrouping()
	keys, labels := map[string]bool{}, map[string]bool{}
	selector := func(s Selector) {
		for i := range s {
			labels[s[i].Key] = true
		}
	}
	terms := func(all []PodTerm) {
		for i := range all {
			keys[all[i].TopologyKey] = true
			selector(all[i].Selector)
		}
	}
	for _, p := range specs {
		terms(p.Affinity)
		terms(p.AntiAffinity)
		for i := range p.Spread {
			keys[p.Spread[i].TopologyKey] = true
			selector(p.Spread[i].Selector)
		}
	}
	m.eachPresent(func(p *Pod) { terms(p.AntiAffinity) })
	m.topology.keys, m.topology.podKeys = slices.Sorted(maps.Keys(keys)), slices.Sorted(maps.Keys(labels))
	m.topology.domains = make([]int32, len(m.topology.keys))
	for range m.topology.keys {
		m.topology.domainID = append(m.topology.domainID, map[string]int32{})
	}
}

// eachPresent calls do for each pod that is or will be on a machine without
// being placed.
func (m *model) eachPresent(do func(*Pod)) {
	each := func(n *Node) {
		for _, p := range n.Pods {
			do(p)
		}
	}
	for _, n := range m.in.Nodes {
		each(n)
	}
	for i := range m.in.Starting {
		each(m.in.Starting[i].Node)
	}
	for i := range m.in.Supplies {
		for _, n := range m.in.Supplies[i].Standby {
			each(n)
		}
		for j := range m.in.Supplies[i].Templates {
			each(&m.in.Supplies[i].Templates[j].Node)
		}
	}
}

func (m *model) labelSet(p *Pod) *labelSet {
	if len(m.topology.keys) == 0 {
		if len(m.topology.setOrder) == 0 {
			m.topology.setOrder = []*labelSet{{pod: p}}
		}
		return m.topology.setOrder[0]
	}
	h := hashString(fnvOffset, p.Namespace)
	if p.Terminating {
		h = hashInt(h, 1)
	}
	for _, key := range m.topology.podKeys {
		if value, there := p.Labels[key]; there {
			h = hashString(h, value)
		} else {
			h = hashInt(h, -1)
		}
	}
	for s := m.topology.sets[h]; s != nil; s = s.next {
		if m.sameLabels(s.pod, p) {
			return s
		}
	}
	s := &labelSet{pod: p, next: m.topology.sets[h]}
	m.topology.sets[h] = s
	m.topology.setOrder = append(m.topology.setOrder, s)
	return s
}

func (m *model) sameLabels(a, b *Pod) bool {
	if a.Namespace != b.Namespace || a.Terminating != b.Terminating {
		return false
	}
	for _, key := range m.topology.podKeys {
		left, one := a.Labels[key]
		right, other := b.Labels[key]
		if left != right || one != other {
			return false
		}
	}
	return true
}

// domainsOf is the domain of n for each topology key.
func (m *model) domainsOf(n *Node, on Where) []int32 {
	ids := make([]int32, len(m.topology.keys))
	for k, key := range m.topology.keys {
		value, there := n.Labels[key]
		switch {
		case key == hostname && on == OnLaunch:
			ids[k] = ownDomain
		case !there:
			ids[k] = noDomain
		default:
			id, known := m.topology.domainID[k][value]
			if !known {
				id = m.topology.domains[k]
				m.topology.domainID[k][value] = id
				m.topology.domains[k]++
			}
			ids[k] = id
		}
	}
	return ids
}

// launch is the domains of one machine of a template. A machine always has the same
// ones.
func (m *model) launch(s *site, number int) []int32 {
	k := slices.Index(s.domains, ownDomain)
	if k < 0 {
		return s.domains
	}
	for len(s.launches) <= number {
		s.launches = append(s.launches, m.topology.domains[k])
		m.topology.domains[k]++
	}
	ids := slices.Clone(s.domains)
	ids[k] = s.launches[number]
	return ids
}

// readTallies finds the tallies, and which classes use them.
func (m *model) readTallies() {
	if len(m.topology.keys) == 0 {
		return
	}
	for _, c := range m.classes {
		p := c.pod
		for i := range p.Affinity {
			c.affinity = append(c.affinity, m.selectedTally(p, p.Affinity, p.Affinity[i].TopologyKey))
		}
		c.selfAffine = len(p.Affinity) > 0 && m.matchesAll(p.Affinity, p.Namespace, p)
		for i := range p.AntiAffinity {
			c.anti = append(c.anti, m.selectedTally(p, p.AntiAffinity[i:i+1], p.AntiAffinity[i].TopologyKey))
		}
		c.carries = m.carried(p)
		for i := range p.Spread {
			c.spreads = append(c.spreads, m.spreadTally(p, i))
			self := int32(0)
			if p.Spread[i].Selector.matches(p.Labels) {
				self = 1
			}
			c.selfs = append(c.selfs, self)
		}
	}
	m.eachPresent(func(p *Pod) { m.labelSet(p); m.carried(p) })
	for _, set := range m.topology.setOrder {
		for id, t := range m.topology.tallies {
			if !m.counts(t, set.pod) {
				continue
			}
			if t.kind == carriers {
				set.blocked = append(set.blocked, int32(id)) //nolint:gosec // fewer terms than that
			} else {
				set.counted = append(set.counted, int32(id)) //nolint:gosec // fewer terms than that
			}
		}
	}
	for _, sites := range m.allSites() {
		for _, s := range sites {
			m.countPresent(s)
		}
	}
}

func (m *model) countPresent(s *site) {
	add := func(ids []int32) {
		for _, id := range ids {
			i := slices.IndexFunc(s.counted, func(c tallied) bool { return c.tally == id })
			if i < 0 {
				i = len(s.counted)
				s.counted = append(s.counted, tallied{tally: id})
			}
			s.counted[i].pods++
		}
	}
	for _, p := range s.node.Pods {
		add(m.labelSet(p).counted)
		add(m.carried(p))
	}
}

func (m *model) allSites() [][]*site {
	all := [][]*site{m.nodes, m.starting}
	for _, s := range m.supplies {
		all = append(all, s.standby, s.templates)
	}
	return all
}

// counts reports whether t counts p. For the carriers of a term, these are the pods
// that they keep away.
func (m *model) counts(t *tally, p *Pod) bool {
	if t.kind == spreading {
		return t.spread.counts(t.namespace, p)
	}
	return m.matchesAll(t.terms, t.namespace, p)
}

func (m *model) matchesAll(terms []PodTerm, own string, p *Pod) bool {
	for i := range terms {
		if !terms[i].matches(own, p, m.namespaces) {
			return false
		}
	}
	return true
}

func (m *model) selectedTally(p *Pod, terms []PodTerm, key string) int32 {
	return m.tally("selected "+identity(p.Namespace, key, terms), func() *tally {
		return &tally{kind: selected, key: m.key(key), namespace: p.Namespace, terms: terms}
	})
}

// carried are the tallies of the anti-affinity terms of p.
func (m *model) carried(p *Pod) []int32 {
	if len(p.AntiAffinity) == 0 {
		return nil
	}
	h := hashString(fnvOffset, p.Namespace)
	for i := range p.AntiAffinity {
		h = hashRequirements(hashString(h, p.AntiAffinity[i].TopologyKey), p.AntiAffinity[i].Selector)
	}
	group := m.topology.carrying.of(p, h, func(a, b *Pod) bool {
		return a.Namespace == b.Namespace && slices.EqualFunc(a.AntiAffinity, b.AntiAffinity, samePodTerm)
	})
	if int(group) == len(m.topology.carriedBy) { // the first of its kind
		var ids []int32
		for i := range p.AntiAffinity {
			term := p.AntiAffinity[i : i+1]
			ids = append(ids, m.tally("carriers "+identity(p.Namespace, term[0].TopologyKey, term), func() *tally {
				return &tally{kind: carriers, key: m.key(term[0].TopologyKey), namespace: p.Namespace, terms: term}
			}))
		}
		m.topology.carriedBy = append(m.topology.carriedBy, ids)
	}
	return m.topology.carriedBy[group]
}

// identity is equal for terms that select the same pods.
func identity(namespace, key string, terms []PodTerm) string {
	return fmt.Sprintf("%q %q %#v", namespace, key, terms)
}

// spreadTally is the tally of constraint i. Pods with different requests share it.
func (m *model) spreadTally(p *Pod, i int) int32 {
	s, keys := &p.Spread[i], []int32(nil)
	for j := range p.Spread {
		keys = append(keys, m.key(p.Spread[j].TopologyKey))
	}
	slices.Sort(keys)
	view := ""
	if !s.IgnoreNodeAffinity {
		view = fmt.Sprintf("%#v %#v", p.NodeSelector, p.NodeAffinity)
	}
	if s.HonorTaints {
		view += fmt.Sprintf("%#v", p.Tolerations)
	}
	return m.tally(fmt.Sprintf("spreading %q %d %#v %s", p.Namespace, keys, *s, view), func() *tally {
		return &tally{kind: spreading, key: m.key(s.TopologyKey), namespace: p.Namespace, spread: s, keys: keys, pod: p}
	})
}

func (m *model) key(name string) int32 {
	i, _ := slices.BinarySearch(m.topology.keys, name)
	return int32(i) //nolint:gosec // fewer keys than that
}

func (m *model) tally(id string, build func() *tally) int32 {
	n, there := m.topology.tallyID[id]
	if !there {
		n = int32(len(m.topology.tallies)) //nolint:gosec // fewer terms than that
		m.topology.tallyID[id] = n
		m.topology.tallies = append(m.topology.tallies, build())
	}
	return n
}
