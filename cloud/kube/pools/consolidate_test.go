package pools //nolint:testpackage // turns are not exported

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
)

// shared is a cluster with the pools web and db.
type shared struct {
	*ScaleUp

	web, db *Pool
}

func newShared() shared {
	pool := func(name string) *Pool {
		return &Pool{
			Spec:   cloud.Pool{ConsolidateAfter: time.Minute},
			Nodes:  nodes.Pool{Domain: domain, Name: name, UID: "uid-" + name},
			Memory: &cloud.SharedMemory{},
		}
	}
	s := shared{web: pool("web"), db: pool("db")}
	s.ScaleUp = &ScaleUp{Cluster: newCluster(), Pools: func() map[string]*Pool { return map[string]*Pool{"web": s.web, "db": s.db} }}
	s.Cluster.SawBudgets()
	s.Cluster.SawVolumes()
	return s
}

// node adds a running machine of four processors to a pool, with pods of one each.
func (s shared) node(name, pool string, change func(*corev1.Node), pods ...string) {
	n := machine()
	n.Name, n.UID, n.Labels[domain.PoolLabel()] = name, types.UID(name), pool
	n.Annotations[string(domain)+"/pool-uid"] = "uid-" + pool
	n.Spec.ProviderID = "aws:///eu-west-1a/i-" + name
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi"),
		corev1.ResourcePods: resource.MustParse("110"),
	}
	if change != nil {
		change(n)
	}
	s.Cluster.SawNode(n)
	for _, pod := range pods {
		s.pod(pod, name, nil)
	}
}

func (s shared) pod(name, node string, change func(*corev1.Pod)) {
	yes := true
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, UID: types.UID(name),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", Controller: &yes}},
		},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
		}}},
	}
	if change != nil {
		change(p)
	}
	s.Cluster.SawPod(types.NamespacedName{Namespace: "team", Name: name}, p)
}

func TestWhatIsNotNeededOfAPool(t *testing.T) {
	t.Parallel()
	asks := func(cpu string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse(cpu)
		}
	}
	const full = "its pods may not all find room on other Nodes"
	for name, c := range map[string]struct {
		world func(shared)
		web   []string
		kept  map[string]string
	}{
		"the pods of one fit on the other": {
			world: func(s shared) { s.node("a", "web", nil, "p"); s.node("b", "web", nil, "q", "r") }, web: []string{"i-a"},
			kept: map[string]string{"i-b": full},
		},
		"or on a Node of another pool, whose machines are not ours": {
			world: func(s shared) { s.node("a", "web", nil, "p"); s.node("b", "db", nil, "q") }, web: []string{"i-a"}, kept: map[string]string{},
		},
		"or on one of no pool": {
			world: func(s shared) {
				s.node("a", "web", nil, "p")
				s.node("b", "", func(n *corev1.Node) { n.Labels, n.Annotations = nil, nil }, "q")
			},
			web: []string{"i-a"}, kept: map[string]string{},
		},
		"a pod that no scheduler has seen takes the room": {
			world: func(s shared) {
				s.node("a", "web", nil, "p")
				s.node("b", "web", nil, "q", "r")
				s.pod("new", "", asks("2"))
			},
			kept: map[string]string{"i-a": full, "i-b": full},
		},
		"so does one that leaves a machine of another pool": {
			world: func(s shared) {
				s.node("a", "web", nil, "p")
				s.node("b", "web", nil, "q", "r")
				s.node("c", "db", func(n *corev1.Node) { n.Labels[domain.StateLabel()] = "terminating" })
				s.pod("leaves", "c", asks("2"))
			},
			kept: map[string]string{"i-a": full, "i-b": full},
		},
		"an empty machine of another pool gives no room": {
			world: func(s shared) { s.node("a", "web", nil, "p"); s.node("b", "db", nil) }, kept: map[string]string{"i-a": full},
		},
		"unless it is kept": {
			world: func(s shared) { s.db.Spec.KeepEmpty = true; s.node("a", "web", nil, "p"); s.node("b", "db", nil) },
			web:   []string{"i-a"}, kept: map[string]string{},
		},
		"what keeps a pod of another pool is none of ours": {
			world: func(s shared) {
				bare := func(p *corev1.Pod) { p.OwnerReferences = nil }
				s.node("a", "web", nil)
				s.pod("p", "a", bare)
				s.node("b", "db", nil)
				s.pod("q", "b", bare)
			},
			kept: map[string]string{"i-a": "pod team/p: it has no ReplicaSet, StatefulSet or ReplicationController that makes another"},
		},
		"a machine of an older pool of the name is not ours": {
			world: func(s shared) {
				s.node("a", "web", func(n *corev1.Node) { n.Annotations[string(domain)+"/pool-uid"] = "uid-before" }, "p")
				s.node("b", "web", nil, "q", "r")
			},
			web: []string{"i-b"}, kept: map[string]string{},
		},
		"nor one that warms up": {
			world: func(s shared) {
				s.node("a", "web", func(n *corev1.Node) { n.Labels[domain.StateLabel()] = "warmup" }, "p")
				s.node("b", "web", nil, "q", "r")
			},
			kept: map[string]string{"i-b": full},
		},
		"one that is not ready keeps its pods": {
			world: func(s shared) {
				s.node("a", "web", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }, "p")
				s.node("b", "web", nil, "q", "r", "s", "t")
			},
			kept: map[string]string{"i-b": full},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShared()
			c.world(s)
			got := s.Consolidate(s.web)
			require.Equal(t, append([]string{}, c.web...), got.Machines())
			require.Equal(t, c.kept, got.Kept)
		})
	}
}

