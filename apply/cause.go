//trueup:pure

package apply

import (
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/seed-9e1ffd66/trueup/apply/readiness"
)

// The reasons of an object that is not as stated, beside the reasons of a workload that is not
// ready ([readiness.Reason]). With them a status has one vocabulary in every program.
const (
	// ReasonNotOurs: an object of this name exists and belongs to another owner. Lasting.
	ReasonNotOurs readiness.Reason = "NotOurs"
	// ReasonClaimed: the object belongs to another part. Lasting.
	ReasonClaimed readiness.Reason = "Claimed"
	// ReasonForbidden: a right is missing, or admission refuses the object. Lasting.
	ReasonForbidden readiness.Reason = "Forbidden"
	// ReasonInvalid: the server refuses the object as it is stated. Lasting.
	ReasonInvalid readiness.Reason = "Invalid"
	// ReasonHeld: a guard holds a deletion until it is approved. Lasting.
	ReasonHeld readiness.Reason = "DeletionHeld"
	// ReasonBlocked: what the object requires is not there yet, or an object that stays
	// needs it. Waiting.
	ReasonBlocked readiness.Reason = "Blocked"
	// ReasonTerminating: the object, or its namespace, is being deleted. Waiting.
	ReasonTerminating readiness.Reason = "Terminating"
	// ReasonNotSynced: the kind cannot be seen. Transient.
	ReasonNotSynced readiness.Reason = "NotSynced"
	// ReasonConflict: another program writes the same fields. Transient; Lasting if the
	// set reports conflicts ([ReportConflicts]).
	ReasonConflict readiness.Reason = "Conflict"
	// ReasonRequestFailed: any other failure of a request. Transient.
	ReasonRequestFailed readiness.Reason = "RequestFailed"
)

// CauseOf returns why an object is not as stated, from the error of its [Result]: the reason,
// whether waiting, another try or only a change ends it, and the words of the error. The zero
// Cause is for nil. An error that joins others has the cause of one of them, so ask for each
// result by itself. [readiness.Cause.Compare] orders them.
func CauseOf(err error) readiness.Cause {
	if err == nil {
		return readiness.Cause{}
	}
	reason, outlook := reasonOf(err)
	return readiness.Cause{Reason: reason, Outlook: outlook, Message: err.Error()}
}

func reasonOf(err error) (readiness.Reason, readiness.Outlook) {
	if _, held := errors.AsType[*LimitError](err); held {
		return ReasonHeld, readiness.Lasting
	}
	if _, fields := errors.AsType[*ConflictError](err); fields {
		return ReasonConflict, readiness.Lasting
	}
	if _, fights := errors.AsType[*FightError](err); fights {
		return ReasonConflict, readiness.Transient
	}
	switch {
	case errors.Is(err, ErrNotOurs):
		return ReasonNotOurs, readiness.Lasting
	case errors.Is(err, ErrClaimed):
		return ReasonClaimed, readiness.Lasting
	case errors.Is(err, ErrBlocked), errors.Is(err, ErrNeeded):
		return ReasonBlocked, readiness.Waiting
	case errors.Is(err, ErrTerminating), apierrors.HasStatusCause(err, "NamespaceTerminating"):
		return ReasonTerminating, readiness.Waiting
	case errors.Is(err, ErrNotSynced):
		return ReasonNotSynced, readiness.Transient
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
		return readiness.Quota, readiness.Transient
	case apierrors.IsForbidden(err):
		return ReasonForbidden, readiness.Lasting
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return ReasonInvalid, readiness.Lasting
	case apierrors.IsConflict(err), errors.Is(err, ErrStalePlan):
		return ReasonConflict, readiness.Transient
	default:
		return ReasonRequestFailed, readiness.Transient
	}
}
