package operator

import "github.com/seed-9e1ffd66/trueup/cloud/demand"

// staysOnStandby reports whether a pod tolerates the taint of standby machines. The cluster
// evicts others from their Nodes, and they become demand like any Pending pod.
func staysOnStandby(p *demand.Pod) bool {
	t := standbyTaint()
	tolerant := demand.Pod{Tolerations: p.Tolerations}
	return tolerant.CanRunOn(&demand.Node{Taints: []demand.Taint{{Key: t.Key, Value: t.Value, Effect: string(t.Effect)}}})
}

// waiting returns the pods that stay bound to the Node of a standby machine: they wait for its
// start. Pods that are being deleted are among them, because only a kubelet ends these.
func (w *world) waiting(node string) []*demand.Pod {
	var out []*demand.Pod
	for key := range w.onNode[node] {
		if p := w.pods[key]; p.stays {
			out = append(out, p.pod)
		}
	}
	return out
}
