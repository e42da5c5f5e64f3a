package operator

import (
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	cloudkube "github.com/seed-9e1ffd66/trueup/cloud/kube"
)

// world is the cluster as this program last saw or wrote it: each object is read once,
// when it changes, and not in every pass. A write of this process is stored before the watch
// shows it, so that the next pass does not repeat it; resourceVersions keep an older event
// from undoing that. It is safe for concurrent use.
type world struct {
	// changed is called, outside the lock, with the pools whose machines have changed, and
	// whether what pods need may have.
	changed func(pools []string, demand bool)

	mu         sync.Mutex
	nodes      map[string]nodeView
	raw        map[string]*corev1.Node // those with a machine
	byMachine  map[string]string       // from the ID of a machine to the name of its Node
	gone       map[string]string       // the UIDs of Nodes that were deleted, until the watch says so
	pods       map[types.NamespacedName]podView
	onNode     map[string]map[types.NamespacedName]bool
	daemons    map[types.NamespacedName]*appsv1.DaemonSet
	namespaces map[string]map[string]string
}

// podView is what this program reads of a pod.
type podView struct {
	uid  types.UID
	node string
	// pod decides about a place; nil if the pod has ended.
	pod *demand.Pod
	// waiting is since when the scheduler finds no place, zero if it does not look for one.
	waiting time.Time
	// evicted: it has to be evicted before its machine is stopped. Pods of DaemonSets and
	// static pods stay.
	evicted     bool
	terminating bool
	// stays: it tolerates the taint of standby machines, which evicts others.
	stays bool
	// network: the pod belongs to a network plugin. ready is since when it is ready, zero
	// if it is not.
	network bool
	ready   time.Time
}

// podOnNode is a pod that has to be evicted.
type podOnNode struct {
	key         types.NamespacedName
	uid         types.UID
	terminating bool
}

func newWorld(changed func(pools []string, demand bool)) *world {
	return &world{
		changed: changed, nodes: map[string]nodeView{}, raw: map[string]*corev1.Node{}, byMachine: map[string]string{}, gone: map[string]string{},
		pods: map[types.NamespacedName]podView{}, onNode: map[string]map[types.NamespacedName]bool{},
		daemons: map[types.NamespacedName]*appsv1.DaemonSet{}, namespaces: map[string]map[string]string{},
	}
}

// sawNode stores a Node if it is newer than the stored one.
func (w *world) sawNode(n *corev1.Node) {
	v := viewNode(n)
	w.mu.Lock()
	was, known := w.nodes[n.Name]
	if known && was.uid == v.uid && v.version <= was.version || w.gone[n.Name] == v.uid {
		w.mu.Unlock()
		return
	}
	if v.status.Ready && known {
		v.ready = was.ready
		if !was.status.Ready {
			v.ready = time.Now()
		}
	}
	delete(w.gone, n.Name)
	w.nodes[n.Name] = v
	delete(w.byMachine, was.status.ID)
	delete(w.raw, n.Name)
	if v.status.ID != "" {
		n = n.DeepCopy()
		n.ManagedFields, n.Status.Images = nil, nil
		w.raw[n.Name], w.byMachine[v.status.ID] = n, n.Name
	}
	w.mu.Unlock()
	was.version, was.status.Pods = v.version, v.status.Pods
	if !known || !sameView(was, v) {
		w.changed(poolsOf(was, v), true)
	}
}

// sameView reports whether a pass would find nothing new.
func sameView(a, b nodeView) bool {
	return reflect.DeepEqual(a, b)
}

func poolsOf(views ...nodeView) []string {
	var pools []string
	for _, v := range views {
		if (v.pool != "" || v.status.ID != "") && !slices.Contains(pools, v.pool) {
			pools = append(pools, v.pool) // "" is a machine that may just have joined
		}
	}
	return pools
}

