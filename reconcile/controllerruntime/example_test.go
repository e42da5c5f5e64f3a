package controllerruntime_test

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/seed-9e1ffd66/trueup/reconcile/controllerruntime"
	"github.com/seed-9e1ffd66/trueup/reconcile/operator"
)

// Each Service has a ConfigMap with its address. The Manager runs the operator beside its own controllers.
func ExampleAdd() { //nolint:testableexamples // it needs a cluster
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{LeaderElection: true, LeaderElectionID: "addresses"})
	if err != nil {
		panic(err)
	}
	err = controllerruntime.Add(mgr, &operator.Operator[*corev1.Service]{
		Name: "addresses", Domain: "example.com",
		Kind: schema.GroupVersionKind{Version: "v1", Kind: "Service"},
		Owns: []schema.GroupVersionKind{{Version: "v1", Kind: "ConfigMap"}},
		Children: func(_ context.Context, s *corev1.Service) ([]operator.Object, error) {
			return operator.Objects(&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: s.Name + "-address"}, Data: map[string]string{"address": s.Spec.ClusterIP},
			}), nil
		},
		Conditions: func(s *corev1.Service) *[]metav1.Condition { return &s.Status.Conditions },
	})
	if err != nil {
		panic(err)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		panic(err)
	}
}
