package storage

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/seed-9e1ffd66/trueup/cmd/application/internal/external"
)

// tagOwner is the key of the mark.
const tagOwner = "platform.internal/owner"

// Observe reads how the bucket is. Its tags are read first: they say whether it exists.
func (s *Server) Observe(ctx context.Context, want Want) (State, error) {
	var state State
	for _, read := range []func(context.Context, Want, *State) error{s.readTags, s.readPolicy, s.readBlock, s.readCORS} {
		err := s.call(ctx, func(ctx context.Context) error { return read(ctx, want, &state) })
		switch {
		case code(err) == "NoSuchBucket":
			return State{}, nil
		case code(err) == "AccessDenied" && !state.Exists:
			return State{}, s.denied(ctx, want.Name, err)
		case err != nil:
			return state, explain("read bucket "+want.Name, err)
		}
		state.Exists = true
		if want.Mark.Claim(state.Mark) == external.Foreign {
			return state, nil
		}
	}
	return state, nil
}

// denied returns why the tags of a bucket may not be read: the bucket is of another account,
// or the credentials have no right to its tags, or none at all.
func (s *Server) denied(ctx context.Context, name string, denied error) error {
	head := s.call(ctx, func(ctx context.Context) error {
		_, err := s.client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &name})
		return err
	})
	if code(head) == "Forbidden" || code(head) == "AccessDenied" {
		return s.account(ctx, name)
	}
	return explain("read bucket "+name, denied)
}

// account distinguishes a bucket of another account from credentials without rights.
func (s *Server) account(ctx context.Context, name string) error {
	err := s.call(ctx, func(ctx context.Context) error {
		_, err := s.client.ListBuckets(ctx, &s3.ListBucketsInput{})
		return err
	})
	if err != nil {
		return explain("list buckets", err)
	}
	return external.Owned("bucket "+name, "")
}

func (s *Server) readTags(ctx context.Context, want Want, state *State) error {
	found, err := s.client.GetBucketTagging(ctx, &s3.GetBucketTaggingInput{Bucket: &want.Name})
	if err != nil {
		return ignore(err, "NoSuchTagSet")
	}
	state.Tags = map[string]string{}
	for _, tag := range found.TagSet {
		if key := aws.ToString(tag.Key); key == tagOwner {
			state.Mark = aws.ToString(tag.Value)
		} else {
			state.Tags[key] = aws.ToString(tag.Value)
		}
	}
	return nil
}

func (s *Server) readPolicy(ctx context.Context, want Want, state *State) error {
	found, err := s.client.GetBucketPolicy(ctx, &s3.GetBucketPolicyInput{Bucket: &want.Name})
	if err != nil {
		return ignore(err, "NoSuchBucketPolicy")
	}
	state.Policy = aws.ToString(found.Policy)
	return nil
}

func (s *Server) readBlock(ctx context.Context, want Want, state *State) error {
	if !want.Public {
		return nil
	}
	found, err := s.client.GetPublicAccessBlock(ctx, &s3.GetPublicAccessBlockInput{Bucket: &want.Name})
	if err != nil {
		return ignore(err, "NoSuchPublicAccessBlockConfiguration", "NotImplemented")
	}
	if c := found.PublicAccessBlockConfiguration; c != nil {
		state.Blocked = aws.ToBool(c.BlockPublicPolicy) || aws.ToBool(c.RestrictPublicBuckets)
	}
	return nil
}

func (s *Server) readCORS(ctx context.Context, want Want, state *State) error {
	found, err := s.client.GetBucketCors(ctx, &s3.GetBucketCorsInput{Bucket: &want.Name})
	if code(err) == "NotImplemented" {
		state.NoCORS = true
		return nil
	}
	if err != nil {
		return ignore(err, "NoSuchCORSConfiguration")
	}
	for _, r := range found.CORSRules {
		state.CORS = append(state.CORS, Rule{r.AllowedMethods, r.AllowedOrigins, r.AllowedHeaders, aws.ToInt32(r.MaxAgeSeconds)})
	}
	return nil
}

