// Package v1alpha1 is the API of the agent-run operator: one [AgentJob] is one run of
// an AI agent, or a recurring one, and refers by name to objects of seven other kinds
// in its namespace. The custom resource definitions in the package crds are generated
// from it.
//
// The package has types only. It imports nothing of the operator, so that a program
// can make these objects without it.
//
// +groupName=thurkube.thurbeen.eu
package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of all kinds.
const Group = "thurkube.thurbeen.eu"

// GroupVersion returns the group and version of all kinds.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: Group, Version: "v1alpha1"}
}

// Name is the name of an object of the same namespace.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
type Name string

// SecretKey names one key of a Secret in the same namespace.
type SecretKey struct {
	// Name of the Secret.
	Name Name `json:"name"`
	// Key of the Secret's data.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	Key string `json:"key"`
}
