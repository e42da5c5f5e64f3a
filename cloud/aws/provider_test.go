package aws_test

import (
	"context"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go/middleware"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/aws"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
	"github.com/seed-9e1ffd66/trueup/internal/test/ec2test"
)

func TestEC2Conforms(t *testing.T) {
	server := ec2test.Start(t, ec2test.Options{})
	cloudtest.Run(t, func(*testing.T) cloudtest.Subject {
		return cloudtest.Subject{
			Provider:  &aws.Provider{EC2: aws.NewClient(config(server), nil, smallPages)},
			Second:    &aws.Provider{EC2: client(server, nil)},
			Config:    cloud.LaunchConfig{ImageID: image, InstanceType: "m5.large"},
			Other:     cloud.LaunchConfig{ImageID: image, InstanceType: "m5.xlarge"},
			UnknownID: "i-0123456789abcdef0",
		}
	})
}

// smallPages makes a page of a list have five machines, the fewest that EC2 allows.
func smallPages(o *ec2.Options) {
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("small pages", func(
			ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler,
		) (middleware.InitializeOutput, middleware.Metadata, error) {
			if list, ok := in.Parameters.(*ec2.DescribeInstancesInput); ok && len(list.InstanceIds) == 0 {
				list.MaxResults = awssdk.Int32(5)
			}
			return next.HandleInitialize(ctx, in)
		}), middleware.Before)
	})
}

// image is one that the emulator knows.
const image = "ami-12c6146b"

func config(server *ec2test.Server) awssdk.Config {
	return awssdk.Config{
		Region:       "us-east-1",
		BaseEndpoint: awssdk.String(server.URL),
		Credentials: awssdk.CredentialsProviderFunc(func(context.Context) (awssdk.Credentials, error) {
			return awssdk.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	}
}

func client(server *ec2test.Server, limiter *cloud.Limiter) *ec2.Client {
	return aws.NewClient(config(server), limiter)
}
