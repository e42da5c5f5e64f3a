package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SiteSpec is what a user wants.
type SiteSpec struct {
	// Image serves the page.
	// +kubebuilder:validation:MinLength=1
	Image string `json:"image"`
	// Replicas is how many pods serve it.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas"`
	// Page is the text, in a ConfigMap. Without it there is none.
	// +optional
	Page string `json:"page,omitempty"`
}

// SiteStatus is what there is.
type SiteStatus struct {
	// ObservedGeneration is the generation that the conditions are about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are Ready and others.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Site is a page that some pods serve.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
type Site struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec SiteSpec `json:"spec"`
	// +optional
	Status SiteStatus `json:"status,omitzero"`
}

// SiteList is what a cache lists.
// +kubebuilder:object:root=true
type SiteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []Site `json:"items"`
}
