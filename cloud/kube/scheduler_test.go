package kube_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube"
)

// many is a number of batches: n, a quarter of it with -short, or TRUEUP_BATCHES.
func many(t *testing.T, n int) int {
	t.Helper()
	if s := os.Getenv("TRUEUP_BATCHES"); s != "" {
		more, err := strconv.Atoi(s)
		require.NoError(t, err, "TRUEUP_BATCHES")
		return more
	}
	if testing.Short() {
		return max(1, n/4)
	}
	return n
}

func firstSeed(t *testing.T) uint64 {
	t.Helper()
	if s := os.Getenv("TRUEUP_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err, "TRUEUP_SEED")
		return seed
	}
	return 1
}

// batch is a random situation, made of objects of Kubernetes.
type batch struct {
	*rand.Rand
	id       string
	nodes    []*corev1.Node // there already
	bound    []*corev1.Pod  // on them
	pods     []*corev1.Pod  // waiting
	supplies []supply
}

// supply is a pool with its machines as Nodes.
type supply struct {
	demand.Supply
	standby   []*corev1.Node
	templates []*corev1.Node
}

func newBatch(seed uint64, id string) *batch {
	return &batch{Rand: rand.New(rand.NewPCG(seed, 5)), id: id}
}

func pick[T any](b *batch, of ...T) T { return of[b.IntN(len(of))] }

func (b *batch) one(in int) bool { return b.IntN(in) == 0 }

func (b *batch) name(s string) string { return "b" + b.id + "-" + s }

func (b *batch) namespaces() map[string]map[string]string {
	return map[string]map[string]string{b.name("one"): {"team": b.name("t")}, b.name("two"): {"team": "none"}}
}

// node is a machine of a pool in a zone, whose name is the batch's own.
func (b *batch) node(name, pool, zone string, cpu, pods int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.name(name), Labels: map[string]string{
		"batch": b.id, "pool": pool, "zone": b.name(zone), "cores": strconv.Itoa(cpu), "kubernetes.io/hostname": b.name(name),
	}}}
	n.Status.Allocatable = list(fmt.Sprint(cpu), fmt.Sprintf("%dGi", 2*cpu), "pods", fmt.Sprint(pods), "example.com/gpu", "2")
	n.Status.Capacity = n.Status.Allocatable
	return n
}

func list(cpu, memory string, more ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for name, q := range map[corev1.ResourceName]string{"cpu": cpu, "memory": memory} {
		if q != "" {
			l[name] = resource.MustParse(q)
		}
	}
	for i := 0; i < len(more); i += 2 {
		l[corev1.ResourceName(more[i])] = resource.MustParse(more[i+1])
	}
	return l
}

// group adds n equal pods to the batch.
func (b *batch) group(name string, n int, shape corev1.Pod) {
	for i := range n {
		p := shape.DeepCopy()
		p.Name = fmt.Sprintf("%s-%d", name, i)
		b.pods = append(b.pods, p)
	}
}

func (b *batch) pod(app string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: b.name(pick(b, "one", "two")), Labels: map[string]string{"batch": b.id, "app": app},
	}}
	p.Spec.NodeSelector = map[string]string{"batch": b.id}
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{
		Requests: list(pick(b, "100m", "500m", "900m", "1", "2", "2100m"), pick(b, "", "100Mi", "1Gi", "3Gi")),
	}}}
	if b.one(4) {
		always := corev1.ContainerRestartPolicyAlways
		p.Spec.InitContainers = []corev1.Container{
			{Name: "i", Image: "i", Resources: corev1.ResourceRequirements{Requests: list(pick(b, "100m", "1500m"), "")}},
		}
		if b.one(2) {
			p.Spec.InitContainers[0].RestartPolicy = &always
		}
	}
	if b.one(10) {
		p.Spec.Containers[0].Resources.Requests["example.com/gpu"] = resource.MustParse("1")
		p.Spec.Containers[0].Resources.Limits = list("", "", "example.com/gpu", "1")
	}
	return p
}

