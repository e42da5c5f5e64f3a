// Package v1alpha1 is the API of the node-pool operator: a [NodePool] is a number of
// machines that were booted once, joined the cluster and were stopped, and an
// [AWSNodeClass] is what they are made from. The custom resource definitions in the
// package crds are generated from it.
//
// The package has types only. It imports nothing of the operator, so that a program can
// make these objects without it.
//
// +groupName=stratos.sh
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of all kinds.
const Group = "stratos.sh"

// GroupVersion returns the group and version of all kinds.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: Group, Version: "v1alpha1"}
}

// Duration is a time span such as 30s, 5m or 1h30m. The bounds on its length keep it
// within what a time.Duration holds.
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:MaxLength=16
// +kubebuilder:validation:Pattern=`^([0-9]{1,6}(\.[0-9]{1,9})?(ms|s|m|h))+$`
// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,9})?(ms|s|m|h))+$')",message="must be a time span such as 30s, 5m or 1h30m"
type Duration struct {
	metav1.Duration `json:",inline"`
}

// The labels of a Node.
const (
	LabelPool       = Group + "/pool"
	LabelState      = Group + "/state"
	LabelInstanceID = Group + "/instance-id"
	// LabelStateSince is when the state was written, in Unix seconds.
	LabelStateSince = Group + "/state-since"
)

// The annotations of a Node. Times are as in RFC 3339.
const (
	AnnotationWarmupCompleted    = Group + "/warmup-completed"
	AnnotationLastStarted        = Group + "/last-started"
	AnnotationScaleDownCandidate = Group + "/scale-down-candidate-since"
	// AnnotationScaleUpStarted is when the machine was started, until its Node is ready.
	AnnotationScaleUpStarted = Group + "/scale-up-started"
	// AnnotationSignalsAtStop has what the Node said of its readiness and its network when
	// its machine was stopped last: the same again proves nothing after a start.
	AnnotationSignalsAtStop = Group + "/signals-at-stop"
	// AnnotationIntent is what a Node in the state terminating is on its way to, as JSON.
	AnnotationIntent = Group + "/intent"
	// AnnotationAttested is what the machine recorded about its warm-up before its first
	// stop, as JSON: its bootID, the images that are there, and those that failed.
	AnnotationAttested = Group + "/warmup-attested"
	// AnnotationPoolUID is the UID of the pool that the Node belongs to.
	AnnotationPoolUID = Group + "/pool-uid"
	// AnnotationRuntimeWarned says that maxNodeRuntime is nearly over.
	AnnotationRuntimeWarned = Group + "/max-runtime-warned"
)

// The taints of a Node.
const (
	// TaintStandby keeps pods off a machine that is stopped, and evicts none: it is put on
	// a machine that runs no more.
	TaintStandby = Group + "/standby"
	// TaintNotReady is on a machine from its registration until its network is ready.
	TaintNotReady = Group + "/not-ready"
)

// The finalizers.
const (
	FinalizerNodePool        = Group + "/nodepool-finalizer"
	FinalizerInUse           = Group + "/in-use"
	FinalizerInstanceProfile = Group + "/instance-profile"
)
