package controller

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	webv1 "github.com/seed-9e1ffd66/trueup/examples/kubebuilder/api/v1"
	"github.com/seed-9e1ffd66/trueup/reconcile/operator"
)

// Children returns the objects that a Site should have.
func Children(_ context.Context, site *webv1.Site) ([]operator.Object, error) {
	labels := map[string]string{"site": site.Name}
	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: site.Spec.Image}}}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: site.Name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &site.Spec.Replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
		},
	}
	if site.Spec.Page == "" {
		return operator.Objects(deployment), nil
	}
	page := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: site.Name}, Data: map[string]string{"index.html": site.Spec.Page}}
	return []operator.Object{deployment, page}, nil
}
