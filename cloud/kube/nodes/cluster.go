package nodes

import (
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The resources that are read and written.
var (
	nodesResource = corev1.SchemeGroupVersion.WithResource("nodes") //nolint:gochecknoglobals // constant
	podsResource  = corev1.SchemeGroupVersion.WithResource("pods")  //nolint:gochecknoglobals // constant
)

// A Cluster is the Nodes, pods, DaemonSets and namespaces as this process last saw or wrote
// them: each object is read once, when it changes, and not in every pass. A write of
// [Marks] is stored before the watch shows it, so that the next pass does not repeat it;
// resourceVersions keep an older event from undoing that. It is safe for concurrent use.
type Cluster struct {
	domain   Domain
	platform Platform
	changed  func(pools []string, demand bool)

	mu         sync.Mutex
	nodes      map[string]View
	raw        map[string]*corev1.Node // those with a machine
	byMachine  map[string]string       // from the ID of a machine to the name of its Node
	gone       map[string]string       // the UIDs of Nodes that were deleted, until the watch says so
	pods       map[types.NamespacedName]PodView
	onNode     map[string]map[types.NamespacedName]bool
	came       map[string]time.Time // by Node: when the last pod that has to be evicted came
	daemons    map[types.NamespacedName]*appsv1.DaemonSet
	namespaces map[string]map[string]string
	budgets    map[types.NamespacedName]budget
	// budgetsKnown: all of them were seen once.
	budgetsKnown bool
	volumes      volumes
}

// New returns a Cluster that has seen nothing yet. changed is called, outside of its lock,
// with the pools whose machines have changed, and whether what pods need may have. The name
// of a machine that has just joined, and may be of any pool, is empty.
func New(domain Domain, platform Platform, changed func(pools []string, demand bool)) *Cluster {
	return &Cluster{
		domain: domain, platform: platform, changed: changed,
		nodes: map[string]View{}, raw: map[string]*corev1.Node{}, byMachine: map[string]string{}, gone: map[string]string{},
		pods: map[types.NamespacedName]PodView{}, onNode: map[string]map[types.NamespacedName]bool{},
		came:    map[string]time.Time{},
		daemons: map[types.NamespacedName]*appsv1.DaemonSet{}, namespaces: map[string]map[string]string{},
		budgets: map[types.NamespacedName]budget{}, volumes: newVolumes(),
	}
}

// SawNode stores a Node if it is newer than the stored one.
func (c *Cluster) SawNode(n *corev1.Node) {
	v := view(n, c.domain, c.platform)
	c.mu.Lock()
	was, known := c.nodes[n.Name]
	gone, deleted := c.gone[n.Name]
	if known && was.UID == v.UID && v.version <= was.version || deleted && gone == v.UID {
		c.mu.Unlock()
		return
	}
	if v.Status.Ready && known {
		v.Ready = was.Ready
		if !was.Status.Ready {
			v.Ready = time.Now()
		}
	}
	delete(c.gone, n.Name)
	c.nodes[n.Name] = v
	delete(c.raw, n.Name)
	if v.Status.ID != "" {
		n = n.DeepCopy()
		n.ManagedFields, n.Status.Images = nil, nil
		c.raw[n.Name] = n
	}
	c.join(was.Status.ID, n.Name)
	c.join(v.Status.ID, n.Name)
	c.mu.Unlock()
	was.version, was.Status.Pods = v.version, v.Status.Pods
	if !known || !sameView(was, v) {
		c.changed(poolsOf(was, v), true)
	}
}

// join finds the Node of a machine, after a change of one. A kubelet that has registered under
// another name leaves its former Node behind: the youngest is the one of the machine.
func (c *Cluster) join(id, changed string) {
	if id == "" {
		return
	}
	known := c.byMachine[id]
	switch {
	case c.nodes[changed].Status.ID == id && (known == "" || known == changed):
		c.byMachine[id] = changed // as nearly always
		return
	case known != "" && known != changed && c.nodes[changed].Status.ID != id:
		return
	}
	delete(c.byMachine, id)
	for _, name := range c.named(id) {
		if n := c.raw[c.byMachine[id]]; n == nil || n.CreationTimestamp.Time.Before(c.raw[name].CreationTimestamp.Time) {
			c.byMachine[id] = name
		}
	}
}

// sameView reports whether a pass would find nothing new.
func sameView(a, b View) bool {
	return reflect.DeepEqual(a, b)
}

func poolsOf(views ...View) []string {
	var pools []string
	for _, v := range views {
		if (v.Pool != "" || v.Status.ID != "") && !slices.Contains(pools, v.Pool) {
			pools = append(pools, v.Pool) // "" is a machine that may just have joined
		}
	}
	return pools
}

// DropNode removes a deleted Node. With a UID it removes only the Node of that UID, and
// older updates do not bring it back.
func (c *Cluster) DropNode(name, uid string) {
	c.mu.Lock()
	was, known := c.nodes[name]
	switch {
	case uid == "":
		delete(c.gone, name)
	case known && was.UID != uid:
		c.mu.Unlock()
		return
	default:
		c.gone[name] = uid
	}
	delete(c.nodes, name)
	delete(c.raw, name)
	delete(c.came, name)
	c.join(was.Status.ID, name)
	c.mu.Unlock()
	if known {
		c.changed(poolsOf(was), true)
	}
}

// node returns the Node of a machine as it was seen or written last, nil if there is none.
func (c *Cluster) node(name string) *corev1.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.raw[name]; n != nil {
		return n.DeepCopy()
	}
	return nil
}

