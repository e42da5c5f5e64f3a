//trueup:pure

package buffers

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

const (
	hostname = "kubernetes.io/hostname"
	zone     = "topology.kubernetes.io/zone"
)

// maxUnits is how many pods of one buffer are planned for. A larger buffer has room for
// that many at most.
const maxUnits = 20_000

// ask is what one buffer asks for, or why it cannot be known.
type ask struct {
	Key     types.NamespacedName
	Created time.Time
	// Pod is the pod of the template, and Units the number of such pods that must have room.
	Pod   *demand.Pod
	Units int32
	// Limited is which limit makes Units fewer than asked for, empty if none does.
	Limited string
	// Generation of the PodTemplate.
	Generation int64
	Err        error
}

// stock is what a pool has and can have.
type stock struct {
	// Supply has the good standby machines, and those that will be ones, and what can be
	// launched now. MaxLaunches is for how many more machines the pool has room.
	demand.Supply

	// Every has all templates, including ones for which the cloud has no capacity now.
	Every []demand.NodeTemplate
}

// input is what a plan is made of. Nothing of it is written.
type input struct {
	Buffers []ask
	Pools   []stock
	// Nodes are the others, with their pods. No pod of a buffer is placed on them: they
	// matter to pods that want to be near others, or away from them.
	Nodes      []*demand.Node
	Namespaces map[string]map[string]string
	// Ready has the machines that are on standby now.
	Ready map[string]bool
}

// result is what the buffers take.
type result struct {
	// Standby is what [cloud.Want] has of it, by pool.
	Standby map[string]map[string]int
	// Outcomes has one for each buffer, in the order of the input.
	Outcomes []outcome
}

// outcome is what becomes of one buffer.
type outcome struct {
	Ask ask
	// Ready pods have room on machines that are on standby, Coming ones on others, and
	// Missing ones nowhere.
	Ready, Coming, Missing int32
	// Pools are those whose machines have the room, and how many machines it takes. A
	// machine may have room for several buffers.
	Pools map[string]int
	// Reasons say why pods are missing.
	Reasons []demand.Reason
}

// machine is one with pods of buffers: a standby machine, or one to launch.
type machine struct {
	pool, id, template string
	number             int
}

// plan says which standby machines the buffers take.
func plan(in input) result {
	r := result{Standby: map[string]map[string]int{}, Outcomes: make([]outcome, len(in.Buffers))}
	need := demand.Input{Namespaces: in.Namespaces}
	index := make(map[*demand.Pod]int, len(in.Buffers))
	order := priorities(in)
	for i, b := range in.Buffers {
		if r.Outcomes[i].Ask = b; b.Err != nil {
			continue
		}
		pod := *b.Pod // a buffer is known by its pod
		pod.Priority = order[i]
		index[&pod] = i
		units := min(b.Units, maxUnits)
		r.Outcomes[i].Missing, r.Outcomes[i].Pools = b.Units-units, map[string]int{}
		for range units {
			need.Pods = append(need.Pods, &pod)
		}
	}
	if len(need.Pods) == 0 {
		return r
	}
	for i := range in.Pools {
		need.Supplies = append(need.Supplies, in.Pools[i].Supply)
	}
	for _, n := range in.Nodes {
		closed := *n
		closed.Allocatable = demand.Resources{} // it takes no pods
		need.Nodes = append(need.Nodes, &closed)
	}
	found := demand.Place(need)
	on := map[machine]map[int]bool{}
	zones := map[string]string{}
	for _, p := range found.Placements {
		i := index[p.Pod]
		m := machine{pool: p.Pool, template: p.Template, number: p.Launch}
		if p.On == demand.OnStandby {
			m.id = p.Node.Machine
			zones[m.id] = p.Node.Labels[zone]
		}
		if in.Ready[m.id] {
			r.Outcomes[i].Ready++
		} else {
			r.Outcomes[i].Coming++
		}
		if on[m] == nil {
			on[m] = map[int]bool{}
		}
		if !on[m][i] {
			on[m][i] = true
			r.Outcomes[i].Pools[m.pool]++
		}
	}
	for _, u := range found.Unplaced {
		o := &r.Outcomes[index[u.Pod]]
		o.Missing++
		o.Reasons = u.Reasons
	}
	for _, p := range found.Unmodelled {
		o := &r.Outcomes[index[p]]
		o.Missing++
		o.Reasons = []demand.Reason{{Message: p.Unmodelled[0]}}
	}
	pools := map[string]*stock{}
	for i := range in.Pools {
		pools[in.Pools[i].Pool] = &in.Pools[i]
	}
	for m, buffers := range on {
		template := ""
		if pool := pools[m.pool]; slices.ContainsFunc(
			slices.Collect(maps.Keys(buffers)),
			func(i int) bool { return bound(in.Buffers[i].Pod, pool) },
		) {
			template = cmp.Or(m.template, pool.templateOf(zones[m.id]))
		}
		if r.Standby[m.pool] == nil {
			r.Standby[m.pool] = map[string]int{}
		}
		r.Standby[m.pool][template]++
	}
	return r
}

