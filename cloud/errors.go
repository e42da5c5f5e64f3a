package cloud

import (
	"errors"
	"fmt"
	"time"
)

// The conditions of a provider that callers branch on, with errors.Is. A
// provider wraps its own error beside the sentinel, so that both are found.
var (
	// ErrNotFound means that the cloud does not know the machine.
	ErrNotFound = errors.New("instance not found")

	// ErrInvalidState means that the machine's state does not allow the
	// operation. An [InvalidStateError] names it.
	ErrInvalidState = errors.New("invalid instance state")

	// ErrThrottled means that the cloud refused the call because of its rate. A
	// [RateLimitError] has the time.
	ErrThrottled = errors.New("throttled")

	// ErrNoCapacity means that the cloud has no such machine in the zone now. A
	// [CapacityError] names it.
	ErrNoCapacity = errors.New("insufficient capacity")

	// ErrQuotaExceeded means that the account may not have more machines.
	ErrQuotaExceeded = errors.New("quota exceeded")

	// ErrRejected means that the cloud refused the request as such, a wrong
	// parameter or a missing permission, and did nothing. The same request fails
	// again.
	ErrRejected = errors.New("request rejected")

	// ErrTokenReused means that a launch token was used with another config.
	ErrTokenReused = errors.New("launch token used with another config")

	// ErrTokenSpent means that the machines of an earlier launch with the token are
	// terminated, and that no machine was created.
	ErrTokenSpent = errors.New("launch token belongs to a terminated machine")

	// ErrInvalidTransition means that a machine may not change from its state to the
	// other. A [TransitionError] names both.
	ErrInvalidTransition = errors.New("invalid transition")

	// ErrNotOwned means that a machine does not carry the tags of the pool. The machine
	// was left as it is.
	ErrNotOwned = errors.New("machine is not owned by the pool")
)

// An InvalidStateError is an operation that the state of the machine forbids. It
// wraps [ErrInvalidState] and Err.
type InvalidStateError struct {
	ID        string
	State     InstanceState
	Operation string // such as "StartInstance"
	Err       error  // of the provider; may be nil
}

func (e *InvalidStateError) Error() string {
	return withCause(fmt.Sprintf("%s %s: not possible while %s", e.Operation, e.ID, e.State), e.Err)
}

// Unwrap returns ErrInvalidState and the error of the provider.
func (e *InvalidStateError) Unwrap() []error { return wrapped(ErrInvalidState, e.Err) }

// A RateLimitError is a call that the cloud, or a limiter before it, refused. It
// wraps [ErrThrottled] and Err.
type RateLimitError struct {
	RetryAfter time.Duration // time until a call of this kind may succeed
	Err        error         // of the provider; may be nil
}

func (e *RateLimitError) Error() string {
	return withCause(fmt.Sprintf("throttled, retry after %s", e.RetryAfter), e.Err)
}

// Unwrap returns ErrThrottled and the error of the provider.
func (e *RateLimitError) Unwrap() []error { return wrapped(ErrThrottled, e.Err) }

// A CapacityError is a launch or start that the cloud has no machine for. It
// wraps [ErrNoCapacity] and Err.
type CapacityError struct {
	InstanceType string // empty if the provider cannot tell
	Zone         string // the same
	Err          error  // of the provider; may be nil
}

func (e *CapacityError) Error() string {
	message := "insufficient capacity"
	if e.InstanceType != "" {
		message += " for " + e.InstanceType
	}
	if e.Zone != "" {
		message += " in " + e.Zone
	}
	return withCause(message, e.Err)
}

// Unwrap returns ErrNoCapacity and the error of the provider.
func (e *CapacityError) Unwrap() []error { return wrapped(ErrNoCapacity, e.Err) }

// A TransitionError is a change of state that no edge allows. It wraps
// [ErrInvalidTransition].
type TransitionError struct {
	Machine  string
	From, To State
}

func (e *TransitionError) Error() string {
	return fmt.Sprintf("machine %s: invalid transition from %q to %q", e.Machine, e.From, e.To)
}

// Unwrap returns ErrInvalidTransition.
func (e *TransitionError) Unwrap() error { return ErrInvalidTransition }

func withCause(message string, cause error) string {
	if cause == nil {
		return message
	}
	return message + ": " + cause.Error()
}

func wrapped(sentinel, cause error) []error {
	if cause == nil {
		return []error{sentinel}
	}
	return []error{sentinel, cause}
}
