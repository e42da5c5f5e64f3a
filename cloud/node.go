//trueup:pure

package cloud

// Node is what decides which pods the scheduler places on a node.
type Node struct {
	Name string
	// Machine identifies the machine behind the node to the caller. It does not
	// matter here.
	Machine string
	Labels  map[string]string
	Taints  []Taint
	// Allocatable is what all pods of the node may use together.
	Allocatable Resources
	// Unschedulable nodes, also called cordoned, take only pods that tolerate
	// it.
	Unschedulable bool
	// Pods are those that use the node now, terminating ones included. For a
	// machine that does not run they are those that will be there without being
	// asked for: the pods of DaemonSets, and static pods.
	Pods []*Pod
}

// The effects of a [Taint] that keep pods away. Other effects are ignored.
const (
	NoSchedule = "NoSchedule"
	NoExecute  = "NoExecute"
)

// Taint keeps pods that do not tolerate it off a node.
type Taint struct {
	Key, Value, Effect string
}

// Toleration lets a pod onto a node that has a taint.
type Toleration struct {
	// Key is empty for all keys, which takes Exists.
	Key string
	// Exists tolerates every value; otherwise the taint has Value.
	Exists bool
	Value  string
	// Effect is empty for all effects.
	Effect string
}

const unschedulableTaint = "node.kubernetes.io/unschedulable"

func (t *Toleration) tolerates(taint *Taint) bool {
	if t.Effect != "" && t.Effect != taint.Effect {
		return false
	}
	if t.Key != "" && t.Key != taint.Key {
		return false
	}
	if t.Key == "" && !t.Exists {
		return false
	}
	return t.Exists || t.Value == taint.Value
}

func (p *Pod) tolerates(taint *Taint) bool {
	for i := range p.Tolerations {
		if p.Tolerations[i].tolerates(taint) {
			return true
		}
	}
	return false
}

// untolerated returns the first taint of n that keeps p away, or nil.
func (p *Pod) untolerated(n *Node) *Taint {
	for i := range n.Taints {
		taint := &n.Taints[i]
		if (taint.Effect == NoSchedule || taint.Effect == NoExecute) && !p.tolerates(taint) {
			return taint
		}
	}
	return nil
}

// refusesCordon reports whether p stays off n because n is unschedulable.
func (p *Pod) refusesCordon(n *Node) bool {
	return n.Unschedulable && !p.tolerates(&Taint{Key: unschedulableTaint, Effect: NoSchedule})
}

// CanRunOn reports whether the node selector, the node affinity and the
// tolerations of p admit n, without a look at room, ports and other pods.
func (p *Pod) CanRunOn(n *Node) bool {
	return p.matchesNode(n) && p.untolerated(n) == nil && !p.refusesCordon(n)
}
