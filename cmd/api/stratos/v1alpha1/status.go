package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodePoolStatus is what the pool has.
type NodePoolStatus struct {
	// ObservedGeneration is the generation of the spec that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Warmup is the number of machines in their first boot.
	// +optional
	Warmup int32 `json:"warmup"`
	// Standby is the number of machines that are stopped.
	// +optional
	Standby int32 `json:"standby"`
	// Running is the number of machines that were started for pods.
	// +optional
	Running int32 `json:"running"`
	// Total is the number of all machines, with those on their way out.
	// +optional
	Total int32 `json:"total"`
	// Machines are those without a Node, such as one that boots or never joins: at most 50, by
	// id. The others have a Node with the labels stratos.sh/pool and stratos.sh/state.
	// +optional
	// +listType=map
	// +listMapKey=id
	Machines []Machine `json:"machines,omitempty"`
	// PodAssignments are the pods that machines were started for, until they run there.
	// +optional
	// +listType=atomic
	PodAssignments []PodAssignment `json:"podAssignments,omitempty"`
	// LastReconcileTime is when the status was written last.
	// +optional
	LastReconcileTime *metav1.Time `json:"lastReconcileTime,omitempty"`
	// Launches are those that were begun, until each of their machines has a Node.
	// +optional
	// +listType=map
	// +listMapKey=ordinal
	Launches []Launch `json:"launches,omitempty"`
	// LastOrdinal is the ordinal of the last launch.
	// +optional
	LastOrdinal int64 `json:"lastOrdinal,omitempty"`
	// Repairs are the machines that were drained because they lost readiness, within an
	// hour. They count against the budget of the hour, also after a restart.
	// +optional
	Repairs *Repairs `json:"repairs,omitempty"`
	// ClusterName is the name of the cluster in the tags of the pool's machines. An operator
	// with another --cluster-name leaves a pool that has machines alone.
	// +optional
	ClusterName string `json:"clusterName,omitempty"`
	// Regions are those that may have machines of the pool.
	// +optional
	// +listType=set
	Regions []string `json:"regions,omitempty"`
	// Conditions are Ready, Degraded, Full, ScaleUpInProgress, ScaleDownInProgress and
	// ImagePrePullSupported.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Repairs counts machines that were drained because they lost readiness.
type Repairs struct {
	// Since is when the first one was.
	Since metav1.Time `json:"since"`
	// Count is how many since then.
	Count int32 `json:"count"`
}

// PodAssignment is a pod that a machine was started for.
type PodAssignment struct {
	// PodName is the name of the pod.
	PodName string `json:"podName"`
	// PodNamespace is the namespace of the pod.
	PodNamespace string `json:"podNamespace"`
	// PodUID is the UID of the pod.
	PodUID string `json:"podUID"`
	// NodeName is the Node whose machine was started.
	NodeName string `json:"nodeName"`
	// AssignedAt is when that was decided.
	AssignedAt metav1.Time `json:"assignedAt"`
}

// Launch is a launch that was recorded before the cloud was called.
type Launch struct {
	// Operation is the idempotency token, and a tag of the machines.
	Operation string `json:"operation"`
	// Ordinal counts the launches of the pool.
	Ordinal int64 `json:"ordinal"`
	// Attempt counts the tries of the launch.
	// +optional
	Attempt int64 `json:"attempt,omitempty"`
	// Template names the subnet.
	Template string `json:"template"`
	// Hash covers everything else that the machines are launched from.
	// +optional
	Hash string `json:"hash,omitempty"`
	// Count is the number of machines.
	Count int32 `json:"count"`
	// InstanceIDs are the machines that came of it.
	// +optional
	// +listType=atomic
	InstanceIDs []string `json:"instanceIDs,omitempty"`
	// Since is when the launch was recorded.
	Since metav1.Time `json:"since"`
}

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
