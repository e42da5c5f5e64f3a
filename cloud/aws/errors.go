package aws

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/aws/smithy-go"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

var instanceID = regexp.MustCompile(`\bi-[0-9a-f]{8,17}\b`)

// classify wraps an error of EC2 in the matching condition of package cloud. An unknown
// error stays as it is: its effect is unknown.
func classify(operation string, err error) error {
	api, ok := errors.AsType[smithy.APIError](err)
	if err == nil || !ok || errors.Is(err, cloud.ErrThrottled) {
		return err
	}
	if isThrottle(err) {
		return &cloud.RateLimitError{RetryAfter: throttlePause, Err: err}
	}
	switch code := api.ErrorCode(); code {
	case "InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed":
		return fmt.Errorf("%w: %w", cloud.ErrNotFound, err)
	case "IncorrectInstanceState", "IncorrectState":
		return &cloud.InvalidStateError{
			ID:        instanceID.FindString(api.ErrorMessage()),
			State:     cloud.InstanceUnknown,
			Operation: operation,
			Err:       err,
		}
	case "InsufficientInstanceCapacity",
		"InsufficientHostCapacity",
		"InsufficientReservedInstanceCapacity",
		"InsufficientFreeAddressesInSubnet",
		"InsufficientCapacity",
		"Unsupported":
		return &cloud.CapacityError{Err: err}
	case "InstanceLimitExceeded", "VcpuLimitExceeded", "MaxSpotInstanceCountExceeded", "VolumeLimitExceeded":
		return fmt.Errorf("%w: %w", cloud.ErrQuotaExceeded, err)
	case "IdempotentParameterMismatch":
		return fmt.Errorf("%w: %w", cloud.ErrTokenReused, err)
	case "IdempotentInstanceTerminated":
		return fmt.Errorf("%w: %w", cloud.ErrTokenSpent, err)
	case "UnauthorizedOperation",
		"AuthFailure",
		"OptInRequired",
		"Blocked",
		"PendingVerification",
		"MissingParameter",
		"UnknownParameter",
		"OperationNotPermitted":
		return fmt.Errorf("%w: %w", cloud.ErrRejected, err)
	default:
		if strings.HasPrefix(code, "Invalid") && api.ErrorFault() != smithy.FaultServer {
			return fmt.Errorf("%w: %w", cloud.ErrRejected, err)
		}
		return err
	}
}

// changing is what an error of AWS has that is another each time.
var changing = regexp.MustCompile(`RequestID: [^,\s]*,? ?| ?Encoded authorization failure message: \S+`)

// Steady returns the text of an error of AWS without what is another each time that the same
// happens: the id of the request, and the encoded message of a refusal. It is for texts that are
// compared or kept, such as a status; a log is better off with the whole.
func Steady(text string) string { return changing.ReplaceAllString(text, "") }

// named returns the machines that an error of EC2 names.
func named(err error) []string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return instanceID.FindAllString(api.ErrorMessage(), -1)
	}
	return nil
}

// single reports whether an error may concern one machine of a batch only.
func single(err error) bool {
	return errors.Is(err, cloud.ErrNotFound) || errors.Is(err, cloud.ErrInvalidState) || errors.Is(err, cloud.ErrNoCapacity) ||
		errors.Is(err, cloud.ErrQuotaExceeded) ||
		errors.Is(err, cloud.ErrRejected)
}
