package operator //nolint:testpackage // for the tests that see the operator from inside

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
)

// newCluster returns a cluster that nothing is told of.
func newCluster() *nodes.Cluster {
	return nodes.New(v1alpha1.Group, awsPlatform(), func([]string, bool) {})
}

// started is when the machine of the tests was started last.
var started = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func machine() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "node", UID: "u", ResourceVersion: "1",
			Labels:      map[string]string{v1alpha1.LabelPool: "web", v1alpha1.LabelState: "running", v1alpha1.LabelStateSince: "1767323045"},
			Annotations: map[string]string{v1alpha1.AnnotationLastStarted: started.Format(time.RFC3339)},
		},
		Spec: corev1.NodeSpec{ProviderID: "aws:///eu-west-1a/i-1"},
	}
}