// priorities orders the buffers: by the priority of their pods, and of those that are equal
// the ones first that can be in few places. Otherwise pods that may be anywhere would be
// planned for the machines of a place, and machines would stay unused elsewhere. Of those that
// are equal in both, the older ones are first: a newer buffer takes no room from them.
func priorities(in input) []int32 {
	type rank struct {
		priority int32
		places   int
		created  int64 // seconds
	}
	ranks := make([]rank, len(in.Buffers))
	for i, b := range in.Buffers {
		if b.Err != nil {
			continue
		}
		ranks[i].priority, ranks[i].created = b.Pod.Priority, b.Created.Unix()
		for j := range in.Pools {
			if p := &in.Pools[j]; !bound(b.Pod, p) {
				ranks[i].places -= len(p.Every) + 1
				continue
			}
			for k := range in.Pools[j].Every {
				if b.Pod.CanRunOn(&in.Pools[j].Every[k].Node) {
					ranks[i].places--
				}
			}
		}
	}
	compare := func(a, b rank) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.places, b.places), cmp.Compare(b.created, a.created))
	}
	sorted := slices.Clone(ranks)
	slices.SortFunc(sorted, compare)
	sorted = slices.Compact(sorted)
	out := make([]int32, len(ranks))
	for i, r := range ranks {
		at, _ := slices.BinarySearchFunc(sorted, r, compare)
		out[i] = int32(at) //nolint:gosec // few buffers
	}
	return out
}

// templateOf returns the first template of a zone.
func (p *stock) templateOf(name string) string {
	for _, t := range p.Every {
		if t.Node.Labels[zone] == name {
			return t.Name
		}
	}
	return ""
}

// bound reports whether it matters to a pod which machine of the pool it is on: its rules
// do not admit all of them, or concern a whole zone.
func bound(pod *demand.Pod, pool *stock) bool {
	for i := range pool.Every {
		if !pod.CanRunOn(&pool.Every[i].Node) {
			return true
		}
	}
	beyond := func(key string) bool { return key != hostname }
	return slices.ContainsFunc(pod.Spread, func(s demand.Spread) bool { return beyond(s.TopologyKey) }) ||
		slices.ContainsFunc(slices.Concat(pod.Affinity, pod.AntiAffinity), func(t demand.PodTerm) bool { return beyond(t.TopologyKey) })
}

// byNodes reports whether pods that run already matter to one of the buffers.
func byNodes(buffers []ask) bool {
	return slices.ContainsFunc(buffers, func(a ask) bool {
		return a.Err == nil && len(a.Pod.Affinity)+len(a.Pod.AntiAffinity)+len(a.Pod.Spread) > 0
	})
}
