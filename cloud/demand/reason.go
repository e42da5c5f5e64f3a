//trueup:pure

package demand

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// How close a pool is to helping a pod: the closest come first among the reasons.
const (
	withoutRoom = iota // the pod may run on its machines
	closed             // it has no machines, or the pod may not run on them
	notSelected        // the pod selects other machines
)

// reasons returns for each pool the reason why it does not help c.
func (p *packing) reasons(c *class) []Reason {
	ranks := make(map[string]int, len(p.model.supplies))
	all := make([]Reason, 0, len(p.model.supplies))
	for _, s := range p.model.supplies {
		rank, message := p.reason(c, s)
		ranks[s.offer.Pool] = rank
		all = append(all, Reason{Pool: s.offer.Pool, Message: message})
	}
	slices.SortStableFunc(all, func(a, b Reason) int {
		return cmp.Or(cmp.Compare(ranks[a.Pool], ranks[b.Pool]), cmp.Compare(a.Pool, b.Pool))
	})
	return all
}

func (p *packing) reason(c *class, s *supply) (rank int, message string) {
	sites := slices.Concat(s.standby, s.templates)
	if len(sites) == 0 {
		return closed, "has no machine that can be started or launched" + s.limit()
	}
	fitting := func(bit uint8) []*site {
		return slices.DeleteFunc(slices.Clone(sites), func(s *site) bool { return p.model.seen(c.pod, &c.seen, s)&bit == 0 })
	}
	if sites = fitting(affinityBit); len(sites) == 0 {
		return notSelected, unselected(c.pod, s)
	}
	remaining := sites
	if sites = fitting(volumesBit); len(intersect(remaining, sites)) == 0 {
		return notSelected, detached(c.pod, remaining)
	}
	remaining = intersect(remaining, sites)
	if sites = fitting(toleratesBit); len(intersect(remaining, sites)) == 0 {
		t := c.pod.untolerated(remaining[0].node)
		return closed, fmt.Sprintf("its machines have taint %s, which the pod does not tolerate", taintText(t))
	}
	if remaining = intersect(intersect(remaining, sites), fitting(cordonBit)); len(remaining) == 0 {
		return closed, "its machines are unschedulable"
	}
	if large := slices.DeleteFunc(slices.Clone(remaining), func(s *site) bool { return !p.room(c, s, s.free, 0) }); len(large) > 0 {
		return withoutRoom, p.refusal(c, s, large)
	}
	return withoutRoom, p.shortage(c, remaining)
}

func intersect(a, b []*site) []*site {
	return slices.DeleteFunc(slices.Clone(a), func(s *site) bool { return !slices.Contains(b, s) })
}

// unselected returns why pod selects no machine of s.
func unselected(pod *Pod, s *supply) string {
	nodes := make([]*Node, 0, len(s.offer.Standby)+len(s.templates))
	nodes = append(nodes, s.offer.Standby...)
	for _, t := range s.templates {
		nodes = append(nodes, t.node)
	}
	var missing []string
	for _, key := range slices.Sorted(maps.Keys(pod.NodeSelector)) {
		want := pod.NodeSelector[key]
		has := func(n *Node) bool { value, there := n.Labels[key]; return there && value == want }
		if !slices.ContainsFunc(nodes, has) {
			missing = append(missing, key+"="+want)
		}
	}
	switch {
	case len(missing) > 0:
		return "no machine has label " + strings.Join(missing, ", ")
	case len(pod.NodeAffinity) == 0:
		return "no machine has all labels of the node selector"
	default:
		return "no machine matches the node selector and the node affinity"
	}
}

// detached returns why a volume of pod can be attached to none of the machines.
func detached(pod *Pod, machines []*site) string {
	v := pod.unattachable(machines[0].node)
	for i := range pod.Volumes { // one that no machine takes is the better reason
		if !slices.ContainsFunc(machines, func(s *site) bool { return anyMatches(pod.Volumes[i].Nodes, s.node) }) {
			v = &pod.Volumes[i]
			break
		}
	}
	if len(v.Nodes) == 0 {
		return v.Name + " can be attached to no node"
	}
	terms := make([]string, 0, len(v.Nodes))
	for _, t := range v.Nodes {
		var all []string
		for _, r := range slices.Concat(t.Labels, t.Names) {
			all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Key, strings.ToLower(string(r.Operator)), strings.Join(r.Values, ", "))))
		}
		terms = append(terms, strings.Join(all, " and "))
	}
	return fmt.Sprintf("%s is attachable only where %s: no machine would be there", v.Name, strings.Join(terms, ", or "))
}

