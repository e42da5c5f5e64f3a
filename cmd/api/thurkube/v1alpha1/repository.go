package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Repository is a GitHub repository that an agent works on.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=repo
type Repository struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec RepositorySpec `json:"spec"`
}

// RepositorySpec says where the repository is.
type RepositorySpec struct {
	// Owner on GitHub.
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9](-?[A-Za-z0-9])*$`
	Owner string `json:"owner"`
	// Name on GitHub.
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._-]+$`
	// +kubebuilder:validation:XValidation:rule="self != '.' && self != '..'",message="must be the name of a repository"
	Name string `json:"name"`
	// TokenSecretRef names the Secret key that holds a token for the repository. The
	// agent finds it as a file.
	// +optional
	TokenSecretRef *SecretKey `json:"tokenSecretRef,omitempty"`
}
