//trueup:pure

package demand

import (
	"slices"
	"strconv"
)

// Operator is how a [Requirement] compares a label.
type Operator string

// The operators have the names and the meaning of Kubernetes' operators.
const (
	In           Operator = "In"           // the label is one of the values
	NotIn        Operator = "NotIn"        // the label is absent or none of the values
	Exists       Operator = "Exists"       // the label is present, with any value
	DoesNotExist Operator = "DoesNotExist" // the label is absent
	Gt           Operator = "Gt"           // the label is an integer above the value
	Lt           Operator = "Lt"           // the label is an integer below the value
)

// Requirement is one condition on labels. An operator that is not one of the
// constants is never met.
type Requirement struct {
	Key      string
	Operator Operator
	// Values has at least one element for In and NotIn, and exactly one, a
	// decimal integer, for Gt and Lt.
	Values []string
}

// Selector selects pods or namespaces by labels: all its requirements must
// hold. As in Kubernetes, an empty selector selects everything, and a nil one
// selects nothing.
type Selector []Requirement

// NodeTerm selects nodes: all its requirements must hold. A term without any
// selects no node.
type NodeTerm struct {
	// Labels are conditions on the labels of the node.
	Labels []Requirement
	// Names are conditions on the name of the node, with In and NotIn. Key is
	// ignored.
	Names []Requirement
}

func (r *Requirement) matches(labels map[string]string) bool {
	value, there := labels[r.Key]
	return r.holds(value, there)
}

func (r *Requirement) holds(value string, there bool) bool {
	switch r.Operator {
	case In:
		return there && slices.Contains(r.Values, value)
	case NotIn:
		return !there || !slices.Contains(r.Values, value)
	case Exists:
		return there
	case DoesNotExist:
		return !there
	case Gt, Lt:
		if !there || len(r.Values) != 1 {
			return false
		}
		have, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return false
		}
		want, err := strconv.ParseInt(r.Values[0], 10, 64)
		if err != nil {
			return false
		}
		if r.Operator == Gt {
			return have > want
		}
		return have < want
	default:
		return false
	}
}

func (s Selector) matches(labels map[string]string) bool {
	if s == nil {
		return false
	}
	for i := range s {
		if !s[i].matches(labels) {
			return false
		}
	}
	return true
}

func (t *NodeTerm) matches(n *Node) bool {
	for i := range t.Labels {
		if !t.Labels[i].matches(n.Labels) {
			return false
		}
	}
	for i := range t.Names {
		if !t.Names[i].holds(n.Name, true) {
			return false
		}
	}
	return len(t.Labels)+len(t.Names) > 0
}

// matchesNode reports whether the node selector and the node affinity of p
// admit n.
func (p *Pod) matchesNode(n *Node) bool {
	for key, want := range p.NodeSelector {
		if value, there := n.Labels[key]; !there || value != want {
			return false
		}
	}
	return len(p.NodeAffinity) == 0 || anyMatches(p.NodeAffinity, n)
}

// unattachable returns the first volume of p that cannot be attached to n, or nil.
func (p *Pod) unattachable(n *Node) *Volume {
	for i := range p.Volumes {
		if !anyMatches(p.Volumes[i].Nodes, n) {
			return &p.Volumes[i]
		}
	}
	return nil
}

func anyMatches(terms []NodeTerm, n *Node) bool {
	for i := range terms {
		if terms[i].matches(n) {
			return true
		}
	}
	return false
}
