//trueup:pure

package demand

import (
	"cmp"
	"slices"
)

// Input is the input of [Place], which never writes to it.
type Input struct {
	// Pods are the pods that the scheduler could not place.
	Pods []*Pod
	// Nodes are the nodes of the cluster, each with all its pods. The
	// stopped and the starting machines of the pools are not among them.
	Nodes []*Node
	// Namespaces has the labels of each namespace. Terms with a
	// NamespaceSelector need it.
	Namespaces map[string]map[string]string
	// Starting are machines that were started or launched.
	Starting []Starting
	// Supplies are the pools.
	Supplies []Supply
}

// Result is the demand of the pods. Equal input gives an equal result, whatever
// the order of pods and supplies.
type Result struct {
	// Pools has an element for each supply with a machine to start or launch, in the
	// order of names.
	Pools []PoolDemand
	// Placements are the placed pods, including those on existing nodes, in the order
	// of namespaces, names and UIDs.
	Placements []PlacedPod
	// Unplaced are the pods that fit nowhere, in the same order. They start
	// nothing.
	Unplaced []Unplaced
	// Unmodelled are the pods whose Unmodelled is not empty, in the same order.
	Unmodelled []*Pod
}

// PoolDemand is the demand on one pool.
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
	OnNode     Where = "node"     // a running node: the scheduler will place the pod
	OnStarting Where = "starting" // a starting machine
	OnStandby  Where = "standby"  // a machine to start
	OnLaunch   Where = "launch"   // a machine to launch
)

// PlacedPod is a pod and its place.
type PlacedPod struct {
	Pod *Pod
	On  Where
	// Pool is empty for OnNode.
	Pool string
	// Node is the node of the input; nil for OnLaunch.
	Node *Node
	// Template and Launch are for OnLaunch: the pod goes to the machine of that number,
	// from zero, among those launched from the template.
	Template string
	Launch   int
}

// Unplaced is a pod that fits nowhere.
type Unplaced struct {
	Pod *Pod
	// Reasons has one entry for each supply with the reason why it cannot help.
	// Supplies that only lack room come first, then those that the pod may not run on,
	// then those that it does not select, each in the order of names: a truncated list
	// keeps the most useful ones. Pods of one kind share the slice.
	Reasons []Reason
}

// Reason is why a pool cannot help a pod.
type Reason struct {
	Pool    string
	Message string
}

// maxRepacks bounds how often the packing is repeated because added machines are
// domains over which earlier pods must be spread.
const maxRepacks = 8

// Place returns the machines that the pods need, and the place of each pod.
//
// Every pod is placed by the rules of the scheduler: requests, node selector
// and affinity, taints, host ports, pod affinity and anti-affinity, topology
// spread, on nodes that exist, then on machines that are starting, then on
// standby machines, then on launched ones. Pods of the highest priority come first,
// among these the ones with anti-affinity to each other, among these the largest. Each
// goes to the first machine with room. A machine is added only for a pod that fits it.
// Among the pools that can add one, the one with the highest weight does; then the one
// whose spare capacity takes more pods of this kind; then the first by name.
//
// All machines of the result together have room for all placed pods. The scheduler may
// still place them differently and leave one out; that pod is in the input of the next
// call.
func Place(in Input) Result {
	return pack(&in).result()
}

func pack(in *Input) *packing {
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
	if announced := p.announced; !p.retryLeft(true) {
		p = newPacking(m, announced)
		p.run()
		p.retryLeft(false)
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
