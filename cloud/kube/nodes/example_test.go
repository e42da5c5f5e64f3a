package nodes_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
)

// A watch shows a Node of a machine that is on standby.
func ExampleCluster() {
	domain := nodes.Domain("pools.example.com")
	c := nodes.New(domain, nodes.Zoned("local", nil), func(pools []string, demand bool) {
		fmt.Println("a pass of", pools, "and a look at the pods that wait:", demand)
	})
	c.SawNode(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{domain.PoolLabel(): "web", domain.StateLabel(): "standby"}},
		Spec:       corev1.NodeSpec{ProviderID: "local:///local-1a/machine-1", Taints: []corev1.Taint{domain.StandbyTaint()}},
	})
	v, _ := c.OfMachine("machine-1")
	fmt.Println(v.Status.Name, v.Status.State, v.Zone)
	// Output:
	// a pass of [web] and a look at the pods that wait: true
	// node-1 standby local-1a
}
