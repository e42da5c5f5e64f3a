package nodes //nolint:testpackage // in this package as the others

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube"
)

// replica is a pod on a Node that its controller makes again.
func replica(name, node string) *corev1.Pod {
	yes := true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", Controller: &yes}},
		},
		Spec: corev1.PodSpec{NodeName: node},
	}
}

func disruptions(allowed int32, selector *metav1.LabelSelector) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		Spec:   policyv1.PodDisruptionBudgetSpec{Selector: selector},
		Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
	}
}

func TestWhatKeepsAPodOnItsNode(t *testing.T) {
	t.Parallel()
	web := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	key := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "team", Name: name} }
	for name, c := range map[string]struct {
		change func(c *Cluster, p *corev1.Pod)
		kept   string
	}{
		"nothing":                  {},
		"the budgets are not read": {kept: "pod team/web-1: the PodDisruptionBudgets are not read yet"},
		"it has no controller": {
			change: func(_ *Cluster, p *corev1.Pod) { p.OwnerReferences = nil }, kept: "pod team/web-1: it has no ReplicaSet, StatefulSet or ReplicationController that makes another",
		},
		"an owner alone makes no other": {
			change: func(_ *Cluster, p *corev1.Pod) { p.OwnerReferences[0].Controller = nil },
			kept:   "pod team/web-1: it has no ReplicaSet, StatefulSet or ReplicationController that makes another",
		},
		"it may go to a machine that is off": {
			change: func(_ *Cluster, p *corev1.Pod) {
				p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
			},
			kept: "pod team/web-1: it tolerates the taint of stopped machines, and would start one",
		},
		"its Job may count it as a failure": {
			change: func(_ *Cluster, p *corev1.Pod) {
				p.OwnerReferences[0].APIVersion, p.OwnerReferences[0].Kind = "batch/v1", "Job"
			},
			kept: "pod team/web-1: it has no ReplicaSet, StatefulSet or ReplicationController that makes another",
		},
		"what its owner does is not known": {
			change: func(_ *Cluster, p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "example.com/v1" },
			kept:   "pod team/web-1: it has no ReplicaSet, StatefulSet or ReplicationController that makes another",
		},
		"a person says that it may go": {change: func(_ *Cluster, p *corev1.Pod) {
			p.OwnerReferences, p.Annotations = nil, map[string]string{"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
		}},
		"it belongs to a StatefulSet": {change: func(_ *Cluster, p *corev1.Pod) { p.OwnerReferences[0].Kind = "StatefulSet" }},
		"it belongs to a ReplicationController": {change: func(_ *Cluster, p *corev1.Pod) {
			p.OwnerReferences[0].APIVersion, p.OwnerReferences[0].Kind = "v1", "ReplicationController"
		}},
		"it asks for that": {
			change: func(_ *Cluster, p *corev1.Pod) {
				p.Annotations = map[string]string{"karpenter.sh/do-not-disrupt": "true"}
			},
			kept: "pod team/web-1: it asks not to be disrupted",
		},
		"it ends": {
			change: func(_ *Cluster, p *corev1.Pod) { now := metav1.Now(); p.DeletionTimestamp = &now }, kept: "pod team/web-1: it is being deleted",
		},
		"its budget is used up": {
			change: func(c *Cluster, _ *corev1.Pod) { c.SawBudget(key("b"), disruptions(0, web)) },
			kept:   "pod team/web-1: PodDisruptionBudget b allows no eviction now",
		},
		"its budget has one left": {change: func(c *Cluster, _ *corev1.Pod) { c.SawBudget(key("b"), disruptions(1, web)) }},
		"a budget that is gone keeps none": {
			change: func(c *Cluster, _ *corev1.Pod) {
				c.SawBudget(key("b"), disruptions(0, web))
				c.SawBudget(key("b"), nil)
				require.Zero(t, c.SeenBudgets())
			},
		},
		"a budget of others": {
			change: func(c *Cluster, _ *corev1.Pod) {
				c.SawBudget(key("b"), disruptions(0, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}))
				c.SawBudget(types.NamespacedName{Namespace: "other", Name: "b"}, disruptions(0, web))
				c.SawBudget(key("none"), disruptions(0, nil))
			},
		},
		"an empty selector is for all": {
			change: func(c *Cluster, _ *corev1.Pod) { c.SawBudget(key("all"), disruptions(0, &metav1.LabelSelector{})) },
			kept:   "pod team/web-1: PodDisruptionBudget all allows no eviction now",
		},
		"one that cannot be read is for all": {
			change: func(c *Cluster, _ *corev1.Pod) {
				c.SawBudget(key("odd"), disruptions(9, &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "odd"}}}))
			},
			kept: "pod team/web-1: PodDisruptionBudget odd allows no eviction now",
		},
		"the server evicts none of several budgets": {
			change: func(c *Cluster, _ *corev1.Pod) {
				c.SawBudget(key("b"), disruptions(5, web))
				c.SawBudget(key("a"), disruptions(5, &metav1.LabelSelector{}))
			},
			kept: "pod team/web-1: it has several PodDisruptionBudgets: a, b",
		},
		"another pod comes": {
			change: func(c *Cluster, _ *corev1.Pod) {
				coming := replica("web-2", "")
				coming.Status.NominatedNodeName = "n"
				c.SawPod(key("web-2"), coming)
			},
			kept: "pod team/web-2 is about to be bound to it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := New(domain, platform, func([]string, bool) {})
			if name != "the budgets are not read" {
				cluster.SawBudgets()
			}
			daemon, done, p := replica("ds", "n"), replica("done", "n"), replica("web-1", "n")
			daemon.OwnerReferences[0].Kind = "DaemonSet"
			done.Status.Phase, done.OwnerReferences = corev1.PodSucceeded, nil
			if c.change != nil {
				c.change(cluster, p)
			}
			for _, pod := range []*corev1.Pod{daemon, done, p, replica("web-3", "n"), replica("elsewhere", "m")} {
				cluster.SawPod(key(pod.Name), pod)
			}
			cluster.Read(func(s Snapshot) {
				pods, kept := s.Movable("n")
				require.Equal(t, c.kept, kept)
				var names []string
				for _, p := range pods {
					names = append(names, p.Name)
				}
				if c.kept == "" {
					require.Equal(t, []string{"web-1", "web-3"}, names)
				} else {
					require.Empty(t, names)
				}
			})
		})
	}
}

