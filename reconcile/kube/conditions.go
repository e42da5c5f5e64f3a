package kube

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// State is how far an object has come, in the terms of kstatus, which kubectl
// wait, Flux, Argo CD and others read: it is one of three conditions.
type State string

// The states, each the type of the condition that is True in it.
const (
	// Ready: what the object asks for is there.
	Ready State = "Ready"
	// Reconciling: it is being made, and will be without help.
	Reconciling State = "Reconciling"
	// Stalled: it is not going to be before somebody changes something.
	Stalled State = "Stalled"
)

// SetState makes state the True one of the three conditions, and the others
// False, with the same reason and message. Others are left as they are. A
// lastTransitionTime changes only with the status of its condition. The reason is
// one CamelCase word, and the message for people; it should not change from pass
// to pass while nothing else does, or each pass writes.
func SetState(conditions *[]metav1.Condition, state State, reason, message string) {
	for _, each := range []State{Ready, Reconciling, Stalled} {
		status := metav1.ConditionFalse
		if each == state {
			status = metav1.ConditionTrue
		}
		SetCondition(conditions, string(each), status, reason, message)
	}
}

// SetCondition sets one condition. Its lastTransitionTime changes only with its
// status; its observedGeneration is set by [Status.Update].
func SetCondition(conditions *[]metav1.Condition, kind string, status metav1.ConditionStatus, reason, message string) {
	condition := metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
	if old := meta.FindStatusCondition(*conditions, kind); old != nil {
		condition.ObservedGeneration = old.ObservedGeneration
	}
	meta.SetStatusCondition(conditions, condition)
}
