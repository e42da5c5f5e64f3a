package aws_test

import (
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/aws"
	"github.com/seed-9e1ffd66/trueup/internal/test/ec2test"
)

func TestAClassIsResolved(t *testing.T) {
	server := ec2test.Start(t, ec2test.Options{})
	client := client(server, nil)
	ctx := t.Context()
	r := &aws.Resolver{EC2: client, IAM: iam.NewFromConfig(config(server))}

	vpc, err := client.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: awssdk.String("10.1.0.0/16")})
	require.NoError(t, err)
	subnet := func(zone, cidr string, tags ...types.Tag) string {
		out, err := client.CreateSubnet(ctx, &ec2.CreateSubnetInput{
			VpcId: vpc.Vpc.VpcId, CidrBlock: &cidr, AvailabilityZone: &zone,
			TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeSubnet, Tags: tags}},
		})
		require.NoError(t, err)
		return *out.Subnet.SubnetId
	}
	tag := func(k, v string) types.Tag { return types.Tag{Key: &k, Value: &v} }
	b := subnet("us-east-1b", "10.1.2.0/24", tag("pool", "a"), tag("tier", "private"))
	a := subnet("us-east-1a", "10.1.1.0/24", tag("pool", "a"))
	subnet("us-east-1a", "10.1.3.0/24", tag("pool", "abc"))
	group, err := client.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{
		GroupName: awssdk.String("nodes"), Description: awssdk.String("nodes"), VpcId: vpc.Vpc.VpcId,
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeSecurityGroup, Tags: []types.Tag{tag("pool", "a")}}},
	})
	require.NoError(t, err)
	machine, err := client.RunInstances(
		ctx,
		&ec2.RunInstancesInput{ImageId: awssdk.String(image), MinCount: awssdk.Int32(1), MaxCount: awssdk.Int32(1)},
	)
	require.NoError(t, err)
	// Two images are of the same second, or not on a slow machine: then the second one is newer.
	var newest, second string
	for _, name := range []string{"nodes-1", "nodes-2"} {
		out, err := client.CreateImage(ctx, &ec2.CreateImageInput{InstanceId: machine.Instances[0].InstanceId, Name: &name})
		require.NoError(t, err)
		made, err := client.DescribeImages(ctx, &ec2.DescribeImagesInput{ImageIds: []string{*out.ImageId}})
		require.NoError(t, err)
		if created := *made.Images[0].CreationDate; created > second || *out.ImageId > newest {
			newest, second = *out.ImageId, created
		}
	}
	_, err = r.IAM.CreateRole(ctx, &iam.CreateRoleInput{RoleName: awssdk.String("node"), AssumeRolePolicyDocument: awssdk.String("{}")})
	require.NoError(t, err)

	class := aws.Class{
		Architecture: "x86_64", Image: &aws.ImageSelector{Name: "nodes-*"}, SubnetSelector: map[string]string{"pool": "a"},
		SecurityGroupSelector: map[string]string{"pool": "*"}, Role: "arn:aws:iam::1:role/node", ProfileName: "pool-profile",
	}
	named := class
	named.Image, named.ImageID = nil, image
	id, _, err := r.Image(ctx, named)
	require.NoError(t, err)
	require.Equal(t, image, id, "it is not looked for")
	require.NoError(t, named.Validate())
	got, err := r.Resolve(ctx, class)
	require.NoError(t, err)
	require.Equal(t, []string{a, b}, []string{got.Subnets[0].ID, got.Subnets[1].ID}, "in the order of zones")
	require.Equal(t, "us-east-1a", got.Subnets[0].Zone)
	require.Equal(t, 251, got.Subnets[0].FreeAddresses)
	require.Equal(t, []string{*group.GroupId}, got.SecurityGroupIDs)
	require.Contains(t, []string{"nodes-1", "nodes-2"}, got.ImageName)
	require.Equal(t, newest, got.ImageID)
	require.Equal(t, "pool-profile", got.InstanceProfile)

	again, err := r.Resolve(ctx, class)
	require.NoError(t, err)
	require.Equal(t, got, again)

	missing := class
	missing.SubnetSelector = map[string]string{"tier": "*", "pool": "none"}
	missing.Image = &aws.ImageSelector{Tags: map[string]string{"no": "such"}}
	part, err := r.Resolve(ctx, missing)
	require.ErrorIs(t, err, cloud.ErrNotFound)
	require.ErrorContains(t, err, "subnets: none has tag:pool [none] and tag-key [tier]")
	require.ErrorContains(t, err, "image: none of [self] has")
	require.Equal(t, got.SecurityGroupIDs, part.SecurityGroupIDs, "the other parts are valid")

	foreign := class
	foreign.ProfileName = "foreign"
	_, err = r.IAM.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: awssdk.String("foreign")})
	require.NoError(t, err)
	_, err = r.InstanceProfile(ctx, foreign)
	require.ErrorIs(t, err, cloud.ErrNotOwned)
	require.NoError(t, r.DeleteInstanceProfile(ctx, foreign))
	_, err = r.IAM.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: awssdk.String("foreign")})
	require.NoError(t, err, "a profile of another hand stays")
	require.NoError(t, r.DeleteInstanceProfile(ctx, class))
	require.NoError(t, r.DeleteInstanceProfile(ctx, class))
	_, err = r.IAM.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: awssdk.String("pool-profile")})
	require.Error(t, err)
}

func TestAWrongClassIsRefusedByField(t *testing.T) {
	err := aws.Class{
		Architecture:    "x86",
		Bootstrap:       "Windows",
		SubnetIDs:       []string{"a"},
		SubnetSelector:  map[string]string{"a": "b"},
		InstanceProfile: "p",
		Role:            "r",
	}.Validate()
	for _, text := range []string{
		`Architecture: is "x86", must be "x86_64" or "arm64"`, `Bootstrap: is "Windows"`, "KubernetesVersion: is required", "exactly one of SubnetIDs and SubnetSelector",
		"exactly one of SecurityGroupIDs and SecurityGroupSelector", "InstanceProfile: must be empty with Role", "ProfileName: is required with Role",
	} {
		require.ErrorContains(t, err, text)
	}
}
