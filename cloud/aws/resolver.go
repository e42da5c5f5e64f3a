package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// A Resolver turns classes into ids. It is safe for concurrent use.
type Resolver struct {
	// EC2 is the client, such as one of [NewClient]. Required.
	EC2 *ec2.Client
	// IAM is needed for classes with a Role.
	IAM *iam.Client
}

// Resolve returns the class with ids. The error joins one for each part that
// could not be resolved; the other parts are valid with an error. If a selector finds
// nothing, the error is [cloud.ErrNotFound].
func (r *Resolver) Resolve(ctx context.Context, class Class) (Resolved, error) {
	if err := class.Validate(); err != nil {
		return Resolved{}, err
	}
	var out Resolved
	var errs [4]error
	out.ImageID, out.ImageName, errs[0] = r.Image(ctx, class)
	out.Subnets, errs[1] = r.Subnets(ctx, class)
	out.SecurityGroupIDs, errs[2] = r.SecurityGroups(ctx, class)
	out.InstanceProfile, errs[3] = r.InstanceProfile(ctx, class)
	return out, errors.Join(errs[:]...)
}

// Image returns the image of the class: the one that it names, or the newest available
// one, by its creation date and then its id.
func (r *Resolver) Image(ctx context.Context, class Class) (id, name string, err error) {
	if class.ImageID != "" {
		return class.ImageID, "", nil
	}
	in := &ec2.DescribeImagesInput{Filters: []types.Filter{
		{Name: aws.String("state"), Values: []string{"available"}},
		{Name: aws.String("architecture"), Values: []string{class.Architecture}},
	}}
	if s := class.Image; s != nil {
		in.Owners = []string{cmp.Or(s.Owner, "self")}
		if s.Name != "" {
			in.Filters = append(in.Filters, types.Filter{Name: aws.String("name"), Values: []string{s.Name}})
		}
		in.Filters = append(in.Filters, tagFilters(s.Tags)...)
	} else {
		in.Owners = []string{"amazon"}
		in.Filters = append(in.Filters, types.Filter{Name: aws.String("name"), Values: class.imageNames()})
	}
	var newest *types.Image
	pages := ec2.NewDescribeImagesPaginator(r.EC2, in)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return "", "", fmt.Errorf("image: %w", classify("DescribeImages", err))
		}
		for i := range page.Images {
			image := &page.Images[i]
			if newest == nil ||
				cmp.Or(
					cmp.Compare(aws.ToString(image.CreationDate), aws.ToString(newest.CreationDate)),
					cmp.Compare(aws.ToString(image.ImageId), aws.ToString(newest.ImageId)),
				) > 0 {
				newest = image
			}
		}
	}
	if newest == nil {
		return "", "", fmt.Errorf("image: none of %v has %s: %w", in.Owners, describe(in.Filters[1:]), cloud.ErrNotFound)
	}
	return aws.ToString(newest.ImageId), aws.ToString(newest.Name), nil
}

// Subnets returns the subnets of the class, ordered by zone and id. Subnets that are
// named by id are looked up only for their zones; without the permission they are
// returned without a zone.
func (r *Resolver) Subnets(ctx context.Context, class Class) ([]Subnet, error) {
	in := &ec2.DescribeSubnetsInput{SubnetIds: class.SubnetIDs, Filters: tagFilters(class.SubnetSelector)}
	var out []Subnet
	pages := ec2.NewDescribeSubnetsPaginator(r.EC2, in)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err = classify("DescribeSubnets", err); err != nil {
			if len(class.SubnetIDs) > 0 && errors.Is(err, cloud.ErrRejected) && !invalidID(err) {
				return unseen(class.SubnetIDs), nil
			}
			return nil, fmt.Errorf("subnets: %w", err)
		}
		for _, s := range page.Subnets {
			out = append(
				out,
				Subnet{
					ID:            aws.ToString(s.SubnetId),
					Zone:          aws.ToString(s.AvailabilityZone),
					FreeAddresses: int(aws.ToInt32(s.AvailableIpAddressCount)),
				},
			)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("subnets: none has %s: %w", describe(in.Filters), cloud.ErrNotFound)
	}
	slices.SortFunc(out, func(a, b Subnet) int { return cmp.Or(cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.ID, b.ID)) })
	return out, nil
}

func unseen(ids []string) []Subnet {
	var out []Subnet
	for _, id := range slices.Sorted(slices.Values(ids)) {
		out = append(out, Subnet{ID: id, FreeAddresses: -1})
	}
	return out
}

// SecurityGroups returns the ids of the class's security groups, in order. Groups that
// are named by id are not looked up.
func (r *Resolver) SecurityGroups(ctx context.Context, class Class) ([]string, error) {
	if len(class.SecurityGroupIDs) > 0 {
		return slices.Compact(slices.Sorted(slices.Values(class.SecurityGroupIDs))), nil
	}
	in := &ec2.DescribeSecurityGroupsInput{Filters: tagFilters(class.SecurityGroupSelector)}
	var out []string
	pages := ec2.NewDescribeSecurityGroupsPaginator(r.EC2, in)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("security groups: %w", classify("DescribeSecurityGroups", err))
		}
		for _, g := range page.SecurityGroups {
			out = append(out, aws.ToString(g.GroupId))
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("security groups: none has %s: %w", describe(in.Filters), cloud.ErrNotFound)
	}
	slices.Sort(out)
	return out, nil
}

// tagFilters selects by tags; the value "*" matches any value.
func tagFilters(tags map[string]string) []types.Filter {
	var out []types.Filter
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		if tags[k] == "*" {
			out = append(out, types.Filter{Name: aws.String("tag-key"), Values: []string{k}})
		} else {
			out = append(out, types.Filter{Name: aws.String("tag:" + k), Values: []string{escape(tags[k])}})
		}
	}
	return out
}

// describe renders filters for an error.
func describe(filters []types.Filter) string {
	var parts []string
	for _, f := range filters {
		parts = append(parts, fmt.Sprintf("%s %v", aws.ToString(f.Name), f.Values))
	}
	return strings.Join(parts, " and ")
}
