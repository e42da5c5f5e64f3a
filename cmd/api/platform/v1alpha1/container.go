package v1alpha1

// ImagePullSecret names a Secret of the type kubernetes.io/dockerconfigjson.
type ImagePullSecret struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`
}

// EnvVar is a variable with a value, or with the value of a Secret's key.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.value) && has(self.secretKeyRef))",message="must have at most one of value and secretKeyRef"
type EnvVar struct {
	// Name of the variable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z_][A-Za-z0-9_]*$')",message="must be letters, digits and _, and not begin with a digit"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('PGRST_') && !self.startsWith('POSTGREST_') && !self.startsWith('LD_')",message="must not begin with PGRST_, POSTGREST_ or LD_: those are reserved"
	Name string `json:"name"`
	// Value of the variable.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Value string `json:"value,omitempty"`
	// SecretKeyRef names the key of a Secret in the same namespace that has the value.
	// +optional
	SecretKeyRef *SecretKey `json:"secretKeyRef,omitempty"`
}

// SecretKey names one key of a Secret in the same namespace.
type SecretKey struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`
	// Key of the Secret's data.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	Key string `json:"key"`
}
