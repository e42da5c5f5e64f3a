package demand_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

// batches is how many random batches a test looks at: n, a fifth of it with -short, or
// TRUEUP_BATCHES.
func batches(t *testing.T, n int) int {
	t.Helper()
	if s := os.Getenv("TRUEUP_BATCHES"); s != "" {
		more, err := strconv.Atoi(s)
		require.NoError(t, err, "TRUEUP_BATCHES")
		return more
	}
	if testing.Short() {
		return n / 5
	}
	return n
}

// seeds calls do with the seed of each batch; TRUEUP_SEED repeats one of them.
func seeds(t *testing.T, n int, do func(seed uint64)) {
	t.Helper()
	first, count := uint64(1), batches(t, n)
	if s := os.Getenv("TRUEUP_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err, "TRUEUP_SEED")
		first, count = seed, 1
	}
	for i := range count {
		do(first + uint64(i))
		if t.Failed() {
			t.Fatalf("repeat with TRUEUP_SEED=%d", first+uint64(i))
		}
	}
}

const hostname = "kubernetes.io/hostname"

// batch is random input with constraints of all kinds.
type batch struct{ *rand.Rand }

func newBatch(seed uint64) batch { return batch{rand.New(rand.NewPCG(seed, 12))} }

func pick[T any](b batch, of ...T) T { return of[b.IntN(len(of))] }

func (b batch) one(in int) bool { return b.IntN(in) == 0 }

func (b batch) labels() map[string]string {
	l := map[string]string{}
	if !b.one(6) {
		l["app"] = pick(b, "a", "b", "c")
	}
	if b.one(3) {
		l["tier"] = pick(b, "1", "2")
	}
	return l
}

func (b batch) selector() demand.Selector {
	switch b.IntN(12) {
	case 0:
		return nil
	case 1:
		return demand.Selector{}
	case 2:
		return demand.Selector{{Key: "tier", Operator: pick(b, demand.Exists, demand.DoesNotExist)}}
	case 3:
		return demand.Selector{{Key: "app", Operator: demand.NotIn, Values: []string{"a"}}}
	default:
		return demand.Selector{{Key: "app", Operator: demand.In, Values: []string{pick(b, "a", "b", "c")}}}
	}
}

func (b batch) terms() []demand.PodTerm {
	t := demand.PodTerm{TopologyKey: pick(b, "zone", hostname, hostname, "rack"), Selector: b.selector()}
	switch b.IntN(6) {
	case 0:
		t.Namespaces = []string{"two"}
	case 1:
		t.NamespaceSelector = demand.Selector{{Key: "team", Operator: demand.Exists}}
	}
	if b.one(5) {
		return append(b.terms(), t)
	}
	return []demand.PodTerm{t}
}

// pods are some groups of equal pods.
func (b batch) pods(prefix string, groups, most int, constrained bool) (all []*demand.Pod) {
	for g := range groups {
		p := demand.Pod{Namespace: pick(b, "one", "one", "two"), Labels: b.labels(), Requests: b.requests()}
		if constrained {
			b.constrain(&p)
		}
		for i := range 1 + b.IntN(most) {
			one := p
			one.Name = fmt.Sprintf("%s-%d-%d", prefix, g, i)
			one.UID = one.Name
			all = append(all, &one)
		}
	}
	return all
}

func (b batch) requests() demand.Resources {
	r := demand.Resources{CPU: pick[int64](b, 0, 100, 500, 1000, 1500, 2100), Memory: pick[int64](b, 0, 256, 1024, 2048) << 20}
	if b.one(8) {
		r.EphemeralStorage = 5 << 30
	}
	if b.one(10) {
		r.Extended = map[string]int64{"gpu": 1}
	}
	return r
}