func apps(names ...string) *metav1.LabelSelector {
	if len(names) == 1 {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": names[0]}}
	}
	return &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: names}},
	}
}

const (
	zoneKey = "zone"
	hostKey = "kubernetes.io/hostname"
)

func (b *batch) spread(key string, who *metav1.LabelSelector) corev1.TopologySpreadConstraint {
	c := corev1.TopologySpreadConstraint{
		TopologyKey:       key,
		MaxSkew:           pick[int32](b, 1, 1, 2),
		WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector:     who,
	}
	if b.one(4) {
		c.MinDomains = new(int32)
		*c.MinDomains = pick[int32](b, 2, 3)
	}
	if b.one(3) {
		honor := corev1.NodeInclusionPolicyHonor
		c.NodeTaintsPolicy = &honor
	}
	if b.one(4) {
		c.MatchLabelKeys = []string{"rev"}
	}
	return c
}

func affinity(p *corev1.Pod) *corev1.Affinity {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{}
	}
	return p.Spec.Affinity
}

func keepAway(p *corev1.Pod, term corev1.PodAffinityTerm) {
	affinity(p).PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}
}

func stayNear(p *corev1.Pod, term corev1.PodAffinityTerm) {
	affinity(p).PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}
}

// constrain gives the pods of a group one or two constraints.
func (b *batch) constrain(p *corev1.Pod, others ...string) {
	app := p.Labels["app"]
	if b.one(3) {
		p.Labels["rev"] = "1"
	}
	switch b.IntN(8) {
	case 0:
		keepAway(p, corev1.PodAffinityTerm{TopologyKey: hostKey, LabelSelector: apps(app)})
	case 1:
		keepAway(p, corev1.PodAffinityTerm{TopologyKey: zoneKey, LabelSelector: apps(app)})
	case 2:
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, b.spread(hostKey, apps(app)))
	case 3:
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, b.spread(zoneKey, apps(append(others, app)...)))
	case 4:
		stayNear(p, corev1.PodAffinityTerm{TopologyKey: pick(b, zoneKey, hostKey), LabelSelector: apps(app)})
	case 5:
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{
			{ContainerPort: 80, HostPort: 8080, Protocol: pick(b, corev1.ProtocolTCP, corev1.ProtocolUDP)},
		}
	case 6:
		if len(others) > 0 {
			keepAway(
				p,
				corev1.PodAffinityTerm{
					TopologyKey:       hostKey,
					LabelSelector:     apps(others...),
					NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": b.name("t")}},
				},
			)
		}
	}
	if b.one(4) {
		affinity(p).NodeAffinity = &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{
					MatchExpressions: []corev1.NodeSelectorRequirement{
						{Key: "cores", Operator: pick(b, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt), Values: []string{"4"}},
					},
				},
				{
					MatchExpressions: []corev1.NodeSelectorRequirement{
						{Key: zoneKey, Operator: pick(b, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn), Values: []string{b.name("x")}},
					},
				},
			}},
		}
	}
}

// pool adds a supply: standby machines, and templates for three zones.
func (b *batch) pool(name string) {
	s := supply{Supply: demand.Supply{Pool: name, MaxLaunches: 100, Weight: pick[int32](b, 0, 1)}}
	cpu, pods := pick(b, 4, 8), pick(b, 5, 30)
	taint := b.one(4)
	add := func(n *corev1.Node) *corev1.Node {
		if taint {
			n.Spec.Taints = []corev1.Taint{
				{
					Key:    "pool",
					Value:  name,
					Effect: pick(b, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule),
				},
			}
		}
		return n
	}
	for i := range b.IntN(3) {
		n := add(b.node(fmt.Sprintf("%s-standby-%d", name, i), name, pick(b, "x", "y", "z"), cpu, pods))
		s.standby = append(s.standby, n)
	}
	for _, zone := range []string{"x", "y", "z"}[:1+b.IntN(3)] {
		s.templates = append(s.templates, add(b.node(name+"-"+zone, name, zone, cpu, pods)))
	}
	for _, n := range s.standby {
		node := kube.Node(n)
		s.Standby = append(s.Standby, &node)
	}
	for _, n := range s.templates {
		s.Templates = append(s.Templates, demand.NodeTemplate{Name: n.Name, Node: kube.Node(n)})
	}
	b.supplies = append(b.supplies, s)
}

