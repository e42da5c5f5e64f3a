package aws

import (
	"context"
	"encoding/base64"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// LaunchInstance implements [cloud.Machines].
func (p *Provider) LaunchInstance(ctx context.Context, config cloud.LaunchConfig) (cloud.Instance, error) {
	out, err := p.LaunchInstances(ctx, config, 1)
	if len(out) == 0 {
		return cloud.Instance{}, err
	}
	return out[0], err
}

// LaunchInstances implements [cloud.BatchMachines], with one RunInstances. EC2
// launches as many machines as it has capacity for, at least one.
func (p *Provider) LaunchInstances(ctx context.Context, config cloud.LaunchConfig, count int) ([]cloud.Instance, error) {
	result, err := p.EC2.RunInstances(ctx, runInstances(config, count))
	if err != nil {
		err = classify("RunInstances", err)
		if short, ok := errors.AsType[*cloud.CapacityError](err); ok {
			short.InstanceType = config.InstanceType
		}
		return nil, err
	}
	out := make([]cloud.Instance, 0, len(result.Instances))
	for i := range result.Instances {
		out = append(out, instance(&result.Instances[i]))
	}
	return out, nil
}

// runInstances is the request for a config. When its operating system shuts down, the
// machine stops and is not terminated: that is how a warm-up ends.
func runInstances(c cloud.LaunchConfig, count int) *ec2.RunInstancesInput {
	in := &ec2.RunInstancesInput{
		ClientToken: text(c.Token), ImageId: text(c.ImageID), InstanceType: types.InstanceType(c.InstanceType),
		MinCount: aws.Int32(1), MaxCount: aws.Int32(int32(min(count, math.MaxInt32))),
		SubnetId: text(c.SubnetID), SecurityGroupIds: c.SecurityGroupIDs,
		InstanceInitiatedShutdownBehavior: types.ShutdownBehaviorStop,
	}
	if c.UserData != "" {
		in.UserData = aws.String(base64.StdEncoding.EncodeToString([]byte(c.UserData)))
	}
	switch {
	case strings.HasPrefix(c.IAMInstanceProfile, "arn:"):
		in.IamInstanceProfile = &types.IamInstanceProfileSpecification{Arn: aws.String(c.IAMInstanceProfile)}
	case c.IAMInstanceProfile != "":
		in.IamInstanceProfile = &types.IamInstanceProfileSpecification{Name: aws.String(c.IAMInstanceProfile)}
	}
	for _, d := range c.BlockDevices {
		ebs := &types.EbsBlockDevice{VolumeType: types.VolumeType(d.VolumeType), DeleteOnTermination: aws.Bool(true)}
		if d.Encrypted {
			ebs.Encrypted = aws.Bool(true)
		}
		ebs.VolumeSize, ebs.Iops, ebs.Throughput = number(d.VolumeSize), number(d.Iops), number(d.Throughput)
		in.BlockDeviceMappings = append(in.BlockDeviceMappings, types.BlockDeviceMapping{DeviceName: text(d.DeviceName), Ebs: ebs})
	}
	if m := c.Metadata; m != (cloud.MetadataOptions{}) {
		in.MetadataOptions = &types.InstanceMetadataOptionsRequest{
			HttpEndpoint:            types.InstanceMetadataEndpointState(m.HTTPEndpoint),
			HttpTokens:              types.HttpTokensState(m.HTTPTokens),
			HttpPutResponseHopLimit: number(m.HTTPPutResponseHopLimit),
			InstanceMetadataTags:    types.InstanceMetadataTagsState(m.InstanceMetadataTags),
		}
	}
	if tags := ec2Tags(c.Tags); len(tags) > 0 {
		in.TagSpecifications = []types.TagSpecification{
			{ResourceType: types.ResourceTypeInstance, Tags: tags}, {ResourceType: types.ResourceTypeVolume, Tags: tags},
		}
	}
	return in
}

// ec2Tags returns the tags in the order of their keys: a repeated request is then
// the same to the byte.
func ec2Tags(tags map[string]string) []types.Tag {
	out := make([]types.Tag, 0, len(tags))
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, types.Tag{Key: aws.String(k), Value: aws.String(tags[k])})
	}
	return out
}

func text(s string) *string {
	if s == "" {
		return nil
	}
	return aws.String(s)
}

func number(n int) *int32 {
	if n == 0 {
		return nil
	}
	return aws.Int32(int32(min(n, math.MaxInt32)))
}