func (b batch) constrain(p *demand.Pod) {
	if b.one(4) {
		p.NodeSelector = map[string]string{"zone": pick(b, "x", "y", "z", "nowhere")}
	}
	if b.one(6) {
		p.NodeAffinity = []demand.NodeTerm{
			{Labels: []demand.Requirement{{Key: "zone", Operator: pick(b, demand.In, demand.NotIn), Values: []string{"x", "y"}}}},
			{Labels: []demand.Requirement{{Key: "size", Operator: pick(b, demand.Gt, demand.Lt), Values: []string{"4"}}}},
		}
	}
	if b.one(20) {
		p.NodeAffinity = []demand.NodeTerm{
			{Names: []demand.Requirement{{Operator: pick(b, demand.In, demand.NotIn), Values: []string{"node-0", "a-1"}}}},
		}
	}
	if b.one(20) {
		p.NodeAffinity = append(p.NodeAffinity, demand.NodeTerm{})
	}
	for b.one(6) {
		v := demand.Volume{Name: "v", Nodes: []demand.NodeTerm{
			{Labels: []demand.Requirement{{Key: "zone", Operator: demand.In, Values: []string{pick(b, "x", "y", "z", "nowhere")}}}},
		}}
		if b.one(4) {
			only := demand.Requirement{Operator: demand.In, Values: []string{pick(b, "node-0", "a-1")}}
			v.Nodes = append(v.Nodes, demand.NodeTerm{Names: []demand.Requirement{only}})
		}
		p.Volumes = append(p.Volumes, v)
	}
	if b.one(5) {
		p.AntiAffinity = b.terms()
	}
	if b.one(6) {
		p.Affinity = b.terms()
	}
	for b.one(3) {
		p.Spread = append(p.Spread, demand.Spread{
			TopologyKey: pick(
				b,
				"zone",
				"zone",
				hostname,
				hostname,
				"rack",
			),
			MaxSkew:            pick[int32](b, 1, 1, 2, 5),
			MinDomains:         pick[int32](b, 0, 0, 0, 2, 3),
			Selector:           b.selector(),
			IgnoreNodeAffinity: b.one(5),
			HonorTaints:        b.one(4),
		})
	}
	if b.one(3) {
		p.Tolerations = []demand.Toleration{pick(b, demand.Toleration{Key: "dedicated", Value: "gpu", Effect: demand.NoSchedule},
			demand.Toleration{Exists: true}, demand.Toleration{Key: "dedicated", Exists: true}, demand.Toleration{Key: "dedicated", Value: "web"})}
		if p.Tolerations[0].Key == "" {
			p.Tolerations[0].Key = "other" // tolerating all would include stopped machines
		}
	}
	if b.one(8) {
		p.HostPorts = []demand.HostPort{{Port: 80, IP: pick(b, "", "10.0.0.1", "0.0.0.0"), Protocol: pick(b, "", "UDP")}}
	}
	if b.one(8) {
		p.Priority = 10
	}
}

func (b batch) node(name, zone string) *demand.Node {
	size := pick[int64](b, 2, 4, 8)
	n := &demand.Node{
		Name: name, Labels: map[string]string{"zone": zone, "size": strconv.FormatInt(size, 10), hostname: name},
		Allocatable: demand.Resources{CPU: size * 1000, Memory: size << 31, EphemeralStorage: 20 << 30, Pods: pick[int64](b, 4, 20)},
	}
	if b.one(4) {
		n.Labels["rack"] = pick(b, "1", "2")
	}
	if b.one(4) {
		n.Allocatable.Extended = map[string]int64{"gpu": 2}
	}
	if b.one(5) {
		n.Taints = []demand.Taint{{Key: "dedicated", Value: "gpu", Effect: pick(b, demand.NoSchedule, demand.NoExecute, "PreferNoSchedule")}}
	}
	if b.one(3) {
		n.Pods = []*demand.Pod{{Namespace: "kube-system", Name: "ds", UID: name + "-ds", Requests: demand.Resources{CPU: 100}}}
	}
	return n
}

func (b batch) zone() string { return pick(b, "x", "y", "z") }

