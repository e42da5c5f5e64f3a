package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Machine is a machine of a pool that has no Node.
type Machine struct {
	// ID is what the cloud calls it.
	ID string `json:"id"`
	// State of the machine in its pool: warmup, standby, running or terminating.
	State string `json:"state"`
	// CloudState is what the cloud reports, such as pending or running. Empty: it is in no list.
	// +optional
	CloudState string `json:"cloudState,omitempty"`
	// Zone of the machine.
	// +optional
	Zone string `json:"zone,omitempty"`
	// Node is the name of the Node that it had.
	// +optional
	Node string `json:"node,omitempty"`
	// Reason is what is done with it, or what it waits for.
	Reason string `json:"reason"`
	// LaunchTime is when it was launched.
	// +optional
	LaunchTime *metav1.Time `json:"launchTime,omitempty"`
}
