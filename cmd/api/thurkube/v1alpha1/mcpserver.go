package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// McpServer is a local command or a remote server that offers tools to an agent.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=mcp
type McpServer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec McpServerSpec `json:"spec"`
}

// McpServerSpec says how the server is reached.
//
// +kubebuilder:validation:XValidation:rule="has(self.command) != has(self.url)",message="exactly one of command and url must be set"
// +kubebuilder:validation:XValidation:rule="!has(self.url) || !has(self.args) || self.args.size() == 0",message="args are those of a command"
// +kubebuilder:validation:XValidation:rule="!has(self.headersSecretRef) || has(self.url)",message="headersSecretRef is for a url"
// +kubebuilder:validation:XValidation:rule="!has(self.env) || self.env.all(e, e.name != 'HOME')",message="env must not set HOME: it is /home/agent"
type McpServerSpec struct {
	// Command of a server that the agent starts.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Command string `json:"command,omitempty"`
	// Args of the command.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	Args []string `json:"args,omitempty"`
	// URL of a server that runs elsewhere.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^https?://[^\s/?#@]+([/?#][^\s]*)?$`
	URL string `json:"url,omitempty"`
	// Env are more environment variables of the agent, which starts the command.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=name
	Env []corev1.EnvVar `json:"env,omitempty"`
	// HeadersSecretRef names a Secret key that holds headers as JSON, for requests to
	// the URL. The agent finds it as a file.
	// +optional
	HeadersSecretRef *SecretKey `json:"headersSecretRef,omitempty"`
}