func (b batch) input() demand.Input {
	in := demand.Input{
		Namespaces: map[string]map[string]string{"one": nil, "two": {"team": "t"}},
		Pods:       b.pods("pod", 1+b.IntN(5), 8, true),
	}
	w := &world{namespaces: in.Namespaces}
	for i := range b.IntN(4) {
		n := b.node(fmt.Sprintf("node-%d", i), b.zone())
		n.Unschedulable = b.one(8)
		in.Nodes = append(in.Nodes, n)
		w.add(n)
	}
	for i, p := range b.pods("old", b.IntN(4), 3, true) {
		p.Terminating = b.one(6)
		for _, n := range w.nodes {
			if w.fits(p, n) == "" && (i+len(n.pods))%3 > 0 {
				n.pods = append(n.pods, p)
				n.Pods = append(n.Pods, p)
				break
			}
		}
	}
	for i := range b.IntN(3) {
		s := demand.Starting{Pool: pick(b, "a", "b"), Node: b.node(fmt.Sprintf("starting-%d", i), b.zone())}
		if p := in.Pods[b.IntN(len(in.Pods))]; b.one(2) {
			s.Reserved = []string{p.UID}
		}
		in.Starting = append(in.Starting, s)
	}
	for _, pool := range []string{"a", "b", "c"}[:1+b.IntN(3)] {
		s := demand.Supply{Pool: pool, Weight: pick[int32](b, 0, 0, 5), MaxLaunches: b.IntN(8), Coming: pick(b, 0, 0, 1, 3)}
		for i := range b.IntN(4) {
			s.Standby = append(s.Standby, b.node(fmt.Sprintf("%s-%d", pool, i), b.zone()))
		}
		for i := range 1 + b.IntN(3) {
			n := b.node("", []string{"x", "y", "z"}[i])
			delete(n.Labels, hostname)
			s.Templates = append(s.Templates, demand.NodeTemplate{Name: fmt.Sprint(i), Node: *n})
		}
		in.Supplies = append(in.Supplies, s)
	}
	return in
}

// after is the world when all machines of r have started.
func after(in demand.Input, r demand.Result) (w *world, at map[string]*dumbNode) {
	w, at = &world{namespaces: in.Namespaces}, map[string]*dumbNode{}
	for _, n := range in.Nodes {
		at[n.Name] = w.add(n)
	}
	for _, s := range in.Starting {
		at[s.Node.Name] = w.add(s.Node)
	}
	for _, s := range in.Supplies {
		var d demand.PoolDemand
		if i := slices.IndexFunc(r.Pools, func(d demand.PoolDemand) bool { return d.Pool == s.Pool }); i >= 0 {
			d = r.Pools[i]
		}
		for _, n := range s.Standby {
			at[n.Name] = w.add(n)
			at[n.Name].stopped = !slices.Contains(d.Start, n)
		}
		for _, l := range d.Launch {
			for i := range l.Count {
				node := launched(s, l.Template, i)
				at[node.Name] = w.add(node)
			}
		}
	}
	return w, at
}

func launched(s demand.Supply, template string, number int) *demand.Node {
	t := s.Templates[slices.IndexFunc(s.Templates, func(t demand.NodeTemplate) bool { return t.Name == template })].Node
	t.Name, t.Labels = fmt.Sprintf("%s/%s/%d", s.Pool, template, number), maps.Clone(t.Labels)
	t.Labels[hostname] = t.Name
	return &t
}

func nodeOf(at demand.PlacedPod) string {
	if at.On == demand.OnLaunch {
		return fmt.Sprintf("%s/%s/%d", at.Pool, at.Template, at.Launch)
	}
	return at.Node.Name
}

func requestsNothing(p *demand.Pod) bool {
	return cmp.Equal(p.Requests, demand.Resources{})
}