// dropNode removes a deleted Node. With a UID it removes only the Node of that UID, and
// older updates do not bring it back.
func (w *world) dropNode(name, uid string) {
	w.mu.Lock()
	was, known := w.nodes[name]
	switch {
	case uid == "":
		delete(w.gone, name)
	case known && was.uid != uid:
		w.mu.Unlock()
		return
	default:
		w.gone[name] = uid
	}
	delete(w.nodes, name)
	delete(w.raw, name)
	delete(w.byMachine, was.status.ID)
	w.mu.Unlock()
	if known {
		w.changed(poolsOf(was), true)
	}
}

// sawPod stores a pod, which is nil if it is deleted, and returns its old and its new
// view.
func (w *world) sawPod(key types.NamespacedName, p *corev1.Pod) (was, v podView) {
	v = viewPod(p)
	w.mu.Lock()
	was = w.pods[key]
	nodes := []string{was.node, v.node}
	before := [2]int{w.occupants(was.node), w.occupants(v.node)}
	w.place(key, was.node, v.node)
	if p == nil {
		delete(w.pods, key)
	} else {
		w.pods[key] = v
	}
	var pools []string
	for i, name := range nodes {
		n, ok := w.nodes[name]
		if !ok || n.pool == "" || slices.Contains(pools, n.pool) {
			continue
		}
		// Of a machine that is being emptied each pod counts, of another one whether there
		// are any.
		left := w.occupants(name)
		if n.status.State == cloud.StateTerminating && left != before[i] || (left == 0) != (before[i] == 0) ||
			v.network && was.ready.IsZero() != v.ready.IsZero() {
			pools = append(pools, n.pool)
		}
	}
	w.mu.Unlock()
	demand := !was.waiting.IsZero() || !v.waiting.IsZero()
	if len(pools) > 0 || demand {
		w.changed(pools, demand)
	}
	return was, v
}

// place moves a pod from one Node to another.
func (w *world) place(key types.NamespacedName, from, to string) {
	if from == to {
		return
	}
	delete(w.onNode[from], key)
	if len(w.onNode[from]) == 0 {
		delete(w.onNode, from)
	}
	if to == "" {
		return
	}
	if w.onNode[to] == nil {
		w.onNode[to] = map[types.NamespacedName]bool{}
	}
	w.onNode[to][key] = true
}

// occupants is how many pods have to be evicted from a Node.
func (w *world) occupants(node string) int {
	n := 0
	for key := range w.onNode[node] {
		if w.pods[key].evicted {
			n++
		}
	}
	return n
}

// mirrorPod marks a pod that a kubelet has read from a file.
const mirrorPod = corev1.MirrorPodAnnotationKey

// viewPod reads a pod.
func viewPod(p *corev1.Pod) podView {
	if p == nil {
		return podView{}
	}
	v := podView{uid: p.UID, node: p.Spec.NodeName, terminating: p.DeletionTimestamp != nil}
	ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	daemon := false
	if owner := metav1.GetControllerOf(p); owner != nil {
		daemon = owner.Kind == "DaemonSet"
	}
	_, mirror := p.Annotations[mirrorPod]
	v.evicted = v.node != "" && !ended && !daemon && !mirror
	v.network = daemon && p.Labels[networkPluginLabel] == networkPlugin
	for _, c := range p.Status.Conditions {
		switch {
		case c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue:
			v.ready = c.LastTransitionTime.Time
		case c.Type == corev1.PodScheduled && cloudkube.Unschedulable(p):
			v.waiting = c.LastTransitionTime.Time
			if v.waiting.IsZero() {
				v.waiting = p.CreationTimestamp.Time
			}
		}
	}
	if !ended {
		pod := cloudkube.Pod(p)
		v.pod, v.stays = &pod, v.evicted && staysOnStandby(&pod)
	}
	return v
}

// The DaemonSet of the network plugin of AWS.
const (
	networkPluginLabel = "k8s-app"
	networkPlugin      = "aws-node"
)

// cached returns the Node of a machine as it was seen or written last, nil if there is
// none.
func (w *world) cached(name string) *corev1.Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.raw[name]; n != nil {
		return n.DeepCopy()
	}
	return nil
}

// view returns a Node as it was seen or written last.
func (w *world) view(name string) (nodeView, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v, ok := w.nodes[name]
	v.status.NetworkReady = w.networkReady(name, v)
	return v, ok
}