// Node returns a Node as it was seen or written last.
func (c *Cluster) Node(name string) (View, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.nodes[name]
	v.Status.NetworkReady, v.Status.DoNotDisrupt = c.networkReady(name, v), c.kept(name)
	return v, ok
}

// OfMachine returns the Node of a machine.
func (c *Cluster) OfMachine(id string) (View, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.nodes[c.byMachine[id]]
	return v, ok
}

// named returns the names of all Nodes of a machine.
func (c *Cluster) named(id string) []string {
	var names []string
	for name := range c.raw {
		if c.nodes[name].Status.ID == id {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// namesOf is named for callers without the lock.
func (c *Cluster) namesOf(id string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.named(id)
}

// Machines returns the Nodes of a pool, by name, and the Nodes of its machines that have no
// state yet. Of a machine that has several the youngest is returned.
func (c *Cluster) Machines(pool, uid string, ids map[string]bool) []View {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []View
	coming := c.coming()
	for _, name := range slices.Sorted(maps.Keys(c.raw)) {
		v := c.nodes[name]
		if c.byMachine[v.Status.ID] != name {
			continue
		}
		if v.Owned(pool, uid) || v.Pool == "" && ids[v.Status.ID] {
			v.Status.Pods, v.Status.Waiting = c.occupants(name)+len(coming[name]), len(c.waiting(name))
			v.Status.NetworkReady, v.Status.DoNotDisrupt = c.networkReady(name, v), c.kept(name)
			v.Status.PodsSince = c.came[name]
			out = append(out, v)
		}
	}
	return out
}

// expects reports whether the scheduler has chosen a Node for a pod that is not bound yet.
func (c *Cluster) expects(node string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.coming()[node]) > 0
}

// networkReady reports whether the network of a Node works since its last start: by its
// conditions, and by the pod of the network plugin if the cluster has one. Where no
// condition speaks of the network that pod decides alone.
func (c *Cluster) networkReady(node string, v View) bool {
	if !v.Status.Ready || v.network == networkDown {
		return false
	}
	if !c.hasNetworkPlugin() {
		return v.network == networkUp
	}
	plugin := c.networkPlugin(node)
	return plugin != "" && plugin != v.atStop[signalNetworkPlugin]
}

// networkPlugin returns the signal of the network plugin's pod on a Node, empty if it is
// not ready.
func (c *Cluster) networkPlugin(node string) string {
	for key := range c.onNode[node] {
		if p := c.pods[key]; p.Network && !p.terminating && !p.Ready.IsZero() {
			return string(p.UID) + " " + formatTime(p.Ready)
		}
	}
	return ""
}

// networkPluginOf is networkPlugin for callers without the lock.
func (c *Cluster) networkPluginOf(node string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.networkPlugin(node)
}

func (c *Cluster) hasNetworkPlugin() bool {
	for _, d := range c.daemons {
		if c.platform.isNetworkPlugin(d.Spec.Template.Labels) {
			return true
		}
	}
	return false
}

// SawDaemonSet stores a DaemonSet, which is nil if it is deleted.
func (c *Cluster) SawDaemonSet(key types.NamespacedName, d *appsv1.DaemonSet) {
	c.mu.Lock()
	was := c.daemons[key]
	if d == nil {
		delete(c.daemons, key)
	} else {
		c.daemons[key] = d
	}
	c.mu.Unlock()
	if (was == nil) != (d == nil) || d != nil && was.Generation != d.Generation {
		c.changed(nil, true)
	}
}

// SawNamespace stores a namespace, which is nil if it is deleted.
func (c *Cluster) SawNamespace(name string, n *corev1.Namespace) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n != nil {
		c.namespaces[name] = n.Labels
	} else {
		delete(c.namespaces, name)
	}
}

// DaemonSets returns the DaemonSets, by name.
func (c *Cluster) DaemonSets() []*appsv1.DaemonSet {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := slices.Collect(maps.Values(c.daemons))
	nameOf := func(d *appsv1.DaemonSet) types.NamespacedName {
		return types.NamespacedName{Namespace: d.Namespace, Name: d.Name}
	}
	slices.SortFunc(out, func(a, b *appsv1.DaemonSet) int { return compareNames(nameOf(a), nameOf(b)) })
	return out
}

// Seen returns how many Nodes, pods, DaemonSets and namespaces are stored: a caller compares
// them with what its watches have, before the first pass.
func (c *Cluster) Seen() (nodes, pods, daemonSets, namespaces int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.nodes), len(c.pods), len(c.daemons), len(c.namespaces)
}