// do does one action.
func (s *Server) do(ctx context.Context, want Want, state State, action Action) error {
	return s.call(ctx, func(ctx context.Context) (err error) {
		switch action {
		case Create:
			return s.create(ctx, want)
		case Mark:
			return s.tag(ctx, want, state)
		case Unblock:
			_, err = s.client.DeletePublicAccessBlock(ctx, &s3.DeletePublicAccessBlockInput{Bucket: &want.Name})
		case PutPolicy:
			_, err = s.client.PutBucketPolicy(ctx, &s3.PutBucketPolicyInput{Bucket: &want.Name, Policy: aws.String(policy(want.Name))})
		case DeletePolicy:
			_, err = s.client.DeleteBucketPolicy(ctx, &s3.DeleteBucketPolicyInput{Bucket: &want.Name})
		case PutCORS:
			var all []types.CORSRule
			for _, r := range rules(want) {
				all = append(
					all,
					types.CORSRule{AllowedMethods: r.Methods, AllowedOrigins: r.Origins, AllowedHeaders: r.Headers, MaxAgeSeconds: &r.MaxAge},
				)
			}
			_, err = s.client.PutBucketCors(
				ctx,
				&s3.PutBucketCorsInput{Bucket: &want.Name, CORSConfiguration: &types.CORSConfiguration{CORSRules: all}},
			)
		case DeleteCORS:
			_, err = s.client.DeleteBucketCors(ctx, &s3.DeleteBucketCorsInput{Bucket: &want.Name})
		default:
			err = fmt.Errorf("action %q: is unknown", action)
		}
		return err
	})
}

// create makes a bucket with its mark. A service that keeps no tags of a creation gets
// them right after.
func (s *Server) create(ctx context.Context, want Want) error {
	settings := &types.CreateBucketConfiguration{Tags: []types.Tag{{Key: aws.String(tagOwner), Value: aws.String(want.Mark.String())}}}
	if s.options.Region != "us-east-1" {
		settings.LocationConstraint = types.BucketLocationConstraint(s.options.Region)
	}
	_, err := s.client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &want.Name, CreateBucketConfiguration: settings})
	if c := code(err); c == "BucketAlreadyExists" || c == "BucketAlreadyOwnedByYou" {
		return external.Owned("bucket "+want.Name, "")
	}
	if err != nil {
		return err
	}
	var state State
	if err := s.readTags(ctx, want, &state); err != nil || state.Mark != "" {
		return err
	}
	return s.tag(ctx, want, state)
}

// tag writes the mark beside all other tags.
func (s *Server) tag(ctx context.Context, want Want, state State) error {
	set := []types.Tag{{Key: aws.String(tagOwner), Value: aws.String(want.Mark.String())}}
	for key, value := range state.Tags {
		set = append(set, types.Tag{Key: aws.String(key), Value: aws.String(value)})
	}
	_, err := s.client.PutBucketTagging(ctx, &s3.PutBucketTaggingInput{Bucket: &want.Name, Tagging: &types.Tagging{TagSet: set}})
	return err
}

// empty removes all uploads, versions and delete markers of a bucket, a page at a time.
func (s *Server) empty(ctx context.Context, name string) error {
	for {
		left, err := s.page(ctx, name)
		if err != nil || !left {
			return ignore(err, "NoSuchBucket")
		}
	}
}

// page removes one page, and reports whether there was anything.
func (s *Server) page(ctx context.Context, name string) (left bool, err error) {
	var uploads *s3.ListMultipartUploadsOutput
	var versions *s3.ListObjectVersionsOutput
	err = s.call(ctx, func(ctx context.Context) (err error) {
		uploads, err = s.client.ListMultipartUploads(ctx, &s3.ListMultipartUploadsInput{Bucket: &name})
		if err != nil {
			return err
		}
		versions, err = s.client.ListObjectVersions(ctx, &s3.ListObjectVersionsInput{Bucket: &name})
		return err
	})
	if err != nil {
		return false, err
	}
	for _, upload := range uploads.Uploads {
		left = true
		err := s.call(ctx, func(ctx context.Context) error {
			_, err := s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &name, Key: upload.Key, UploadId: upload.UploadId})
			return ignore(err, "NoSuchUpload")
		})
		if err != nil {
			return left, err
		}
	}
	var objects []types.ObjectIdentifier
	for _, v := range versions.Versions {
		objects = append(objects, types.ObjectIdentifier{Key: v.Key, VersionId: v.VersionId})
	}
	for _, m := range versions.DeleteMarkers {
		objects = append(objects, types.ObjectIdentifier{Key: m.Key, VersionId: m.VersionId})
	}
	if len(objects) == 0 {
		return left, nil
	}
	return true, s.call(ctx, func(ctx context.Context) error {
		done, err := s.client.DeleteObjects(
			ctx,
			&s3.DeleteObjectsInput{Bucket: &name, Delete: &types.Delete{Objects: objects, Quiet: aws.Bool(true)}},
		)
		if err != nil {
			return err
		}
		var failed []error
		for _, e := range done.Errors {
			failed = append(failed, fmt.Errorf("object %s: %s: %s", aws.ToString(e.Key), aws.ToString(e.Code), aws.ToString(e.Message)))
		}
		return errors.Join(failed...)
	})
}
