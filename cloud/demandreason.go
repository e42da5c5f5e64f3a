//trueup:pure

package cloud

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// reasons returns for each pool why it does not help c.
func (p *packing) reasons(c *class) []Reason {
	all := make([]Reason, 0, len(p.supplies))
	for _, s := range p.supplies {
		all = append(all, Reason{Pool: s.Pool, Message: p.reason(c, s)})
	}
	slices.SortStableFunc(all, func(a, b Reason) int { return cmp.Compare(a.Pool, b.Pool) })
	return all
}

func (p *packing) reason(c *class, s *supply) string {
	sites := slices.Concat(s.standby, s.templates)
	if len(sites) == 0 {
		return "has no machine that can be started or launched"
	}
	fitting := func(bit uint8) []*site {
		return slices.DeleteFunc(slices.Clone(sites), func(s *site) bool { return p.seen(c.pod, &c.seen, s)&bit == 0 })
	}
	if sites = fitting(affinityBit); len(sites) == 0 {
		return unselected(c.pod, s)
	}
	remaining := sites
	if sites = fitting(toleratesBit); len(intersect(remaining, sites)) == 0 {
		t := c.pod.untolerated(remaining[0].node)
		return fmt.Sprintf("its machines have taint %s, which the pod does not tolerate", taintText(t))
	}
	if remaining = intersect(intersect(remaining, sites), fitting(cordonBit)); len(remaining) == 0 {
		return "its machines are unschedulable"
	}
	if large := slices.DeleteFunc(slices.Clone(remaining), func(s *site) bool { return !p.room(c, s, s.free, 0) }); len(large) > 0 {
		return p.refusal(c, s, large)
	}
	return p.shortage(c, remaining)
}

func intersect(a, b []*site) []*site {
	return slices.DeleteFunc(slices.Clone(a), func(s *site) bool { return !slices.Contains(b, s) })
}

// unselected is why no machine of s is one that pod asks for.
func unselected(pod *Pod, s *supply) string {
	nodes := make([]*Node, 0, len(s.Standby)+len(s.templates))
	nodes = append(nodes, s.Standby...)
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

func taintText(t *Taint) string {
	if t.Value == "" {
		return t.Key + ":" + t.Effect
	}
	return t.Key + "=" + t.Value + ":" + t.Effect
}

// shortage is what a pod of c needs more of than each of the machines has.
func (p *packing) shortage(c *class, machines []*site) string {
	need := machines[0].need(c)
	if need == nil {
		need = c.need
	}
	most := slices.Clone(machines[0].free)
	for _, m := range machines {
		for d := range most {
			most[d] = max(most[d], m.free[d])
		}
	}
	var short []string
	for d, n := range need {
		if n > most[d] && n > 0 {
			short = append(short, fmt.Sprintf("needs %s, the largest machine has %s", p.amount(d, n), p.amount(d, max(most[d], 0))))
		}
	}
	if len(short) == 0 {
		return "no machine has enough of all resources at once"
	}
	return strings.Join(short, "; ")
}

// refusal is why machines that are large enough are not used.
func (p *packing) refusal(c *class, s *supply, machines []*site) string {
	var unused []*site
	for _, m := range machines {
		i := slices.Index(s.standby, m)
		if i >= 0 && !p.started[s.index][i] || i < 0 && p.launches[s.index] < s.MaxLaunches {
			unused = append(unused, m)
		}
	}
	if len(unused) == 0 {
		return fmt.Sprintf("all %d standby machines and %d launches are taken", len(s.standby), s.MaxLaunches)
	}
	var why []string
	for _, m := range unused {
		if reason := p.obstacle(c, m); !slices.Contains(why, reason) {
			why = append(why, reason)
		}
	}
	return strings.Join(why, "; ")
}

// obstacle is what keeps c off a machine that it has room on.
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
			return fmt.Sprintf("anti-affinity keeps the pod out of the %s of its machines", p.keys[p.tallies[id].key])
		}
	}
	if !p.allowsAffinity(c, m, s.counted) {
		return "no machine is near the pods that the pod affinity asks for"
	}
	for i, id := range c.spreads {
		one := *c
		one.spreads, one.selfs = c.spreads[i:i+1], c.selfs[i:i+1]
		if !p.allowsSpread(&one, m, s.counted) {
			spread := p.tallies[id].spread
			return fmt.Sprintf("one more pod would exceed skew %d over %s", max(spread.MaxSkew, 1), spread.TopologyKey)
		}
	}
	return "its machines have no place left"
}

// amount is n of a resource in the units that people use.
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
		return strconv.FormatInt(n, 10) + " " + p.names[d-dimExtended]
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