// input is what Demand is asked: waiting are as the API server sees them.
func (b *batch) input(waiting []*corev1.Pod) demand.Input {
	in := demand.Input{Namespaces: b.namespaces()}
	for _, p := range waiting {
		pod := kube.Pod(p)
		if pod.UID == "" {
			pod.UID = pod.Namespace + "/" + pod.Name
		}
		in.Pods = append(in.Pods, &pod)
	}
	for _, n := range b.nodes {
		node := kube.Node(n, slices.DeleteFunc(slices.Clone(b.bound), func(p *corev1.Pod) bool { return p.Spec.NodeName != n.Name })...)
		in.Nodes = append(in.Nodes, &node)
	}
	for _, s := range b.supplies {
		in.Supplies = append(in.Supplies, s.Supply)
	}
	return in
}

// machines are the nodes that the machines of r will be. The pools have what
// remains.
func (b *batch) machines(round int, r demand.Result) (all []*corev1.Node) {
	for i := range b.supplies {
		s := &b.supplies[i]
		for _, d := range r.Pools {
			if d.Pool != s.Pool {
				continue
			}
			for _, started := range d.Start {
				all = append(all, s.standby[slices.IndexFunc(s.standby, func(n *corev1.Node) bool { return n.Name == started.Name })])
			}
			s.Standby = slices.DeleteFunc(slices.Clone(s.Standby), func(n *demand.Node) bool { return slices.Contains(d.Start, n) })
			for _, l := range d.Launch {
				template := s.templates[slices.IndexFunc(s.templates, func(n *corev1.Node) bool { return n.Name == l.Template })]
				for i := range l.Count {
					n := template.DeepCopy()
					n.Name = fmt.Sprintf("%s-%d-%d", template.Name, round, i)
					n.Labels[hostKey] = n.Name
					all = append(all, n)
				}
			}
		}
	}
	return all
}

// begin creates the existing objects of a batch, and the standby machines as nodes
// that are stopped.
func (c *cluster) begin(t *testing.T, b *batch) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(b.namespaces())) {
		c.namespace(t, name, b.namespaces()[name])
	}
	c.addNodes(t, b.nodes)
	b.bound = c.addPods(t, b.bound, false)
}

// Each group of pods has a pool of its own, so that it does not matter in which
// order the scheduler takes them: it finds a place for every pod, and none for
// those that fit nowhere by Demand.
func TestTheSchedulerLeavesNoPodPendingOnTheMachinesOfDemand(t *testing.T) {
	c := startCluster(t)
	pending, placed, machines := 0, 0, 0
	for i := range many(t, 30) {
		seed := firstSeed(t) + uint64(i)
		b := newBatch(seed, fmt.Sprint(seed))
		for g := range 1 + b.IntN(4) {
			app := fmt.Sprintf("app-%d", g)
			b.pool(app)
			p := b.pod(app)
			p.Spec.NodeSelector["pool"] = app
			b.constrain(&p)
			if b.one(2) {
				p.Spec.Tolerations = []corev1.Toleration{{Key: "pool", Operator: corev1.TolerationOpExists}}
			}
			if b.one(10) {
				p.Spec.NodeSelector["pool"] = "none"
			}
			b.group(app, 1+b.IntN(9), p)
		}
		c.begin(t, b)
		r := demand.Place(b.input(c.addPods(t, b.pods, true)))
		nodes := b.machines(0, r)
		machines += len(nodes)
		c.addNodes(t, append(nodes, b.stopped()...))
		c.addPods(t, b.pods, false)
		// The pods of a group are alike: which of them get a place is all the same.
		places := map[string]int{}
		for _, p := range r.Placements {
			places[p.Pod.Labels["app"]]++
		}
		bound := func(pods []*corev1.Pod) map[string]int {
			n := map[string]int{}
			for _, p := range pods {
				if p.Spec.NodeName != "" {
					n[p.Labels["app"]]++
				}
			}
			return n
		}
		pods, done := c.wait(t, b.id, 20*time.Second, func(pods []*corev1.Pod) bool {
			looked := !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.Spec.NodeName == "" && !refused(p) })
			return len(pods) == len(b.pods) && looked && maps.Equal(places, bound(pods))
		})
		pending += max(len(r.Placements)-len(slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return p.Spec.NodeName == "" })), 0)
		for _, p := range pods {
			if !done && p.Spec.NodeName == "" {
				t.Log(p.Name, p.Status.Conditions)
			}
		}
		require.True(t, done, "TRUEUP_SEED=%d TRUEUP_BATCHES=1: have a place %v, are on a node %v", seed, places, bound(pods))
		placed += len(r.Placements)
		c.clear(t, b.id)
	}
	fmt.Printf("figure pool_scheduler_pending %d pods\n", pending)
	t.Logf("%d pods on %d machines", placed, machines)
}

