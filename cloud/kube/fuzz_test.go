package kube_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube"
)

// FuzzPod feeds whatever an API server may send. Nothing panics, a conversion is
// repeatable, the argument is left alone, and no pod gets onto a node that its
// selectors, as text, cannot mean.
func FuzzPod(f *testing.F) {
	for _, seed := range []string{
		`{"spec":{"containers":[{"name":"a","resources":{"requests":{"cpu":"100m","memory":"1e3"}}}]}}`,
		`{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["a"]}]}]}}}}}`,
		`{"spec":{"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"z","labelSelector":{"matchExpressions":[{"key":"a","operator":"Bad"}]}}]}}}}`,
		`{"metadata":{"labels":{"a":"b"}},"spec":{"topologySpreadConstraints":[{"whenUnsatisfiable":"DoNotSchedule","topologyKey":"z","maxSkew":-1,"matchLabelKeys":["a"],"labelSelector":{}}]}}`,
		`{"spec":{"initContainers":[{"restartPolicy":"Always","ports":[{"hostPort":-3}]}],"overhead":{"cpu":"-1"},"resources":{}}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var pod corev1.Pod
		if json.Unmarshal([]byte(text), &pod) != nil {
			return
		}
		before := pod.DeepCopy()
		first, second := kube.Pod(&pod), kube.Pod(&pod)
		require.Equal(t, first, second)
		require.Equal(t, before, &pod)
		node := demand.Node{
			Name:        "n",
			Labels:      map[string]string{"zone": "a"},
			Allocatable: demand.Resources{CPU: 1 << 40, Memory: 1 << 60, EphemeralStorage: 1 << 60, Pods: 10},
		}
		demand.Place(demand.Input{
			Pods: []*demand.Pod{&first}, Nodes: []*demand.Node{&node},
			Supplies: []demand.Supply{{Pool: "a", MaxLaunches: 2, Standby: []*demand.Node{&node}, Templates: []demand.NodeTemplate{{Node: node}}}},
		})
	})
}
