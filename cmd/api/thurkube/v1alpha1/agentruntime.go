package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AgentRuntime is a container image of an agent, and where it expects things.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=ar
// +kubebuilder:printcolumn:name=Image,type=string,JSONPath=`.spec.image`
type AgentRuntime struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec AgentRuntimeSpec `json:"spec"`
}

// AgentRuntimeSpec is the image and its conventions.
//
// +kubebuilder:validation:XValidation:rule="self.configPath != self.persistPath && !self.configPath.startsWith(self.persistPath + '/') && !self.persistPath.startsWith(self.configPath + '/')",message="configPath and persistPath must be two paths, neither within the other"
// +kubebuilder:validation:XValidation:rule="[self.configPath, self.persistPath].all(p, ['/tmp', '/home/agent', '/var/run/thurkube'].all(q, p != q && !q.startsWith(p + '/')) && !p.startsWith('/var/run/thurkube/'))",message="/tmp, /home/agent and /var/run/thurkube are volumes of every run; configPath and persistPath must be others, and hold none of them"
type AgentRuntimeSpec struct {
	// Image of the container.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image"`
	// Command replaces the image's entrypoint. Empty: the image's.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	Command []string `json:"command,omitempty"`
	// AuthEnvVar is the environment variable that the token of the AgentAuth is in.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_]*$`
	// +kubebuilder:validation:XValidation:rule="self != 'HOME'",message="must not be HOME"
	AuthEnvVar string `json:"authEnvVar"`
	// ConfigPath is the folder that agent.json is mounted at.
	ConfigPath Path `json:"configPath"`
	// PersistPath is the folder that the volume of a job is mounted at.
	PersistPath Path `json:"persistPath"`
}

// Path is an absolute path of a folder, not the root.
//
// +kubebuilder:validation:MaxLength=1024
// +kubebuilder:validation:Pattern=`^(/[^/:,\s]+)+$`
// +kubebuilder:validation:XValidation:rule="!self.matches('/[.][.]?(/|$)')",message="must not have . or .. as an element"
type Path string