// stopped are the nodes of the machines that are not started.
func (b *batch) stopped() (all []*corev1.Node) {
	for _, s := range b.supplies {
		for _, n := range s.standby {
			if slices.ContainsFunc(s.Standby, func(m *demand.Node) bool { return m.Name == n.Name }) {
				n = n.DeepCopy()
				n.Spec.Unschedulable = true
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "stratos.sh/standby", Effect: corev1.TaintEffectNoExecute})
				all = append(all, n)
			}
		}
	}
	return all
}

// Here the groups share pools, and the order in which the scheduler takes the
// pods decides where they go. Whenever it has come to rest, Demand knows no node
// with room for a pod that it refuses; and what Demand adds lets it go on, until
// every pod has a node that can have one.
func TestTheSchedulerAgreesWheneverItHasComeToRest(t *testing.T) {
	c := startCluster(t)
	pods, rounds, again := 0, 0, 0
	for i := range many(t, 25) {
		seed := firstSeed(t) + uint64(i)
		b := newBatch(seed, fmt.Sprintf("m%d", seed))
		names := []string{"app-0", "app-1", "app-2", "app-3"}[:1+b.IntN(4)]
		for _, pool := range []string{"a", "b"}[:1+b.IntN(2)] {
			b.pool(pool)
		}
		for n := range b.IntN(4) {
			b.nodes = append(b.nodes, b.node(fmt.Sprintf("node-%d", n), "none", pick(b, "x", "y", "z"), pick(b, 2, 4), 8))
		}
		for _, app := range names {
			p := b.pod(app)
			b.constrain(&p, names...)
			p.Spec.Tolerations = []corev1.Toleration{{Key: "pool", Operator: corev1.TolerationOpExists}}
			b.group(app, 1+b.IntN(8), p)
			if len(b.nodes) > 0 && b.one(2) {
				old := p.DeepCopy()
				old.Name, old.Spec.NodeName = app+"-old", b.nodes[b.IntN(len(b.nodes))].Name
				b.bound = append(b.bound, old)
			}
		}
		c.begin(t, b)
		b.pods = c.addPods(t, b.pods, false)
		pods += len(b.pods)
		for round := 0; ; round++ {
			require.Less(t, round, 12, "TRUEUP_SEED=%d: it does not end", seed)
			r := c.rest(t, b, seed)
			if len(r.Pools) == 0 {
				break
			}
			nodes := b.machines(round, r)
			c.addNodes(t, nodes)
			b.nodes = append(b.nodes, nodes...)
			rounds++
			if round > 0 {
				again++
			}
		}
		c.agreeWithPlaces(t, b, seed)
		c.clear(t, b.id)
	}
	t.Logf("%d pods, %d times machines were added, %d of them because the scheduler had arranged the pods otherwise", pods, rounds, again)
}

