// Package storage makes and removes the S3 buckets of an application.
//
// It reads first and writes only what differs. A bucket is created with its mark in one
// request, as a tag: killed anywhere, no bucket is without one. What exists under a wanted
// name and has another mark, or none, is never touched. A bucket is emptied in pages, with
// versions, delete markers and open uploads, before it goes.
package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
)

// Server is a service of S3. Make it with Open. It is safe for concurrent use.
type Server struct {
	options Options
	client  *s3.Client
}

// Options say how a service is reached.
type Options struct {
	// Endpoint is the endpoint of an S3 other than AWS's, in path style (AWS_ENDPOINT_URL).
	Endpoint string
	// Region is where buckets are made. Required.
	Region string
	// Credentials are the operator's. Nil: as the SDK of AWS finds them.
	Credentials aws.CredentialsProvider
	// Timeout bounds each request. Default 15 s.
	Timeout time.Duration
	// HTTP carries the requests, if set.
	HTTP aws.HTTPClient
}

// Open reads the options. It does not connect: the service need not be there.
func Open(ctx context.Context, options Options) (*Server, error) {
	options.Timeout = cmp.Or(options.Timeout, 15*time.Second)
	with := []func(*config.LoadOptions) error{config.WithRegion(options.Region)}
	if options.Credentials != nil {
		with = append(with, config.WithCredentialsProvider(options.Credentials))
	}
	settings, err := config.LoadDefaultConfig(ctx, with...)
	if err != nil {
		return nil, fmt.Errorf("storage: %w", err)
	}
	return &Server{options: options, client: s3.NewFromConfig(settings, func(o *s3.Options) {
		o.Retryer = aws.NopRetryer{} // the caller tries again
		if options.HTTP != nil {
			o.HTTPClient = options.HTTP
		}
		if options.Endpoint != "" {
			o.BaseEndpoint, o.UsePathStyle = aws.String(options.Endpoint), true
			// S3 services other than AWS's may not support newer checksums.
			o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		}
	})}, nil
}

// Want is the desired state of a bucket.
type Want struct {
	// Name of the bucket. Required.
	Name string
	// Public lets anyone read the objects.
	Public bool
	// Origins may send requests from browsers. Empty: none.
	Origins []string
	// Mark says whose it is. Required.
	Mark external.Mark
}

// Result is what Apply has done.
type Result struct {
	// Done names each write.
	Done []string
	// NoCORS is whether the service lacks support for CORS, without which browsers may
	// send requests from no other origin.
	NoCORS bool
}

// Apply makes the bucket as it is wanted. After an error the result has the changes made before it.
func (s *Server) Apply(ctx context.Context, want Want) (Result, error) {
	state, err := s.Observe(ctx, want)
	if err != nil {
		return Result{}, err
	}
	actions, err := Plan(state, want)
	result := Result{NoCORS: state.NoCORS}
	if err != nil {
		return result, err
	}
	for _, action := range actions {
		err := s.do(ctx, want, state, action)
		if action == PutCORS && code(err) == "NotImplemented" {
			result.NoCORS = true
			continue
		}
		if err != nil {
			return result, explain(string(action)+" of bucket "+want.Name, err)
		}
		result.Done = append(result.Done, string(action)+" "+want.Name)
	}
	return result, nil
}

// Delete removes the bucket of the mark with all it holds, or with retain leaves it for the
// next of its name. A bucket of another is left alone and is no error. When it returns no
// error, nothing is left to do.
func (s *Server) Delete(ctx context.Context, name string, mark external.Mark, retain bool) error {
	want := Want{Name: name, Mark: mark}
	state, err := s.Observe(ctx, want)
	if err != nil || !state.Exists {
		return err
	}
	found, _ := external.ParseMark(state.Mark)
	if mark.Claim(state.Mark) == external.Foreign || found.UID != mark.UID {
		return nil
	}
	if retain {
		mark.Retained = true
		if state.Mark == mark.String() {
			return nil
		}
		return explain("leave bucket "+name, s.tag(ctx, Want{Name: name, Mark: mark}, state))
	}
	if err := s.empty(ctx, name); err != nil {
		return explain("empty bucket "+name, err)
	}
	return explain("delete bucket "+name, ignore(s.call(ctx, func(ctx context.Context) error {
		_, err := s.client.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: &name})
		return err
	}), "NoSuchBucket"))
}

// call bounds one request.
func (s *Server) call(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	return request(ctx)
}

// code returns the error code of S3, empty if there is none.
func code(err error) string {
	if failure, ok := errors.AsType[smithy.APIError](err); ok {
		return failure.ErrorCode()
	}
	return ""
}

// ignore returns nil for an error with one of the codes.
func ignore(err error, codes ...string) error {
	if slices.Contains(codes, code(err)) {
		return nil
	}
	return err
}

// explain wraps an error with what its cure depends on.
func explain(what string, err error) error {
	if err == nil || errors.Is(err, external.ErrOwnedByOther) {
		return err
	}
	status := 0
	if answer, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		status = answer.HTTPStatusCode()
	}
	message := code(err)
	if failure, ok := errors.AsType[smithy.APIError](err); ok && failure.ErrorMessage() != "" {
		message += ": " + failure.ErrorMessage()
	}
	switch {
	case status == http.StatusForbidden || status == http.StatusUnauthorized:
		return fmt.Errorf(
			"storage: %s: %w: %s; correct the operator's credentials for S3 (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), or their rights",
			what,
			external.ErrDenied,
			message,
		)
	case status == 0 || status >= 500 && status != http.StatusNotImplemented:
		return fmt.Errorf("storage: %s: %w: %w", what, external.ErrUnreachable, err)
	default:
		return fmt.Errorf("storage: %s: %s (HTTP %d)", what, message, status)
	}
}
