package aws

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// Provider is one region of one account. It implements [cloud.Provider] and every
// batch interface of package cloud. It is safe for concurrent use.
type Provider struct {
	// EC2 is the client, such as one of [NewClient]. Required.
	EC2 *ec2.Client
}

var (
	_ cloud.Provider          = (*Provider)(nil)
	_ cloud.BatchMachines     = (*Provider)(nil)
	_ cloud.BatchPowerControl = (*Provider)(nil)
	_ cloud.BatchInventory    = (*Provider)(nil)
)

// GetInstanceState implements [cloud.Inventory].
func (p *Provider) GetInstanceState(ctx context.Context, id string) (cloud.InstanceState, error) {
	i, err := p.GetInstance(ctx, id)
	return i.State, err
}

// GetInstance implements [cloud.Inventory].
func (p *Provider) GetInstance(ctx context.Context, id string) (cloud.Instance, error) {
	found, err := p.GetInstances(ctx, []string{id})
	if err != nil {
		return cloud.Instance{}, err
	}
	i, ok := found[id]
	if !ok {
		return cloud.Instance{}, fmt.Errorf("%s: %w", id, cloud.ErrNotFound)
	}
	return i, nil
}

// GetInstances implements [cloud.BatchInventory]. It asks by filter, of which EC2
// takes 200 values a call: unknown ids are then no error.
func (p *Provider) GetInstances(ctx context.Context, ids []string) (map[string]cloud.Instance, error) {
	found := make(map[string]cloud.Instance, len(ids))
	for chunk := range slices.Chunk(ids, maxFilterValues) {
		instances, err := p.describe(ctx, []types.Filter{{Name: aws.String("instance-id"), Values: chunk}})
		if err != nil {
			return nil, err
		}
		for _, i := range instances {
			found[i.ID] = i
		}
	}
	return found, nil
}

// ListInstances implements [cloud.Inventory].
func (p *Provider) ListInstances(ctx context.Context, tags map[string]string) ([]cloud.Instance, error) {
	var filters []types.Filter
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		filters = append(filters, types.Filter{Name: aws.String("tag:" + k), Values: []string{escape(tags[k])}})
	}
	return p.describe(ctx, filters)
}

func (p *Provider) describe(ctx context.Context, filters []types.Filter) ([]cloud.Instance, error) {
	var out []cloud.Instance
	pages := ec2.NewDescribeInstancesPaginator(p.EC2, &ec2.DescribeInstancesInput{Filters: filters, MaxResults: aws.Int32(1000)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, classify("DescribeInstances", err)
		}
		for _, r := range page.Reservations {
			for i := range r.Instances {
				out = append(out, instance(&r.Instances[i]))
			}
		}
	}
	return out, nil
}

// instance reads a machine as EC2 reports it.
func instance(i *types.Instance) cloud.Instance {
	out := cloud.Instance{
		ID:           aws.ToString(i.InstanceId),
		State:        cloud.InstanceUnknown,
		PrivateIP:    aws.ToString(i.PrivateIpAddress),
		PublicIP:     aws.ToString(i.PublicIpAddress),
		LaunchTime:   aws.ToTime(i.LaunchTime),
		InstanceType: string(i.InstanceType),
		SubnetID:     aws.ToString(i.SubnetId),
		Tags:         make(map[string]string, len(i.Tags)),
	}
	if i.Placement != nil {
		out.AvailabilityZone = aws.ToString(i.Placement.AvailabilityZone)
	}
	if i.State != nil {
		switch i.State.Name {
		case types.InstanceStateNamePending, types.InstanceStateNameRunning, types.InstanceStateNameStopping, types.InstanceStateNameStopped,
			types.InstanceStateNameShuttingDown, types.InstanceStateNameTerminated:
			out.State = cloud.InstanceState(i.State.Name)
		}
	}
	for _, t := range i.Tags {
		out.Tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}
	return out
}

// TerminateInstance implements [cloud.Machines].
func (p *Provider) TerminateInstance(ctx context.Context, id string) error {
	return p.TerminateInstances(ctx, []string{id})[id]
}

// TerminateInstances implements [cloud.BatchMachines].
func (p *Provider) TerminateInstances(ctx context.Context, ids []string) map[string]error {
	return batch(ctx, ids, func(ctx context.Context, ids []string) error {
		_, err := p.EC2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: ids})
		return classify("TerminateInstances", err)
	})
}

// StartInstance implements [cloud.PowerControl].
func (p *Provider) StartInstance(ctx context.Context, id string) error {
	return p.StartInstances(ctx, []string{id})[id]
}

// StartInstances implements [cloud.BatchPowerControl].
func (p *Provider) StartInstances(ctx context.Context, ids []string) map[string]error {
	return batch(ctx, ids, func(ctx context.Context, ids []string) error {
		_, err := p.EC2.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: ids})
		return classify("StartInstances", err)
	})
}

// StopInstance implements [cloud.PowerControl].
func (p *Provider) StopInstance(ctx context.Context, id string, force bool) error {
	return p.StopInstances(ctx, []string{id}, force)[id]
}

// StopInstances implements [cloud.BatchPowerControl].
func (p *Provider) StopInstances(ctx context.Context, ids []string, force bool) map[string]error {
	return batch(ctx, ids, func(ctx context.Context, ids []string) error {
		_, err := p.EC2.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: ids, Force: aws.Bool(force)})
		return classify("StopInstances", err)
	})
}

// UpdateInstanceTags implements [cloud.Inventory].
func (p *Provider) UpdateInstanceTags(ctx context.Context, id string, tags map[string]string) error {
	return p.UpdateInstancesTags(ctx, []string{id}, tags)[id]
}

// UpdateInstancesTags implements [cloud.BatchInventory].
func (p *Provider) UpdateInstancesTags(ctx context.Context, ids []string, tags map[string]string) map[string]error {
	return batch(ctx, ids, func(ctx context.Context, ids []string) error {
		_, err := p.EC2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: ids, Tags: ec2Tags(tags)})
		return classify("CreateTags", err)
	})
}
