package agent

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/diff"
)

// newSet makes the set of a state. The replicas of a Deployment are its autoscaler's from
// the creation of the autoscaler to its end.
func newSet(owner apply.Owner, objects []*unstructured.Unstructured) (*apply.Set, error) {
	replicas, err := diff.NewIgnore(diff.Rule{Kind: "Deployment.apps", Paths: []string{".spec.replicas"}})
	if err != nil {
		return nil, err
	}
	return apply.NewSet(owner, objects, apply.SetOptions{Handover: []apply.Handover{{Fields: replicas, By: autoscalerOf}}})
}

// autoscalerOf returns the autoscaler of a Deployment, which has its name.
func autoscalerOf(deployment apply.ID) apply.ID {
	return apply.ID{Group: "autoscaling", Kind: "HorizontalPodAutoscaler", Namespace: deployment.Namespace, Name: deployment.Name}
}

// replaced reports that an object is the autoscaler of a service that states its replicas.
func replaced(set *apply.Set, id apply.ID) bool {
	deployment := apply.ID{Group: "apps", Kind: "Deployment", Namespace: id.Namespace, Name: id.Name}
	return id == autoscalerOf(deployment) && set.Has(deployment) && !set.Has(id)
}