func taintText(t *Taint) string {
	if t.Value == "" {
		return t.Key + ":" + t.Effect
	}
	return t.Key + "=" + t.Value + ":" + t.Effect
}

// shortage names the resources of which a pod of c needs more than any of the machines
// has.
func (p *packing) shortage(c *class, machines []*site) string {
	need := machines[0].need(c)
	if need == nil {
		need = c.need
	}
	freest := slices.Clone(machines[0].free)
	for _, m := range machines {
		for d := range freest {
			freest[d] = max(freest[d], m.free[d])
		}
	}
	var short []string
	for d, n := range need {
		if n > freest[d] && n > 0 {
			short = append(short, fmt.Sprintf("needs %s, the largest machine has %s", p.amount(d, n), p.amount(d, max(freest[d], 0))))
		}
	}
	if len(short) == 0 {
		return "no machine has enough of all resources at once"
	}
	return strings.Join(short, "; ")
}

// refusal returns why machines that are large enough are not used.
func (p *packing) refusal(c *class, s *supply, machines []*site) string {
	var unused []*site
	for _, m := range machines {
		i := slices.Index(s.standby, m)
		if i >= 0 && !p.started[s.index][i] || i < 0 && p.launches[s.index] < s.offer.Coming+s.offer.MaxLaunches {
			unused = append(unused, m)
		}
	}
	if len(unused) == 0 {
		return fmt.Sprintf("all %d standby machines and %d launches are taken", len(s.standby), s.offer.Coming+s.offer.MaxLaunches) + s.limit()
	}
	var why []string
	for _, m := range unused {
		if reason := p.obstacle(c, m); !slices.Contains(why, reason) {
			why = append(why, reason)
		}
	}
	return strings.Join(why, "; ")
}

// limit returns why a pool launches no further machine, as a suffix for a pod's reason.
func (s *supply) limit() string {
	if s.offer.Limit == "" {
		return ""
	}
	return ": " + s.offer.Limit
}

// obstacle returns what keeps c off a machine with room for it.
func (p *packing) obstacle(c *class, s *site) string {
	m := &machine{site: s, domains: s.domains}
	for _, port := range c.pod.HostPorts {
		for i := range s.ports {
			if port.conflicts(&s.ports[i]) {
				return fmt.Sprintf("host port %d/%s is taken on every machine", port.Port, orDefault(port.Protocol, "TCP"))
			}
		}
	}
	for _, id := range slices.Concat(c.set.blocked, c.anti) {
		if p.near(id, m, s.counted) > 0 {
			return fmt.Sprintf("anti-affinity keeps the pod out of the %s of its machines", p.model.topology.keys[p.model.topology.tallies[id].key])
		}
	}
	if !p.allowsAffinity(c, m, s.counted) {
		return "no machine is near the pods that the pod affinity asks for"
	}
	for i, id := range c.spreads {
		one := *c
		one.spreads, one.selfs = c.spreads[i:i+1], c.selfs[i:i+1]
		if !p.allowsSpread(&one, m, s.counted) {
			spread := p.model.topology.tallies[id].spread
			return fmt.Sprintf("one more pod would exceed skew %d over %s", max(spread.MaxSkew, 1), spread.TopologyKey)
		}
	}
	return "its machines have no place left"
}

// amount formats n of a resource in common units.
func (p *packing) amount(d int, n int64) string {
	switch d {
	case dimCPU:
		return strconv.FormatFloat(float64(n)/1000, 'f', -1, 64) + " cpu"
	case dimMemory:
		return bytes(n) + " memory"
	case dimStorage:
		return bytes(n) + " ephemeral storage"
	case dimPods:
		return strconv.FormatInt(n, 10) + " pods"
	default:
		return strconv.FormatInt(n, 10) + " " + p.model.names[d-dimExtended]
	}
}

func bytes(n int64) string {
	for _, unit := range []struct {
		name string
		size int64
	}{{"Gi", 1 << 30}, {"Mi", 1 << 20}, {"Ki", 1 << 10}} {
		if n >= unit.size {
			return strconv.FormatFloat(float64(n)/float64(unit.size), 'f', -1, 64) + unit.name
		}
	}
	return strconv.FormatInt(n, 10)
}
