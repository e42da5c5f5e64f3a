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
	// Rules are those of a ClusterRole.
	// +listType=atomic
	Rules []rbacv1.PolicyRule `json:"rules"`
}
