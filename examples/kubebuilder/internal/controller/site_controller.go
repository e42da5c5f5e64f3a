// Package controller has the controller of Sites.
package controller

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"

	webv1 "github.com/seed-9e1ffd66/trueup/examples/kubebuilder/api/v1"
	"github.com/seed-9e1ffd66/trueup/reconcile/controllerruntime"
	"github.com/seed-9e1ffd66/trueup/reconcile/operator"
)

// +kubebuilder:rbac:groups=web.example.com,resources=sites,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=web.example.com,resources=sites/status,verbs=patch
// +kubebuilder:rbac:groups=web.example.com,resources=sites/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager adds the operator of Sites to a Manager.
func SetupWithManager(mgr ctrl.Manager) error { return controllerruntime.Add(mgr, NewOperator()) }

// NewOperator returns the operator of Sites.
func NewOperator() *operator.Operator[*webv1.Site] {
	return &operator.Operator[*webv1.Site]{
		Name: "sites", Domain: "web.example.com", Supersedes: []string{"manager"},
		Owns: []schema.GroupVersionKind{
			appsv1.SchemeGroupVersion.WithKind("Deployment"), corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		},
		Children:   Children,
		Conditions: func(site *webv1.Site) *[]metav1.Condition { return &site.Status.Conditions },
	}
}
