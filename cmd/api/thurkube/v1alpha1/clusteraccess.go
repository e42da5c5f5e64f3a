package v1alpha1

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterAccess is a list of rights in Kubernetes. Each AgentJob that refers to it gets
// a role and a binding of its own.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=ca
type ClusterAccess struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec ClusterAccessSpec `json:"spec"`
}

// ClusterAccessSpec lists the rights.
type ClusterAccessSpec struct {
	// Rules are those of a ClusterRole. Each must be within the operator's ceiling, the
	// ClusterRoles with the label thurkube.thurbeen.eu/aggregate-to-ceiling=true; otherwise
	// the condition AccessReady of the AgentJob says which is not. With access: Namespace
	// none may make pods, roles or bindings.
	// +listType=atomic
	Rules []rbacv1.PolicyRule `json:"rules"`
}
