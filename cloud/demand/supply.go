//trueup:pure

package demand

// Supply is the machines that a pool can add to the cluster.
type Supply struct {
	// Pool is the name of the pool. Names are unique.
	Pool string
	// Weight decides which pool is used first: the one with the higher weight.
	Weight int32
	// Standby are the machines that can be started, in the preferred order. Each is the
	// node as it will look after the start: with its zone, without the cordon and
	// the taints of a stopped machine (the pool's own taints and every [Taint.Passing]), and
	// with the pods of the DaemonSets that will run on it.
	Standby []*Node
	// Templates are the machines that can be launched, in the preferred order; usually
	// one for each zone.
	Templates []NodeTemplate
	// MaxLaunches bounds the launches of all templates together, beyond Coming;
	// zero means that none may be launched. It is the remaining room, and zero while
	// the pool may not launch: see [cloud.Plan.Room]. If a pool cannot launch, the same
	// decision uses another one.
	MaxLaunches int
	// Coming is how many machines of the pool were launched and are not on
	// standby yet; see [cloud.Counts]. Pods that need a launch get these before any pool
	// launches another one. They count among the launches of the result, and of
	// [cloud.Want].Launch.
	Coming int
	// Limit is why MaxLaunches is not larger, for the reasons of pods. It may be
	// empty.
	Limit string
	// DefaultRequests are the assumed requests of a pod without requests on a machine
	// of this pool. If they are empty too, such a pod gets a machine of its own.
	DefaultRequests Resources
}

// NodeTemplate is the node of a machine after its launch.
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
	// Pool is the name of the pool that the machine belongs to. For a pool that is in
	// no supply, Usable and DefaultRequests are zero.
	Pool string
	// Node is the node as it will look when it is ready.
	Node *Node
	// Reserved are the UIDs of the pods that the machine was started for. They
	// are placed on it first. The caller must leave out expired reservations.
	Reserved []string
}
