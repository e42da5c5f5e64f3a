//trueup:pure

package demand

import "strings"

// Node is the part of a node that decides which pods the scheduler places on it.
type Node struct {
	Name string
	// Machine identifies the machine of the node to the caller. Demand ignores it.
	Machine string
	Labels  map[string]string
	Taints  []Taint
	// Allocatable is the resources for all pods of the node together.
	Allocatable Resources
	// Unschedulable nodes, also called cordoned, take only pods that tolerate
	// it.
	Unschedulable bool
	// Pods are the pods that use the node now, terminating ones included. For a stopped
	// machine they are the DaemonSet pods and static pods that will run on it.
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

// Passing reports whether the cluster puts the taint on a Node that is not up, and
// removes it once the Node is up: the taints of the node lifecycle controller and the
// kubelet (node.kubernetes.io/not-ready, .../unreachable and the like), and of a
// cloud-controller-manager (node.cloudprovider.kubernetes.io/shutdown). The node of a
// stopped machine in [Supply].Standby must not have them. The taint out-of-service is
// not among them: people add and remove it.
func (t Taint) Passing() bool {
	return strings.HasPrefix(t.Key, "node.cloudprovider.kubernetes.io/") ||
		strings.HasPrefix(t.Key, "node.kubernetes.io/") && t.Key != "node.kubernetes.io/out-of-service"
}

// Toleration lets a pod onto a node that has a taint.
type Toleration struct {
	// Key is empty for all keys, which requires Exists.
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

// CanRunOn reports whether the node selector, the node affinity and the tolerations of
// p admit n. It ignores room, ports and other pods.
func (p *Pod) CanRunOn(n *Node) bool {
	return p.matchesNode(n) && p.untolerated(n) == nil && !p.refusesCordon(n)
}
