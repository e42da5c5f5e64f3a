package operator_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud/aws"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
)

// movesToAnotherRegion is C32: a class names another region. New machines are in it, those
// of the old one go, and none is left behind when the pool is deleted meanwhile.
func movesToAnotherRegion(b *bench) {
	config := awsConfig(b.url, nil)
	config.Region = "us-west-2"
	west := aws.NewClient(config, nil)
	b.machines(b.T, west)
	subnets, group := network(b.T, west)
	alive := func(in *ec2.Client) (n int) {
		out, err := in.DescribeInstances(b.Context(), &ec2.DescribeInstancesInput{})
		require.NoError(b, err)
		for _, r := range out.Reservations {
			for _, i := range r.Instances {
				if i.State.Name != types.InstanceStateNameTerminated &&
					slices.ContainsFunc(i.Tags, func(t types.Tag) bool { return *t.Key == "stratos.sh/pool" && *t.Value == b.name }) {
					n++
				}
			}
		}
		return n
	}

	b.class()
	b.pool("poolSize: 4, minStandby: 1")
	b.standby(1)
	b.pods(names("pod", 1), "cpu: 1", "")
	b.eventually("it runs, and another is on standby", func() bool { return b.bound() == 1 && b.counts() == [3]int32{1, 1, 2} })
	// Not before: a machine that is ready counts as empty until the scheduler has bound its pod.
	b.pool("poolSize: 4, minStandby: 1, scaleDown: {emptyNodeTTL: 1s}")
	require.Equal(b, 2, alive(b.ec2))
	_, err := b.cluster.Kubectl(b.Context(), "patch", "awsnc", b.name, "--type=merge", "-p",
		fmt.Sprintf(`{"spec":{"region":"us-west-2","subnetIds":["%s"],"securityGroupIds":["%s"]}}`, strings.Join(subnets, `","`), group))
	require.NoError(b, err)
	b.eventually(
		"the machine on standby is one of the new region",
		func() bool { return alive(west) == 1 && alive(b.ec2) == 1 && b.counts()[0] == 1 },
	)
	require.Equal(b, 1, b.bound(), "the machine that runs is left alone")
	require.ElementsMatch(b, []string{home, "us-west-2"}, b.read().Status.Regions)
	b.eventually("the Nodes are those of the two machines", func() bool {
		zones := map[string]string{}
		for _, n := range b.nodes() {
			zones[n.Labels[v1alpha1.LabelState]] = n.Labels["topology.kubernetes.io/region"]
		}
		return maps.Equal(zones, map[string]string{"running": home, "standby": "us-west-2"})
	})

	b.removePods("pod-00")
	b.eventually(
		"nothing is left in the old region",
		func() bool { return alive(b.ec2) == 0 && slices.Equal(b.read().Status.Regions, []string{"us-west-2"}) },
	)
	require.Equal(b, 1, alive(west))
	_, err = b.cluster.Kubectl(b.Context(), "delete", "np", b.name, "--timeout=2m")
	require.NoError(b, err)
	require.Zero(b, alive(west))
}
