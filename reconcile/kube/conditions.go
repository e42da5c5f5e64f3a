package kube

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// State is the progress of an object in the terms of kstatus, as one of three
// condition types. kubectl wait, Flux, Argo CD and others read them.
type State string

// The states, each the type of the condition that is True in it.
const (
	// Ready means that the desired state of the object is reached.
	Ready State = "Ready"
	// Reconciling means that the desired state is being reached without further
	// action of a user.
	Reconciling State = "Reconciling"
	// Stalled means that the desired state cannot be reached before a change by a
	// user.
	Stalled State = "Stalled"
)

// SetState sets the condition of state to True and the other two to False, with the
// same reason and message. Conditions of other types are not changed. A
// lastTransitionTime changes only with the status of its condition. The reason is
// one CamelCase word, and the message is for people. A message that changes from
// pass to pass, such as one with the time in it, causes a write in each pass.
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
// status. Its observedGeneration is unset, until [Status.Update] sets it.
func SetCondition(conditions *[]metav1.Condition, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
}
