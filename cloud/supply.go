//trueup:pure

package cloud

// Supply is what a pool can add to the cluster.
type Supply struct {
	// Pool is the name of the pool. Names are unique.
	Pool string
	// Weight decides which pool is asked first: a higher one.
	Weight int32
	// Standby are the machines that can be started, in the order in which they
	// should be. Each stands here as its node will look after the start: with
	// its zone, without the taints and the cordon of a stopped machine, and
	// with the pods of the DaemonSets that will run on it.
	Standby []*Node
	// Templates are the machines that can be launched, in the order in which
	// they should be tried; usually one for each zone.
	Templates []NodeTemplate
	// MaxLaunches bounds the launches of all templates together; zero means
	// that none may be launched.
	MaxLaunches int
	// DefaultRequests are what a pod that requests nothing is taken to need on
	// a machine of this pool. If they are empty too, such a pod gets a machine
	// of its own.
	DefaultRequests Resources
	// Usable is the share of CPU, memory, storage and extended resources of a
	// machine of this pool that is planned with, before the pods that are on it
	// already; zero means 1.
	Usable float64
}

// NodeTemplate is what a machine looks like after its launch.
type NodeTemplate struct {
	// Name is unique among the templates of a pool. It may be empty if there is
	// only one.
	Name string
	// Node is the node of each machine that is launched from this template. Its
	// Name and its label kubernetes.io/hostname are ignored: every machine has
	// its own.
	Node Node
}

// Starting is a machine that was started or launched, and is not yet a node
// that the scheduler uses.
type Starting struct {
	// Pool is the name of the pool that the machine belongs to. A pool that
	// none of the supplies has leaves Usable and DefaultRequests at zero.
	Pool string
	// Node is the node as it will look when it is ready.
	Node *Node
	// Reserved are the UIDs of the pods that the machine was started for. They
	// are placed on it first. A reservation that is over is left out by the
	// caller.
	Reserved []string
}