// More are found than may be drained, as one of them may have to wait.
func TestMoreAreFoundThanMayBeDrained(t *testing.T) {
	t.Parallel()
	s := newShared()
	for i := range 20 {
		s.node(fmt.Sprintf("n-%02d", i), "web", nil, fmt.Sprintf("p-%02d", i))
	}
	for i := range 20 {
		s.node(fmt.Sprintf("db-%02d", i), "db", nil, fmt.Sprintf("q-%02d", i))
	}
	for disruptions, want := range map[int]int{-1: 10, 0: 10, 3: 13} {
		s.web.Spec.Disruptions = disruptions
		require.Len(t, s.Consolidate(s.web).Vacant, want, "%d", disruptions)
	}
}

// Two pools do not count on the same room: one at a time drains, and the next one once the pods are
// seen where they are.
func TestPoolsTakeTurns(t *testing.T) {
	t.Parallel()
	s := newShared()
	now := started
	s.now = func() time.Time { return now }
	s.node("a", "web", nil, "p")
	s.node("b", "db", nil, "q")
	drained := []cloud.Result{{Action: cloud.Action{
		Verb: cloud.Drain, From: cloud.StateRunning, To: cloud.StateTerminating, Intent: cloud.Intent{Reason: cloud.ReasonUnderutilized},
	}}}
	vacate, late, doneWeb := s.consolidate(s.web)
	require.Equal(t, []string{"i-a"}, vacate)
	require.False(t, late)
	vacate, late, doneDB := s.consolidate(s.db)
	require.Equal(t, []string{"i-b"}, vacate, "its time goes on")
	require.True(t, late, "it is not its turn")
	doneDB(drained)
	doneWeb(nil)
	_, late, done := s.consolidate(s.db)
	require.False(t, late, "nothing was drained")
	done(drained)
	for after, want := range []bool{0: true, 9: true, 10: false} {
		if after == 0 || after > 8 {
			now = started.Add(time.Duration(after) * time.Second)
			_, late, done = s.consolidate(s.web)
			require.Equal(t, want, late, "%d s later", after)
			goesOn := cloud.Action{Verb: cloud.Drain, Intent: cloud.Intent{Reason: cloud.ReasonUnderutilized}}
			done([]cloud.Result{{Action: goesOn}})
		}
	}
	s.web.Spec.Deleting = true
	vacate, late, _ = s.consolidate(s.web)
	require.Empty(t, vacate)
	require.True(t, late)
}

func TestAConsolidationIsExplained(t *testing.T) {
	t.Parallel()
	s := newShared()
	s.node("a", "web", nil, "p")
	s.node("b", "web", nil, "q", "r")
	require.Equal(
		t,
		"not needed: i-a (Node a): its pods fit on other Nodes: team/p to b\nnot moved: i-b: its pods may not all find room on other Nodes\n",
		s.Consolidate(s.web).String(),
	)
}
