package reconcile

import (
	"errors"
	"slices"
)

// ErrTerminal is in the chain of every error made by [Terminal]:
// errors.Is(err, ErrTerminal) reports whether err, or any part of it, is terminal.
var ErrTerminal = errors.New("a retry cannot cure this")

// Terminal marks err as one that a retry cannot cure, such as an invalid
// desired state. A [Loop] does not retry it before its next interval or
// trigger; a [Queue] parks the key until its next event. The text of err stays
// as it is, and errors.Is and errors.As see through the mark. Terminal(nil) is nil.
//
// Wrapping keeps the mark. Of several errors in one (errors.Join, or more than
// one %w), all must be terminal for the retry to be dropped: a retry can still
// cure the others.
func Terminal(err error) error {
	if err == nil {
		return nil
	}
	return &terminalError{err}
}

type terminalError struct{ err error }

func (e *terminalError) Error() string { return e.err.Error() }

func (e *terminalError) Unwrap() error { return e.err }

func (e *terminalError) Is(target error) bool { return target == ErrTerminal }

// hopeless reports whether nothing in err can be cured by a retry.
func hopeless(err error) bool {
	switch e := any(err).(type) {
	case *terminalError:
		return true
	case interface{ Unwrap() error }:
		return hopeless(e.Unwrap())
	case interface{ Unwrap() []error }:
		parts := e.Unwrap()
		curable := func(part error) bool { return !hopeless(part) }
		return len(parts) > 0 && !slices.ContainsFunc(parts, curable)
	default:
		return false
	}
}