// settle places pods where placements say, and returns those that the scheduler
// would refuse in every order that was tried. It always places the first one
// that can be; pods that others count, but that count none, can be in the way.
func settle(w *world, at map[string]*dumbNode, placements []demand.PlacedPod) (refused []string) {
	before := map[*dumbNode][]*demand.Pod{}
	for _, n := range w.nodes {
		before[n] = slices.Clone(n.pods)
	}
	order, b := slices.Clone(placements), newBatch(1)
	for i := range 200 {
		refused = settleInOrder(w, at, order)
		if len(refused) == 0 {
			return nil
		}
		if i > 0 {
			b.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		if i%2 == 0 {
			slices.SortStableFunc(order, func(a, b demand.PlacedPod) int { return len(b.Pod.Spread) - len(a.Pod.Spread) })
		}
		for n, pods := range before {
			n.pods = slices.Clone(pods)
		}
	}
	return refused
}

func settleInOrder(w *world, at map[string]*dumbNode, order []demand.PlacedPod) (refused []string) {
	left := slices.Clone(order)
	for {
		i := slices.IndexFunc(left, func(p demand.PlacedPod) bool { return w.fits(p.Pod, at[nodeOf(p)]) == "" })
		if i < 0 {
			break
		}
		n := at[nodeOf(left[i])]
		n.pods = append(n.pods, left[i].Pod)
		left = slices.Delete(left, i, i+1)
	}
	for _, p := range left {
		refused = append(refused, fmt.Sprintf("%s on %s: %s", p.Pod.Name, nodeOf(p), w.fits(p.Pod, at[nodeOf(p)])))
	}
	return refused
}

func TestEveryPlacementIsOneTheSchedulerWouldMake(t *testing.T) {
	t.Parallel()
	placed, rest, moved := 0, 0, 0
	seeds(t, 2000, func(seed uint64) {
		in := newBatch(seed).input()
		r := demand.Place(in)
		w, at := after(in, r)
		require.Len(t, in.Pods, len(r.Placements)+len(r.Unplaced), "seed %d: each pod is placed or not", seed)
		refused := settle(w, at, demand.PlacingOrder(in))
		require.Empty(t, refused, "seed %d", seed)
		placed, rest, moved = placed+len(r.Placements), rest+len(r.Unplaced), moved+len(r.Pools)
	})
	t.Logf("%d pods placed, %d not, %d times a pool had to add something", placed, rest, moved)
	fmt.Printf("figure pool_underprovisioned 0 batches\n") // one would have ended the test
}

// TestConstraintsThatBarEachOther has pods of which a standby machine in one rack takes three
// before machines in another rack exist. Even over racks and hosts in the end, 3, 2 and 2, they
// could not be bound so once all three machines are there.
func TestConstraintsThatBarEachOther(t *testing.T) {
	t.Parallel()
	node := func(name, rack string, memory int64) demand.Node {
		return demand.Node{
			Name: name, Labels: map[string]string{hostname: name, "rack": rack},
			Allocatable: demand.Resources{CPU: 8000, Memory: memory, Pods: 10},
		}
	}
	web := demand.Selector{{Key: "app", Operator: demand.In, Values: []string{"web"}}}
	standby := node("standby", "1", 3)
	in := demand.Input{Supplies: []demand.Supply{{
		Pool: "a", MaxLaunches: 2, Standby: []*demand.Node{&standby},
		Templates: []demand.NodeTemplate{{Name: "two", Node: node("", "2", 2)}},
	}}}
	for i := range 7 {
		name := fmt.Sprintf("web-%d", i)
		in.Pods = append(in.Pods, &demand.Pod{
			Name: name, UID: name, Namespace: "shop", Labels: map[string]string{"app": "web"},
			Requests: demand.Resources{CPU: 100, Memory: 1},
			Spread: []demand.Spread{
				{TopologyKey: "rack", MaxSkew: 1, Selector: web}, {TopologyKey: hostname, MaxSkew: 1, Selector: web},
			},
		})
	}
	r := demand.Place(in)
	w, at := after(in, r)
	require.Empty(t, settle(w, at, demand.PlacingOrder(in)))
	require.Len(t, r.Placements, 5, "two of them could be bound nowhere")
}

func TestAPodIsLeftOutOnlyIfNoMachineWouldTakeIt(t *testing.T) {
	t.Parallel()
	check := func(seed uint64) {
		in := newBatch(seed).input()
		r := demand.Place(in)
		w, at := after(in, r)
		require.Empty(t, settle(w, at, demand.PlacingOrder(in)), "seed %d", seed)
		for _, u := range r.Unplaced {
			for _, n := range w.nodes {
				if n.stopped {
					n.stopped = false
					fits := w.fits(u.Pod, n)
					n.stopped = true
					require.NotEmpty(t, fits, "seed %d: %s could go to standby %s; %v", seed, u.Pod.Name, n.Name, u.Reasons)
					continue
				}
				// A pod that requests nothing has a machine of its own.
				if !slices.Contains(in.Nodes, n.Node) && (requestsNothing(u.Pod) || slices.ContainsFunc(n.pods, requestsNothing)) {
					continue
				}
				require.NotEmpty(t, w.fits(u.Pod, n), "seed %d: %s has room on %s", seed, u.Pod.Name, n.Name)
			}
			for _, s := range in.Supplies {
				if !mayLaunch(s, r) {
					continue
				}
				for _, tmpl := range s.Templates {
					n := w.add(launched(s, tmpl.Name, 1000))
					fits := w.fits(u.Pod, n)
					w.nodes = w.nodes[:len(w.nodes)-1]
					require.NotEmpty(t, fits, "seed %d: %s could be launched for from %s/%s", seed, u.Pod.Name, s.Pool, tmpl.Name)
				}
			}
		}
	}
	seeds(t, 2000, check)
	check(9452) // left out for a domain that only an announced machine has, which is not added
}

func mayLaunch(s demand.Supply, r demand.Result) bool {
	n := 0
	for _, d := range r.Pools {
		if d.Pool == s.Pool {
			for _, l := range d.Launch {
				n += l.Count
			}
		}
	}
	return n < s.Coming+s.MaxLaunches
}

func TestNoMachineIsStartedForNothing(t *testing.T) {
	t.Parallel()
	seeds(t, 2000, func(seed uint64) {
		in := newBatch(seed).input()
		r := demand.Place(in)
		used := map[string]bool{}
		for _, p := range r.Placements {
			used[nodeOf(p)] = true
		}
		for _, d := range r.Pools {
			for _, n := range d.Start {
				require.True(t, used[n.Name], "seed %d: %s", seed, n.Name)
			}
			for _, l := range d.Launch {
				for i := range l.Count {
					require.True(t, used[fmt.Sprintf("%s/%s/%d", d.Pool, l.Template, i)], "seed %d: %s/%s", seed, d.Pool, l.Template)
				}
			}
		}
	})
}

func TestTheOrderOfTheInputDoesNotMatter(t *testing.T) {
	t.Parallel()
	seeds(t, 1000, func(seed uint64) {
		b := newBatch(seed)
		in := b.input()
		want := demand.Place(in)
		b.Shuffle(len(in.Pods), func(i, j int) { in.Pods[i], in.Pods[j] = in.Pods[j], in.Pods[i] })
		b.Shuffle(len(in.Supplies), func(i, j int) { in.Supplies[i], in.Supplies[j] = in.Supplies[j], in.Supplies[i] })
		require.Empty(t, cmp.Diff(want, demand.Place(in)), "seed %d", seed)
	})
}

// Without constraints, the result is first-fit decreasing, pod by
// pod.
func TestWithoutConstraintsItIsFirstFitDecreasing(t *testing.T) {
	t.Parallel()
	exact, machines := 0, 0
	seeds(t, 2000, func(seed uint64) {
		b := newBatch(seed)
		node := b.node("", "x")
		node.Taints = nil
		in := demand.Input{
			Pods: b.pods("pod", 1+b.IntN(8), 20, false),
			Supplies: []demand.Supply{
				{Pool: "a", Templates: []demand.NodeTemplate{{Node: *node}}, MaxLaunches: 1000, DefaultRequests: demand.Resources{CPU: 1}},
			},
		}
		in.Pods = slices.DeleteFunc(in.Pods, requestsNothing)
		got := 0
		for _, d := range demand.Place(in).Pools {
			got = d.Launch[0].Count
		}
		want := firstFitDecreasing(in.Pods, node)
		require.Equal(t, want, got, "seed %d", seed)
		exact, machines = exact+want, machines+got
	})
	fmt.Printf("figure pool_surplus_percent %.2f %%\n", 100*float64(machines-exact)/float64(max(exact, 1)))
}

func firstFitDecreasing(pods []*demand.Pod, node *demand.Node) int {
	empty := &dumbNode{Node: node, pods: node.Pods}
	share := func(n, of int64) float64 { return float64(n) / float64(max(of, 1)) }
	free := node.Allocatable
	for _, p := range node.Pods {
		free.CPU -= p.Requests.CPU
	}
	size := func(p *demand.Pod) float64 {
		return share(p.Requests.CPU, free.CPU) + share(p.Requests.Memory, free.Memory) +
			share(p.Requests.EphemeralStorage, free.EphemeralStorage) + share(p.Requests.Extended["gpu"], free.Extended["gpu"])
	}
	order := slices.Clone(pods)
	slices.SortStableFunc(order, func(a, b *demand.Pod) int {
		if d := size(b) - size(a); d != 0 {
			if d > 0 {
				return 1
			}
			return -1
		}
		vector := func(p *demand.Pod) []int64 {
			return []int64{p.Requests.CPU, p.Requests.Memory, p.Requests.EphemeralStorage, p.Requests.Extended["gpu"]}
		}
		return slices.Compare(vector(b), vector(a))
	})
	var bins []*dumbNode
	for _, p := range order {
		if !dumbRoom(p, empty) {
			continue
		}
		i := slices.IndexFunc(bins, func(n *dumbNode) bool { return dumbRoom(p, n) })
		if i < 0 {
			i = len(bins)
			bins = append(bins, &dumbNode{Node: node, pods: slices.Clone(node.Pods)})
		}
		bins[i].pods = append(bins[i].pods, p)
	}
	return len(bins)
}
