package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/aws"
)

// EC2 opens regions of AWS. Credentials and endpoints come from the environment, as for
// every program with the client of AWS.
type EC2 struct {
	// QPS and Burst multiply the rates and the bursts that EC2 publishes. Zero: 1.
	QPS, Burst float64
}

// Home returns the region of the environment.
func (e EC2) Home(ctx context.Context) (string, error) {
	c, err := settings(ctx)
	if err != nil {
		return "", err
	}
	if c.Region == "" {
		return "", errors.New("--region: is not set, must be the region of classes that name none")
	}
	return c.Region, nil
}

// Open opens a region.
func (e EC2) Open(ctx context.Context, region string, called Called) (Region, error) {
	c, err := settings(ctx, config.WithRegion(region))
	if err != nil {
		return Region{}, err
	}
	limits, rest := aws.Limits(e.QPS, e.Burst)
	client := aws.NewClient(c, &cloud.Limiter{Limits: limits, Rest: rest}, func(o *ec2.Options) {
		o.APIOptions = append(o.APIOptions, watched(called))
	})
	return Region{
		Provider: &aws.Provider{EC2: client},
		Resolver: &aws.Resolver{EC2: client, IAM: iam.NewFromConfig(c)},
	}, nil
}

// Notices reads the queue of SQS at a URL, with the credentials of the environment.
func (e EC2) Notices(ctx context.Context, region, url string) (*aws.Notices, error) {
	c, err := settings(ctx, config.WithRegion(region))
	if err != nil {
		return nil, err
	}
	return &aws.Notices{SQS: sqs.NewFromConfig(c), URL: url}, nil
}

// requestLimit bounds a request with its answer: the client of AWS has no bound of its own, and a firewall
// may drop packets in silence. The longest right one is a wait of 20 s for messages of SQS.
const requestLimit = time.Minute

// settings reads the environment, as every program with the client of AWS.
func settings(ctx context.Context, options ...func(*config.LoadOptions) error) (c awssdk.Config, err error) {
	options = append(options, config.WithHTTPClient(awshttp.NewBuildableClient().WithTimeout(requestLimit)))
	if c, err = config.LoadDefaultConfig(ctx, options...); err != nil {
		return c, fmt.Errorf("configuration of AWS: %w", err)
	}
	return c, nil
}

// watched is a step of the client's stack that times each call, its turn at the limiter
// and its repetitions included.
func watched(called Called) func(*middleware.Stack) error {
	return func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc(
			"stratos.Called",
			func(
				ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler,
			) (middleware.InitializeOutput, middleware.Metadata, error) {
				began := time.Now()
				out, metadata, err := next.HandleInitialize(ctx, in)
				called("aws", operationOf(ctx), time.Since(began), throttleOf(err))
				return out, metadata, err
			},
		), middleware.After)
	}
}

// throttleOf marks an error that says that there were too many calls.
func throttleOf(err error) error {
	if api, ok := errors.AsType[smithy.APIError](err); ok && api.ErrorCode() == "RequestLimitExceeded" {
		return cloud.ErrThrottled
	}
	return err
}

func operationOf(ctx context.Context) string {
	if name := middleware.GetOperationName(ctx); name != "" {
		return name
	}
	return "unknown"
}
