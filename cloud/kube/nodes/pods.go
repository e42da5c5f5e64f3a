package nodes

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube"
)

// A PodView is what is read of a pod. It is a value that is replaced, never changed.
type PodView struct {
	// UID of the pod; empty for a pod that is deleted.
	UID types.UID
	// Node is the Node that the pod is bound to, empty if it is bound to none.
	Node string
	// Pod decides about a place, without the claims of the pod; nil if it has ended.
	Pod *demand.Pod
	// Waiting is since when the scheduler finds no place, zero if it does not look for one.
	Waiting time.Time
	// Network reports that the pod belongs to a network plugin. Ready is since when it is
	// ready, zero if it is not, by the clock of its kubelet.
	Network bool
	Ready   time.Time

	claims []kube.Claim
	// evicted: it has to be evicted before its machine is stopped. Pods of DaemonSets and
	// static pods stay.
	evicted     bool
	terminating bool
	// replaced: its controller makes another pod once it is evicted.
	replaced bool
	// gated: nothing looks for a place for it yet.
	gated bool
	// kept: it asks not to be evicted while its machine is good.
	kept bool
	// stays: it tolerates the taint of standby machines, which evicts others.
	stays bool
	// ending is since when it is seen to be terminating, zero if it is not.
	ending time.Time
}

// endingAge is how long a pod is terminating before it counts as one that only a kubelet ends:
// the API server marks a pod so for a moment also when it removes it at once.
const endingAge = 10 * time.Second

// bound reports whether nothing but its kubelet ends the pod, or starts it.
func (p *PodView) bound() bool {
	return p.evicted && (p.stays || p.terminating && time.Since(p.ending) >= endingAge)
}

// doNotDisrupt reports whether a pod asks not to be evicted without need: by an annotation below
// the domain, or by those that cluster-autoscaler and Karpenter read.
func (d Domain) doNotDisrupt(p *corev1.Pod) bool {
	return p.Annotations[d.key("do-not-disrupt")] == "true" || p.Annotations["karpenter.sh/do-not-disrupt"] == "true" ||
		p.Annotations[safeToEvict] == "false"
}

// safeToEvict is what cluster-autoscaler reads.
const safeToEvict = "cluster-autoscaler.kubernetes.io/safe-to-evict"

// replaces reports whether a controller makes another pod, which is as good, for one that is
// evicted. A Job may count the eviction as a failure, and what others do is not known.
func replaces(owner *metav1.OwnerReference) bool {
	switch owner.Kind + " " + owner.APIVersion {
	case "ReplicaSet apps/v1", "StatefulSet apps/v1", "ReplicationController v1":
		return true
	default:
		return false
	}
}

// waits is 1 for a pod whose claims decide where it may go, else 0.
func waits(v *PodView) int {
	if v.Waiting.IsZero() || len(v.claims) == 0 {
		return 0
	}
	return 1
}

// podOnNode is a pod that has to be evicted.
type podOnNode struct {
	key         types.NamespacedName
	uid         types.UID
	terminating bool
}

// SawPod stores a pod, which is nil if it is deleted, and returns its old and its new
// view.
func (c *Cluster) SawPod(key types.NamespacedName, p *corev1.Pod) (was, v PodView) {
	v = c.viewPod(p)
	c.mu.Lock()
	was = c.pods[key]
	if v.terminating {
		v.ending = time.Now()
		if was.UID == v.UID && was.terminating {
			v.ending = was.ending
		}
	}
	nodes := []string{was.Node, v.Node}
	before := [2]int{c.occupants(was.Node), c.occupants(v.Node)}
	c.place(key, was.Node, v.Node)
	if v.evicted && !was.evicted {
		c.came[v.Node] = time.Now()
	}
	c.volumes.waiting += waits(&v) - waits(&was)
	if p == nil {
		delete(c.pods, key)
	} else {
		c.pods[key] = v
	}
	var pools []string
	for i, name := range nodes {
		n, ok := c.nodes[name]
		if !ok || n.Pool == "" || slices.Contains(pools, n.Pool) {
			continue
		}
		// Of a machine that is being emptied each pod counts, of another one whether there
		// are any.
		left := c.occupants(name)
		if n.Status.State == cloud.StateTerminating && left != before[i] || (left == 0) != (before[i] == 0) ||
			v.Network && was.Ready.IsZero() != v.Ready.IsZero() {
			pools = append(pools, n.Pool)
		}
	}
	c.mu.Unlock()
	demand := !was.Waiting.IsZero() || !v.Waiting.IsZero()
	if len(pools) > 0 || demand {
		c.changed(pools, demand)
	}
	return was, v
}

// place moves a pod from one Node to another.
func (c *Cluster) place(key types.NamespacedName, from, to string) {
	if from == to {
		return
	}
	delete(c.onNode[from], key)
	if len(c.onNode[from]) == 0 {
		delete(c.onNode, from)
	}
	if to == "" {
		return
	}
	if c.onNode[to] == nil {
		c.onNode[to] = map[types.NamespacedName]bool{}
	}
	c.onNode[to][key] = true
}

