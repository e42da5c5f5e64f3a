package buffers

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The API.
const (
	Group   = "autoscaling.x-k8s.io"
	Version = "v1beta1"
	Kind    = "CapacityBuffer"
	// Plural names the resource.
	Plural = "capacitybuffers"
	// Definition is the name of the CustomResourceDefinition.
	Definition = Plural + "." + Group
)

// Condition types of a buffer.
const (
	// ConditionReadyForProvisioning: what the buffer asks for is understood.
	ConditionReadyForProvisioning = "ReadyForProvisioning"
	// ConditionProvisioning: each pod that it asks room for has room on machines that are
	// on standby, on their way there, or about to be launched.
	ConditionProvisioning = "Provisioning"
	// ConditionReady: the machines of all of them are on standby now.
	ConditionReady = "Ready"
)

// Resource is the resource to watch.
func Resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: Group, Version: Version, Resource: Plural}
}

// CapacityBuffer asks for room for pods.
type CapacityBuffer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   Spec   `json:"spec"`
	Status Status `json:"status,omitzero"`
}

// Spec is what a user asks for.
type Spec struct {
	// ProvisioningStrategy is the kind of room.
	ProvisioningStrategy string `json:"provisioningStrategy,omitempty"`
	// PodTemplateRef names a PodTemplate of the namespace. Either this or ScalableRef.
	PodTemplateRef *TemplateRef `json:"podTemplateRef,omitempty"`
	// ScalableRef names a workload of the namespace, whose template is used.
	ScalableRef *ScalableRef `json:"scalableRef,omitempty"`
	// Replicas is a number of pods.
	Replicas *int32 `json:"replicas,omitempty"`
	// Percentage is a number of pods, of those that the workload has.
	Percentage *int32 `json:"percentage,omitempty"`
	// Limits bound the requests of all pods together.
	Limits corev1.ResourceList `json:"limits,omitempty"`
}

// TemplateRef names a PodTemplate.
type TemplateRef struct {
	Name string `json:"name"`
}

// ScalableRef names a workload.
type ScalableRef struct {
	APIGroup string `json:"apiGroup,omitempty"`
	Kind     string `json:"kind"`
	Name     string `json:"name"`
}

// Status is the result reported for the spec.
type Status struct {
	// PodTemplateRef and PodTemplateGeneration are the template that was read, if it is a
	// PodTemplate.
	PodTemplateRef        *TemplateRef `json:"podTemplateRef,omitempty"`
	PodTemplateGeneration *int64       `json:"podTemplateGeneration,omitempty"`
	// Replicas is the number of pods that must have room.
	Replicas *int32 `json:"replicas,omitempty"`
	// ProvisioningStrategy is the strategy that the rest of the status is of.
	ProvisioningStrategy *string            `json:"provisioningStrategy,omitempty"`
	Conditions           []metav1.Condition `json:"conditions,omitempty"`
}
