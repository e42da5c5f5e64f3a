package external

import (
	"context"
	"errors"

	"github.com/seed-9e1ffd66/trueup/reconcile"
	outside "github.com/seed-9e1ffd66/trueup/reconcile/external"
)

// Errors for conditions that the operator branches on, found with errors.Is.
var (
	// ErrOwnedByOther: something exists under a wanted name, and was made for another.
	ErrOwnedByOther = outside.ErrOwnedByOther
	// ErrReserved: a wanted name has a meaning of its own for the service.
	ErrReserved = errors.New("has the name")
	// ErrDenied: the service refuses what the operator's account asks for.
	ErrDenied = errors.New("is denied")
	// ErrUnreachable: the service does not answer, or not in time.
	ErrUnreachable = errors.New("cannot be reached")
	// ErrUnset: the operator has no address of the service.
	ErrUnset = errors.New("is not set up")
)

// The reasons of conditions.
const (
	ReasonOwnedByOther = "OwnedByOther"
	ReasonReserved     = "NameReserved"
	ReasonDenied       = "Denied"
	ReasonUnreachable  = "Unreachable"
	ReasonUnset        = "NotConfigured"
	ReasonFailed       = "Failed"
)

// Reason returns the reason of a condition for an error.
func Reason(err error) string {
	switch {
	case errors.Is(err, ErrOwnedByOther):
		return ReasonOwnedByOther
	case errors.Is(err, ErrReserved):
		return ReasonReserved
	case errors.Is(err, ErrUnset):
		return ReasonUnset
	case errors.Is(err, ErrDenied):
		return ReasonDenied
	case errors.Is(err, ErrUnreachable), errors.Is(err, context.DeadlineExceeded):
		return ReasonUnreachable
	default:
		return ReasonFailed
	}
}

// Lasting reports whether an error stays until a person does something about it: to try
// again at once is of no use.
func Lasting(err error) bool {
	return errors.Is(err, ErrOwnedByOther) || errors.Is(err, ErrReserved) || errors.Is(err, ErrDenied) || errors.Is(err, ErrUnset)
}

// Judged marks an error that is [Lasting] as such for a pass.
func Judged(err error) error {
	if Lasting(err) {
		return reconcile.Terminal(err)
	}
	return err
}