// rest waits until the scheduler refuses every pod without a node, and Demand
// knows no node for them either; it returns what they need.
func (c *cluster) rest(t *testing.T, b *batch, seed uint64) (r demand.Result) {
	t.Helper()
	all, agree := c.wait(t, b.id, 30*time.Second, func(pods []*corev1.Pod) bool {
		if len(pods) != len(b.pods)+len(b.bound) ||
			slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.Spec.NodeName == "" && !refused(p) }) {
			return false
		}
		known := *b
		known.bound = slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return p.Spec.NodeName == "" })
		r = demand.Place(known.input(slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return p.Spec.NodeName != "" })))
		return !slices.ContainsFunc(r.Placements, func(p demand.PlacedPod) bool { return p.On == demand.OnNode && !follows(p, r) })
	})
	if !agree {
		for _, p := range all {
			t.Log(p.Name, p.Spec.NodeName, p.Status.Conditions)
		}
		for _, p := range r.Placements {
			t.Log("Demand:", p.Pod.Name, p.On, p.Pool, p.Node)
		}
	}
	require.True(t, agree, "TRUEUP_SEED=%d TRUEUP_BATCHES=1", seed)
	return r
}

// follows reports whether p has room on a node only once others are placed on
// machines that are not there yet.
func follows(p demand.PlacedPod, r demand.Result) bool {
	return len(r.Pools) > 0 && len(p.Pod.Affinity)+len(p.Pod.Spread) > 0
}

// agreeWithPlaces takes each pod away in turn: Demand must find room for it, on
// its node if on no other. What was placed by a spread or an affinity depends on
// the order, and is left out.
func (c *cluster) agreeWithPlaces(t *testing.T, b *batch, seed uint64) {
	t.Helper()
	all, _ := c.wait(t, b.id, 0, func([]*corev1.Pod) bool { return true })
	for _, p := range all {
		if p.Spec.NodeName == "" || len(kube.Pod(p).Affinity)+len(kube.Pod(p).Spread) > 0 ||
			slices.ContainsFunc(b.bound, func(old *corev1.Pod) bool { return old.Name == p.Name }) {
			continue
		}
		known := *b
		known.supplies = nil
		known.bound = slices.DeleteFunc(slices.Clone(all), func(other *corev1.Pod) bool { return other == p || other.Spec.NodeName == "" })
		require.Len(
			t,
			demand.Place(known.input([]*corev1.Pod{p})).Placements,
			1,
			"TRUEUP_SEED=%d TRUEUP_BATCHES=1: %s is on %s",
			seed,
			p.Name,
			p.Spec.NodeName,
		)
	}
}

// With one machine less, pods of one size are left over: Demand adds none that
// is not needed.
func TestTheSchedulerNeedsEveryMachineOfDemand(t *testing.T) {
	c := startCluster(t)
	for i := range many(t, 6) {
		seed := firstSeed(t) + uint64(i)
		b := newBatch(seed, fmt.Sprint("f", seed))
		b.pool("a")
		p := b.pod("app-0")
		p.Spec.Tolerations = []corev1.Toleration{{Key: "pool", Operator: corev1.TolerationOpExists}}
		b.group("app-0", 5+b.IntN(20), p)
		c.begin(t, b)
		r := demand.Place(b.input(c.addPods(t, b.pods, true)))
		require.Len(t, r.Placements, len(b.pods), "TRUEUP_SEED=%d", seed)
		c.addNodes(t, b.machines(0, r)[1:])
		c.addPods(t, b.pods, false)
		pods, looked := c.wait(t, b.id, 30*time.Second, func(pods []*corev1.Pod) bool {
			return len(pods) == len(b.pods) && !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.Spec.NodeName == "" && !refused(p) })
		})
		require.True(t, looked, "TRUEUP_SEED=%d: the scheduler has not looked at all pods", seed)
		require.True(t, slices.ContainsFunc(pods, refused), "TRUEUP_SEED=%d: one machine less is enough", seed)
		c.clear(t, b.id)
	}
}
