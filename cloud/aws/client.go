package aws

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// throttlePause is how long an operation pauses after EC2 has throttled a call.
const throttlePause = 5 * time.Second

// Limits returns the rates of EC2 per account and region, as buckets by operation
// and one for all that are not named. Scale multiplies the refill, Burst the
// size; 0 means 1, and less than 0.1 counts as 0.1.
func Limits(scale, burst float64) (limits map[string]cloud.Bucket, rest cloud.Bucket) {
	factor := func(f float64) float64 {
		if f == 0 {
			return 1
		}
		return max(f, 0.1)
	}
	scale, burst = factor(scale), factor(burst)
	b := func(size, refill float64) cloud.Bucket {
		return cloud.Bucket{Size: max(1, size*burst), Refill: refill * scale}
	}
	return map[string]cloud.Bucket{
		"RunInstances":       b(100, 2),
		"StartInstances":     b(100, 2),
		"StopInstances":      b(100, 20),
		"TerminateInstances": b(100, 20),
		"DescribeInstances":  b(100, 10), "DescribeImages": b(100, 10), "DescribeSubnets": b(100, 10), "DescribeSecurityGroups": b(100, 10),
		"CreateTags": b(100, 10),
	}, b(100, 5)
}

// NewClient returns an EC2 client that passes every attempt through the limiter. It
// retries broken connections and server errors, up to three attempts; it does not retry
// throttled calls. A nil limiter limits nothing. Options are applied last.
func NewClient(config aws.Config, limiter *cloud.Limiter, options ...func(*ec2.Options)) *ec2.Client {
	return ec2.NewFromConfig(config, append([]func(*ec2.Options){func(o *ec2.Options) {
		o.Retryer = noThrottleRetry{retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts = 3 })}
		if limiter != nil {
			o.APIOptions = append(o.APIOptions, limit(limiter))
		}
	}}, options...)...)
}

// noThrottleRetry leaves throttled calls to the caller.
type noThrottleRetry struct{ aws.RetryerV2 }

// IsErrorRetryable implements [aws.Retryer].
func (r noThrottleRetry) IsErrorRetryable(err error) bool {
	return !isThrottle(err) && !errors.Is(err, cloud.ErrThrottled) && r.RetryerV2.IsErrorRetryable(err)
}

// limit adds the limiter to the client's stack, after the retries.
func limit(limiter *cloud.Limiter) func(*middleware.Stack) error {
	return func(stack *middleware.Stack) error {
		return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc(
			"trueup.Limiter",
			func(
				ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler,
			) (middleware.FinalizeOutput, middleware.Metadata, error) {
				operation := middleware.GetOperationName(ctx)
				if err := limiter.Wait(ctx, operation); err != nil {
					return middleware.FinalizeOutput{}, middleware.Metadata{}, err
				}
				out, metadata, err := next.HandleFinalize(ctx, in)
				if isThrottle(err) {
					limiter.Penalize(operation, throttlePause)
				}
				return out, metadata, err
			},
		), "Retry", middleware.After)
	}
}

func isThrottle(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return false
	}
	switch api.ErrorCode() {
	case "Throttling", "ThrottlingException", "RequestLimitExceeded", "EC2ThrottledException", "RequestThrottled", "TooManyRequestsException":
		return true
	default:
		return false
	}
}