// byID returns the Node of a machine.
func (w *world) byID(id string) (nodeView, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v, ok := w.nodes[w.byMachine[id]]
	return v, ok
}

// evictable returns the pods that have to be evicted from a Node, in the order of their
// names.
func (w *world) evictable(node string) []podOnNode {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []podOnNode
	for key := range w.onNode[node] {
		if p := w.pods[key]; p.evicted {
			out = append(out, podOnNode{key, p.uid, p.terminating})
		}
	}
	slices.SortFunc(out, func(a, b podOnNode) int { return cmpNames(a.key, b.key) })
	return out
}

// machines returns the Nodes of a pool, by name, and the Nodes of its machines that have no
// state yet.
func (w *world) machines(pool, uid string, ids map[string]bool) []nodeView {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []nodeView
	for _, name := range slices.Sorted(maps.Keys(w.raw)) {
		v := w.nodes[name]
		if v.owned(pool, uid) || v.pool == "" && ids[v.status.ID] {
			v.status.Pods, v.status.Waiting = w.occupants(name), len(w.waiting(name))
			v.status.NetworkReady = w.networkReady(name, v)
			out = append(out, v)
		}
	}
	return out
}

// networkReady reports whether the network of a Node works since its last start: by its
// conditions, and by the pod of the network plugin if the cluster has one. Where no
// condition speaks of the network that pod decides alone.
func (w *world) networkReady(node string, v nodeView) bool {
	if !v.status.Ready || v.network == networkDown {
		return false
	}
	if !w.hasNetworkPlugin() {
		return v.network == networkUp
	}
	plugin := w.networkPlugin(node)
	return plugin != "" && plugin != v.atStop[signalNetworkPlugin]
}

// networkPlugin returns the signal of the network plugin's pod on a Node, empty if it is
// not ready.
func (w *world) networkPlugin(node string) string {
	for key := range w.onNode[node] {
		if p := w.pods[key]; p.network && !p.terminating && !p.ready.IsZero() {
			return string(p.uid) + " " + formatTime(p.ready)
		}
	}
	return ""
}

// networkPluginOf is networkPlugin for other than the world.
func (w *world) networkPluginOf(node string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.networkPlugin(node)
}

func (w *world) hasNetworkPlugin() bool {
	for _, d := range w.daemons {
		if d.Spec.Template.Labels[networkPluginLabel] == networkPlugin {
			return true
		}
	}
	return false
}

// sawDaemon stores a DaemonSet, which is nil if it is deleted.
func (w *world) sawDaemon(key types.NamespacedName, d *appsv1.DaemonSet) {
	w.mu.Lock()
	was := w.daemons[key]
	if d == nil {
		delete(w.daemons, key)
	} else {
		w.daemons[key] = d
	}
	w.mu.Unlock()
	if (was == nil) != (d == nil) || d != nil && was.Generation != d.Generation {
		w.changed(nil, true)
	}
}

// sawNamespace takes in the labels of a namespace.
func (w *world) sawNamespace(name string, labels map[string]string, exists bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if exists {
		w.namespaces[name] = labels
	} else {
		delete(w.namespaces, name)
	}
}

// sets returns the DaemonSets, by name.
func (w *world) sets() []*appsv1.DaemonSet {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := slices.Collect(maps.Values(w.daemons))
	slices.SortFunc(out, func(a, b *appsv1.DaemonSet) int {
		return cmpNames(types.NamespacedName{Namespace: a.Namespace, Name: a.Name}, types.NamespacedName{Namespace: b.Namespace, Name: b.Name})
	})
	return out
}

func (w *world) countNodes() int      { return count(w, func() int { return len(w.nodes) }) }
func (w *world) countPods() int       { return count(w, func() int { return len(w.pods) }) }
func (w *world) countDaemons() int    { return count(w, func() int { return len(w.daemons) }) }
func (w *world) countNamespaces() int { return count(w, func() int { return len(w.namespaces) }) }

func count(w *world, of func() int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return of()
}
