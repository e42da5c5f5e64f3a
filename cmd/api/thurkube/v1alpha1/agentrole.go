package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AgentRole is a list of tools that an agent may use.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=arl
type AgentRole struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec AgentRoleSpec `json:"spec"`
}

// AgentRoleSpec lists the tools.
type AgentRoleSpec struct {
	// AllowedTools are names or patterns, which are the agent's to read.
	// +kubebuilder:validation:MaxItems=1024
	// +listType=atomic
	AllowedTools []string `json:"allowedTools"`
}
