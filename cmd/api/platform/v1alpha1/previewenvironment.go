package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PreviewEnvironment is a short-lived copy of an Application for a pull request, in a
// namespace of its own.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=preview;previews
// +kubebuilder:printcolumn:name=App,type=string,JSONPath=`.spec.applicationRef`
// +kubebuilder:printcolumn:name=PR,type=integer,JSONPath=`.spec.pullRequest`
// +kubebuilder:printcolumn:name=Phase,type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name=URL,type=string,JSONPath=`.status.url`
// +kubebuilder:printcolumn:name=Expires,type=string,JSONPath=`.status.expiresAt`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type PreviewEnvironment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec PreviewEnvironmentSpec `json:"spec"`
	// +optional
	Status PreviewEnvironmentStatus `json:"status,omitzero"`
}

// PreviewEnvironmentSpec says what is copied, and for how long.
type PreviewEnvironmentSpec struct {
	// ApplicationRef names the Application in the same namespace that is copied.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: make another PreviewEnvironment"
	ApplicationRef Name `json:"applicationRef"`
	// PullRequest is its number.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: make another PreviewEnvironment"
	PullRequest int64 `json:"pullRequest"`
	// Branch of the pull request.
	Branch Branch `json:"branch"`
	// TTL is how long the copy lives from its creation on: a number of minutes, hours or
	// days such as 72h, 5m, 2h or 3d, from 5m to 30d.
	// +optional
	// +kubebuilder:default="72h"
	TTL TTL `json:"ttl,omitempty"`
	// ImageRef is the image of the copy. Absent: that of the Application.
	// +optional
	ImageRef Image `json:"imageRef,omitempty"`
}

// TTL is a number of minutes, hours or days.
//
// +kubebuilder:validation:MaxLength=6
// +kubebuilder:validation:XValidation:rule="self.matches('^[1-9][0-9]{0,4}[mhd]$') && int(self.substring(0, size(self) - 1)) * (self.endsWith('d') ? 1440 : self.endsWith('h') ? 60 : 1) >= 5 && int(self.substring(0, size(self) - 1)) * (self.endsWith('d') ? 1440 : self.endsWith('h') ? 60 : 1) <= 43200",message="must be a number of minutes, hours or days such as 5m, 72h or 3d, from 5m to 30d"
type TTL string

// PreviewEnvironmentStatus is how far the operator is.
type PreviewEnvironmentStatus struct {
	// What is made for the copy is the same as for an Application.
	ApplicationStatus `json:",inline"`

	// Namespace is where the copy is.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// ExpiresAt is when the copy is removed: its creation and the TTL.
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
}
