package operator

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
)

// standbyTaint is on machines that are stopped.
func standbyTaint() corev1.Taint {
	return corev1.Taint{Key: v1alpha1.TaintStandby, Value: "true", Effect: corev1.TaintEffectNoExecute}
}

// templateTaints are on every Node of the pool for ever.
func templateTaints(pool *v1alpha1.NodePool) []corev1.Taint {
	return toTaints(pool.Spec.Template.Taints)
}

// startupTaints are on a Node of the pool until its machine is ready after a start.
func startupTaints(pool *v1alpha1.NodePool) []corev1.Taint {
	taints := toTaints(pool.Spec.Template.StartupTaints)
	if pool.Spec.Template.NetworkReadinessStrategy != v1alpha1.NetworkReadinessNone {
		taints = append(taints, corev1.Taint{Key: v1alpha1.TaintNotReady, Value: "true", Effect: corev1.TaintEffectNoSchedule})
	}
	return taints
}

// removable are the startup taints that this program removes: its own in any case.
func removable(pool *v1alpha1.NodePool) []corev1.Taint {
	return slices.DeleteFunc(startupTaints(pool), func(t corev1.Taint) bool {
		return t.Key != v1alpha1.TaintNotReady && pool.Spec.Template.StartupTaintRemoval == v1alpha1.RemoveExternally
	})
}

func toTaints(taints []v1alpha1.Taint) []corev1.Taint {
	out := make([]corev1.Taint, 0, len(taints)+2)
	for _, t := range taints {
		out = append(out, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
	}
	return out
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
