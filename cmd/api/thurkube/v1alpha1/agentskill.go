package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AgentSkill is a skill in a GitHub repository.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=ask
type AgentSkill struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec AgentSkillSpec `json:"spec"`
}

// AgentSkillSpec says where the skill is.
type AgentSkillSpec struct {
	// Repo is owner/repo on GitHub.
	// +kubebuilder:validation:MaxLength=140
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9](-?[A-Za-z0-9])*/[A-Za-z0-9._-]+$`
	Repo string `json:"repo"`
	// Name of the skill.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Ref is a branch, a tag or a commit.
	// +optional
	// +kubebuilder:default=main
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Ref string `json:"ref,omitempty"`
}
