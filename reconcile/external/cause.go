package external

import (
	"errors"

	"github.com/seed-9e1ffd66/trueup/apply/readiness"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// ErrWaits is in the chain of the error of a part that was not tried: as many passes use its
// service as may, or another part comes first. Nothing is wrong with it: another pass should
// follow soon.
var ErrWaits = errors.New("waits")

// ErrOwnedByOther is in the chain of the error about something that has the name of a wanted
// thing, and was not made for this object. It lasts until a person does something about it.
var ErrOwnedByOther = errors.New("is owned by another")

// CauseOf returns the cause for the error of a part, as package operator has one for a child: the
// zero Cause for nil; NotOurs, lasting, for [ErrOwnedByOther]; RequestFailed, lasting, for what is marked
// with [reconcile.Terminal], or is a panic; Progressing, waiting, for [ErrWaits]; RequestFailed, transient,
// for any other. Of several joined errors it is the first of these that one is. No event says that a
// service has changed: another pass should follow after any cause, sooner while it waits. It is safe for
// concurrent use.
func CauseOf(err error) readiness.Cause {
	if err == nil {
		return readiness.Cause{}
	}
	cause := readiness.Cause{Reason: "RequestFailed", Outlook: readiness.Transient, Message: err.Error()}
	switch {
	case errors.Is(err, ErrOwnedByOther):
		cause.Reason, cause.Outlook = "NotOurs", readiness.Lasting
	case lasting(err):
		cause.Outlook = readiness.Lasting
	case errors.Is(err, ErrWaits):
		cause.Reason, cause.Outlook = "Progressing", readiness.Waiting
	}
	return cause
}

// lasting reports whether an error, or one of several, stays until a person does something
// about it: to try again at once is of no use.
func lasting(err error) bool {
	_, panicked := errors.AsType[*reconcile.PanicError](err)
	return panicked || errors.Is(err, reconcile.ErrTerminal) || errors.Is(err, ErrOwnedByOther)
}
