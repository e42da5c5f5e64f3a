package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AgentAuth names the Secret key that holds the token of the agent's service.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=aa
type AgentAuth struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec AgentAuthSpec `json:"spec"`
}

// AgentAuthSpec names the key.
type AgentAuthSpec struct {
	SecretRef SecretKey `json:"secretRef"`
}