// A pod that moves takes its volumes along: to Nodes of their zone that have room for one more.
func TestAPodMovesWithItsVolumes(t *testing.T) {
	t.Parallel()
	c := New(domain, platform, func([]string, bool) {})
	p := mounting("data", "n")
	p.OwnerReferences = replica("data", "n").OwnerReferences
	c.SawPod(types.NamespacedName{Namespace: "team", Name: "data"}, p)
	bind(c, "data")
	c.SawBudgets()
	move := func() (demand.Pod, demand.Node) {
		var pod demand.Pod
		node := demand.Node{Name: "m"}
		c.Read(func(s Snapshot) {
			s = s.ForMoves()
			pods, kept := s.Movable("n")
			require.Empty(t, kept)
			pod = *pods[0]
			s.Limit(&node)
		})
		return pod, node
	}
	pod, _ := move()
	require.Equal(t, []string{"the claims of the cluster are not read yet"}, pod.Unmodelled)
	c.SawVolumes()
	pod, node := move()
	require.Empty(t, pod.Unmodelled)
	require.Equal(t, "claim data", pod.Volumes[0].Name)
	require.Equal(t, map[string]int64{kube.AttachLimit(driver): 1}, pod.Requests.Extended)
	require.Equal(t, map[string]int64{kube.AttachLimit(driver): kube.Unlimited}, node.Allocatable.Extended)
	limit := int32(0)
	c.SawCSINode("m", &storagev1.CSINode{Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
		{Name: driver, Allocatable: &storagev1.VolumeNodeResources{Count: &limit}},
	}}})
	_, node = move()
	require.Zero(t, node.Allocatable.Extended[kube.AttachLimit(driver)])
}

// TestPodsThatComeAreCountedBeforeTheSchedulerSeesThem and those that have to leave a machine.
func TestPodsThatComeAreCountedBeforeTheSchedulerSeesThem(t *testing.T) {
	t.Parallel()
	c := New(domain, platform, func([]string, bool) {})
	leaving := machine()
	leaving.Labels[domain.StateLabel()] = "terminating"
	c.SawNode(leaving)
	now := metav1.Now()
	for name, change := range map[string]func(*corev1.Pod){
		"new":     func(p *corev1.Pod) { p.Spec.NodeName = "" },
		"refused": func(p *corev1.Pod) { p.Spec, p.Status = corev1.PodSpec{}, mounting("refused", "").Status },
		"leaves":  func(*corev1.Pod) {},
		"left":    func(p *corev1.Pod) { p.DeletionTimestamp = &now },
		"gated":   func(p *corev1.Pod) { p.Spec = corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: "g"}}} },
		"gone":    func(p *corev1.Pod) { p.Spec.NodeName, p.DeletionTimestamp = "", &now },
		"daemon":  func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" },
		"stays":   func(p *corev1.Pod) { p.Spec.NodeName = "other" },
		"done":    func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "", corev1.PodSucceeded },
	} {
		p := replica(name, "node")
		change(p)
		c.SawPod(types.NamespacedName{Namespace: "team", Name: name}, p)
	}
	var names []string
	c.Read(func(s Snapshot) {
		for _, p := range s.Coming() {
			require.False(t, p.Terminating)
			names = append(names, p.Name)
		}
	})
	require.Equal(t, []string{"leaves", "left", "new", "refused"}, names)
}

func TestWhenTheLastPodCameToANode(t *testing.T) {
	t.Parallel()
	c := New(domain, platform, func([]string, bool) {})
	c.SawNode(machine())
	since := func() time.Time {
		return c.Machines("web", machine().Annotations[domain.poolUID()], map[string]bool{"i-1": true})[0].Status.PodsSince
	}
	require.Zero(t, since())
	daemon := replica("ds", "node")
	daemon.OwnerReferences[0].Kind = "DaemonSet"
	c.SawPod(types.NamespacedName{Name: "ds"}, daemon)
	require.Zero(t, since())
	before := time.Now()
	c.SawPod(types.NamespacedName{Name: "a"}, replica("a", "node"))
	first := since()
	require.False(t, first.Before(before))
	touched := replica("a", "node")
	touched.Labels["x"] = "y"
	c.SawPod(types.NamespacedName{Name: "a"}, touched)
	require.Equal(t, first, since(), "it was there")
	c.SawPod(types.NamespacedName{Name: "b"}, replica("b", "node"))
	require.True(t, since().After(first))
	c.DropNode("node", "")
	c.SawNode(machine())
	require.Zero(t, since())
}
