//trueup:pure

package demand

import "slices"

// Pod is the part of a pod that decides where the scheduler places it. A Pod must not
// be changed while [Place] runs, which never writes to it.
type Pod struct {
	Namespace, Name, UID string
	Labels               map[string]string
	// Priority of the pod: a higher one gets a machine first. It never evicts.
	Priority int32
	// Requests are the requests of the whole pod: its containers, init containers,
	// sidecars and overhead together. Package cloud/kube computes them.
	Requests Resources
	// NodeSelector and NodeAffinity must both admit a node. Of several terms in
	// NodeAffinity one must hold; no term admits every node.
	NodeSelector map[string]string
	NodeAffinity []NodeTerm
	// Volumes must all be attachable to a node. Unlike NodeAffinity, they do not change
	// which nodes Spread counts.
	Volumes []Volume
	// Affinity and AntiAffinity are required, not preferred, terms.
	Affinity, AntiAffinity []PodTerm
	// Spread are the constraints that forbid scheduling when violated.
	Spread      []Spread
	Tolerations []Toleration
	HostPorts   []HostPort
	// Nominated is the name of the node on which the scheduler is making room for this
	// pod, by evicting others. The pod is placed there if the node is one of
	// [Input.Nodes], and otherwise as if it had none.
	Nominated string
	// Terminating pods on a node use its resources, but no longer count for
	// Spread.
	Terminating bool
	// Unmodelled are the reasons why [Place] cannot know where this pod fits,
	// such as a claim for a device. A pod that has one is reported and starts no machine.
	Unmodelled []string
}

// Volume is a volume of a pod that is not attachable to every node. How many volumes a node
// takes is a resource: see [Resources].Extended.
type Volume struct {
	// Name is what people know it by, such as "claim data".
	Name string
	// Nodes are where it can be attached: of several terms one must hold. Empty: nowhere.
	Nodes []NodeTerm
}

// PodTerm is a term of pod affinity or anti-affinity: it applies to the nodes that have
// the same value of a label as the nodes of the selected pods.
type PodTerm struct {
	// TopologyKey is the label of nodes whose values are the domains. Required.
	TopologyKey string
	// Selector selects pods.
	Selector Selector
	// Namespaces, and those that NamespaceSelector selects, are the namespaces of the
	// selected pods. If both are nil, it is the namespace of the pod itself.
	Namespaces        []string
	NamespaceSelector Selector
}

// Spread is a topology spread constraint.
type Spread struct {
	// TopologyKey is the label of nodes whose values are the domains. Required.
	TopologyKey string
	// MaxSkew is by how many pods a domain may exceed the min of all domains; less than
	// 1 is 1.
	MaxSkew int32
	// MinDomains is the number of domains below which the min counts as zero; less than
	// 1 is 1.
	MinDomains int32
	// Selector selects the pods that count, in the namespace of the pod.
	Selector Selector
	// IgnoreNodeAffinity also counts nodes that the pod's node selector and
	// affinity refuse: nodeAffinityPolicy Ignore.
	IgnoreNodeAffinity bool
	// HonorTaints does not count nodes whose taints the pod does not tolerate:
	// nodeTaintsPolicy Honor.
	HonorTaints bool
}

// HostPort is a port of the node that a pod listens on.
type HostPort struct {
	// IP is empty for all addresses.
	IP string
	// Protocol is empty for TCP.
	Protocol string
	Port     int32
}

// matches reports whether t, a term of a pod in namespace own, selects p.
func (t *PodTerm) matches(own string, p *Pod, namespaces map[string]map[string]string) bool {
	return t.reaches(own, p.Namespace, namespaces) && t.Selector.matches(p.Labels)
}

func (t *PodTerm) reaches(own, namespace string, namespaces map[string]map[string]string) bool {
	if len(t.Namespaces) == 0 && t.NamespaceSelector == nil {
		return namespace == own
	}
	return slices.Contains(t.Namespaces, namespace) || t.NamespaceSelector.matches(namespaces[namespace])
}

// counts reports whether s, a constraint of a pod in namespace own, counts p.
func (s *Spread) counts(own string, p *Pod) bool {
	// The scheduler counts no pod at all for a selector without requirements.
	return p.Namespace == own && !p.Terminating && len(s.Selector) > 0 && s.Selector.matches(p.Labels)
}

const anyAddress = "0.0.0.0"

// conflicts reports whether a and b exclude each other on one node.
func (a *HostPort) conflicts(b *HostPort) bool {
	if a.Port != b.Port || orDefault(a.Protocol, "TCP") != orDefault(b.Protocol, "TCP") {
		return false
	}
	left, right := orDefault(a.IP, anyAddress), orDefault(b.IP, anyAddress)
	return left == right || left == anyAddress || right == anyAddress
}

func orDefault(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
