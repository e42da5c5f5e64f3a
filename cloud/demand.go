//trueup:pure

package cloud

import (
	"cmp"
	"slices"
)

// DemandInput is what [Demand] decides on. Nothing of it is written.
type DemandInput struct {
	// Pods are those that the scheduler could not place.
	Pods []*Pod
	// Nodes are those of the cluster, each with all pods that are on it. The
	// stopped and the starting machines of the pools are not among them.
	Nodes []*Node
	// Namespaces has the labels of each namespace. Terms with a
	// NamespaceSelector need it.
	Namespaces map[string]map[string]string
	// Starting are machines on their way.
	Starting []Starting
	// Supplies are the pools.
	Supplies []Supply
}

// DemandResult is what the pods need. Equal input, in whatever order pods
// and supplies stand, gives an equal result.
type DemandResult struct {
	// Pools has an element for each supply that has something to start or to
	// launch, in the order of names.
	Pools []PoolDemand
	// Placements are the pods that have a place now, also those that need
	// nothing new, in the order of namespaces, names and UIDs.
	Placements []PlacedPod
	// Unplaced are the pods that fit nowhere, in the same order. They start
	// nothing.
	Unplaced []Unplaced
	// Unmodelled are the pods whose Unmodelled is not empty, in the same order.
	Unmodelled []*Pod
}

// PoolDemand is what one pool should start.
type PoolDemand struct {
	Pool string
	// Start are the standby machines to start, in the order of Supply.Standby.
	Start []*Node
	// Launch is how many machines to launch from which template, in the order
	// of Supply.Templates.
	Launch []LaunchCount
}

// LaunchCount is a number of machines of one template.
type LaunchCount struct {
	Template string
	Count    int
}

// Where is the kind of machine that a pod was placed on.
type Where string

// The kinds of machines, in the order in which they are tried.
const (
	OnNode     Where = "node"     // runs already: the scheduler will place the pod by itself
	OnStarting Where = "starting" // is on its way
	OnStandby  Where = "standby"  // has to be started
	OnLaunch   Where = "launch"   // has to be launched
)

// PlacedPod is where a pod has room.
type PlacedPod struct {
	Pod *Pod
	On  Where
	// Pool is empty for OnNode.
	Pool string
	// Node is the node of the input; nil for OnLaunch.
	Node *Node
	// Template and Launch are for OnLaunch: the pod goes to the machine of that
	// number, from zero, of those launched from the template.
	Template string
	Launch   int
}

// Unplaced is a pod that fits nowhere.
type Unplaced struct {
	Pod *Pod
	// Reasons has one line for each supply, in the order of names, which explains why
	// it cannot help. Pods of one kind share the slice.
	Reasons []Reason
}

// Reason is why a pool cannot help a pod.
type Reason struct {
	Pool    string
	Message string
}

// maxRepacks bounds how often the packing is repeated because machines that it
// added are domains that earlier pods should have been spread over.
const maxRepacks = 8

// Demand returns the machines that the pods need, and where each pod has room.
//
// Every pod is placed by the rules of the scheduler: requests, node selector
// and affinity, taints, host ports, pod affinity and anti-affinity, topology
// spread, on nodes that exist, then on machines that are starting, then on
// standby machines, then on launched ones. Pods of the highest priority come
// first, of these the ones that keep away from each other, of these the largest;
// and each goes to the first machine with room. A machine
// is added only for a pod that fits it. Among pools that can add one, that of
// the highest weight does; then that whose spare capacity takes more of the pods of this
// kind; then that of the first name.
//
// All machines of the result together have room for all placed pods. The
// scheduler may still arrange them otherwise and leave one out; that pod is in
// the input of the next call.
func Demand(in DemandInput) DemandResult {
	return pack(&in).result()
}

func pack(in *DemandInput) *packing {
	m := newModel(in)
	p := newPacking(m, nil)
	p.run()
	for round := 1; round < maxRepacks; round++ {
		late := p.lateDomains(round > maxRepacks/2)
		if late == nil {
			break
		}
		p = newPacking(m, late)
		p.run()
	}
	return p
}

func comparePods(a, b *Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

func sortPods(pods []*Pod) []*Pod {
	if slices.IsSortedFunc(pods, comparePods) {
		return pods
	}
	return slices.SortedFunc(slices.Values(pods), comparePods)
}
