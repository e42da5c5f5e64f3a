package nodes

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// patchOf returns the merge patch of what do changes on the metadata and spec of a Node,
// nil if that is nothing. It applies to this version of the Node alone.
func patchOf(n *corev1.Node, do func(*corev1.Node) error) ([]byte, error) {
	before := n.DeepCopy()
	if err := do(n); err != nil {
		return nil, err
	}
	metadata, spec := map[string]any{}, map[string]any{}
	if changed := changes(before.Labels, n.Labels); len(changed) > 0 {
		metadata["labels"] = changed
	}
	if changed := changes(before.Annotations, n.Annotations); len(changed) > 0 {
		metadata["annotations"] = changed
	}
	if before.Spec.Unschedulable != n.Spec.Unschedulable {
		spec["unschedulable"] = n.Spec.Unschedulable
	}
	if !slices.EqualFunc(before.Spec.Taints, n.Spec.Taints, sameTaint) {
		spec["taints"] = n.Spec.Taints
	}
	if len(metadata)+len(spec) == 0 {
		return nil, nil
	}
	metadata["uid"], metadata["resourceVersion"] = before.UID, before.ResourceVersion
	return json.Marshal(map[string]any{"metadata": metadata, "spec": spec})
}

// changes returns what makes one map of the other in a merge patch.
func changes(from, to map[string]string) map[string]any {
	out := map[string]any{}
	for key, value := range to {
		if was, ok := from[key]; !ok || was != value {
			out[key] = value
		}
	}
	for key := range from {
		if _, ok := to[key]; !ok {
			out[key] = nil
		}
	}
	return out
}