// occupants is how many pods have to be evicted from a Node.
func (c *Cluster) occupants(node string) int {
	n := 0
	for key := range c.onNode[node] {
		if c.pods[key].evicted {
			n++
		}
	}
	return n
}

// kept reports whether a pod on a Node asks not to be evicted.
func (c *Cluster) kept(node string) bool {
	for key := range c.onNode[node] {
		if c.pods[key].kept {
			return true
		}
	}
	return false
}

// mirrorPod marks a pod that a kubelet has read from a file.
const mirrorPod = corev1.MirrorPodAnnotationKey

// waitsForFinalizers reports whether a pod is only still listed: its kubelet has ended its
// containers, or a person has given them up, and what has put a finalizer on it has not removed it.
func waitsForFinalizers(p *corev1.Pod) bool {
	return p.DeletionTimestamp != nil && p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == 0
}

// viewPod reads a pod.
func (c *Cluster) viewPod(p *corev1.Pod) PodView {
	if p == nil {
		return PodView{}
	}
	v := PodView{UID: p.UID, Node: p.Spec.NodeName, terminating: p.DeletionTimestamp != nil}
	ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || waitsForFinalizers(p)
	daemon := false
	if owner := metav1.GetControllerOf(p); owner != nil {
		daemon, v.replaced = owner.Kind == "DaemonSet", replaces(owner)
	}
	v.replaced = v.replaced || p.Annotations[safeToEvict] == "true"
	_, mirror := p.Annotations[mirrorPod]
	v.gated = len(p.Spec.SchedulingGates) > 0
	v.evicted = v.Node != "" && !ended && !daemon && !mirror
	v.kept = v.evicted && c.domain.doNotDisrupt(p)
	v.Network = daemon && c.platform.isNetworkPlugin(p.Labels)
	for _, condition := range p.Status.Conditions {
		switch {
		case condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue:
			v.Ready = condition.LastTransitionTime.Time
		case condition.Type == corev1.PodScheduled && kube.Unschedulable(p):
			v.Waiting = condition.LastTransitionTime.Time
			if v.Waiting.IsZero() {
				v.Waiting = p.CreationTimestamp.Time
			}
		}
	}
	if !ended {
		pod := kube.PodWithoutClaims(p)
		v.claims = kube.Claims(p)
		v.Pod, v.stays = &pod, v.evicted && c.staysOnStandby(&pod)
	}
	return v
}

// coming returns the pods that the scheduler has chosen a Node for and has not bound yet, by that
// Node: it makes room there, or has a volume made, which may take minutes. Such a pod uses the
// Node, and cannot be evicted from it.
func (c *Cluster) coming() map[string][]*PodView {
	out := map[string][]*PodView{}
	for _, p := range c.pods {
		if p.Pod == nil || p.Node != "" || p.terminating {
			continue
		}
		if node := c.chosen(&p); node != "" {
			out[node] = append(out[node], &p)
		}
	}
	return out
}

// chosen returns the Node that the scheduler has chosen for a pod, empty if it has none.
func (c *Cluster) chosen(p *PodView) string {
	if p.Pod.Nominated != "" {
		return p.Pod.Nominated
	}
	for _, claim := range p.claims {
		if stored := c.volumes.claims[types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}]; stored != nil {
			if node := stored.Annotations[kube.SelectedNode]; node != "" && stored.Spec.VolumeName == "" {
				return node
			}
		}
	}
	return ""
}

// evictable returns the pods that have to be evicted from a Node, in the order of their
// names.
func (c *Cluster) evictable(node string) []podOnNode {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []podOnNode
	for key := range c.onNode[node] {
		if p := c.pods[key]; p.evicted {
			out = append(out, podOnNode{key, p.UID, p.terminating})
		}
	}
	slices.SortFunc(out, func(a, b podOnNode) int { return compareNames(a.key, b.key) })
	return out
}

// staysOnStandby reports whether a pod tolerates the taint of standby machines. The cluster
// evicts others from their Nodes, and they become demand like any Pending pod.
func (c *Cluster) staysOnStandby(p *demand.Pod) bool {
	t := c.domain.StandbyTaint()
	tolerant := demand.Pod{Tolerations: p.Tolerations}
	return tolerant.CanRunOn(&demand.Node{Taints: []demand.Taint{{Key: t.Key, Value: t.Value, Effect: string(t.Effect)}}})
}

// waiting returns the pods that stay bound to the Node of a standby machine: they wait for its
// start.
func (c *Cluster) waiting(node string) []*demand.Pod {
	var out []*demand.Pod
	for key := range c.onNode[node] {
		if p := c.pods[key]; p.bound() {
			out = append(out, p.Pod)
		}
	}
	return out
}

func compareNames(a, b types.NamespacedName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}
