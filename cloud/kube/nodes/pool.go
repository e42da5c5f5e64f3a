package nodes

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

// A Pool is what the Nodes of a pool have. The zero value of each field but Domain, Name and
// UID is valid.
type Pool struct {
	Domain    Domain
	Name, UID string
	// Labels and Taints are on each Node of the pool for ever.
	Labels map[string]string
	Taints []corev1.Taint
	// StartupTaints are on a Node from each stop until its machine is ready after a start.
	StartupTaints []corev1.Taint
	// RemovedByOthers says that other controllers remove the StartupTaints.
	RemovedByOthers bool
	// IgnoreNetwork leaves out the [Domain.NotReadyTaint]: pods may come as soon as the
	// kubelet is ready.
	IgnoreNetwork bool
}

// Startup returns the taints that a Node registers with, and has from each stop until its machine
// is ready after a start.
func (p *Pool) Startup() []corev1.Taint {
	if p.IgnoreNetwork {
		return p.StartupTaints
	}
	return append(slices.Clip(p.StartupTaints), p.Domain.NotReadyTaint())
}

// removable returns the startup taints that [Pass] removes: the not-ready taint in any case.
func (p *Pool) removable() []corev1.Taint {
	if !p.RemovedByOthers {
		return p.Startup()
	}
	ours := p.Domain.NotReadyTaint()
	return slices.DeleteFunc(slices.Clone(p.Startup()), func(t corev1.Taint) bool { return t.Key != ours.Key })
}

// Passing reports whether a taint disappears by itself once a machine has started: startup
// taints do, and taints that the cluster puts on a Node that is not up. Those of the pool stay.
func (p *Pool) Passing(t demand.Taint) bool {
	taint := corev1.Taint{Key: t.Key, Effect: corev1.TaintEffect(t.Effect)}
	return t.Key == p.Domain.StandbyTaint().Key || hasTaint(p.Startup(), taint) || t.Passing() && !hasTaint(p.Taints, taint)
}

// addTaints adds those that the Node does not have. A taint is its key and its effect.
func addTaints(n *corev1.Node, taints ...corev1.Taint) {
	for _, t := range taints {
		i := slices.IndexFunc(n.Spec.Taints, func(has corev1.Taint) bool { return has.MatchTaint(&t) })
		switch {
		case i < 0:
			n.Spec.Taints = append(n.Spec.Taints, t)
		case n.Spec.Taints[i].Value != t.Value:
			n.Spec.Taints[i].Value = t.Value
		}
	}
}

func removeTaints(n *corev1.Node, taints ...corev1.Taint) {
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(has corev1.Taint) bool { return hasTaint(taints, has) })
}

func hasTaint(taints []corev1.Taint, t corev1.Taint) bool {
	return slices.ContainsFunc(taints, func(has corev1.Taint) bool { return has.MatchTaint(&t) })
}

func sameTaint(a, b corev1.Taint) bool { return a.MatchTaint(&b) && a.Value == b.Value }
