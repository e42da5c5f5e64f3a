package capacity_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/internal/capacity"
)

// TestTheCapacityOfAType is B7: four fifths of the type's resources, or one pod.
func TestTheCapacityOfAType(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	for kind, want := range map[string][2]int64{
		"m5.xlarge": {3200, 16 * gib * 8 / 10}, "m5.large": {1600, 8 * gib * 8 / 10}, "c5.9xlarge": {28800, 72 * gib * 8 / 10},
		"r6i.2xlarge": {6400, 64 * gib * 8 / 10}, "t3.micro": {1600, gib * 8 / 10}, "t3a.2xlarge": {6400, 32 * gib * 8 / 10}, "m7i.24xlarge": {76800, 384 * gib * 8 / 10},
	} {
		got := capacity.Of(kind, 2, nil)
		require.InDelta(t, want[0], got.CPU, 1, kind)
		require.InDelta(t, want[1], got.Memory, 1, kind)
	}
	require.Equal(t, int64(17), capacity.Of("m5.large", 2, new(int32(17))).Pods)
	for _, kind := range []string{"p4d.24xlarge", "m5.metal", "m5", "", "t3.huge"} {
		got := capacity.Of(kind, 2, nil)
		require.Equal(t, int64(3), got.Pods, kind)
		one, two := &demand.Pod{Name: "a", Requests: demand.Resources{CPU: 1 << 20}}, &demand.Pod{Name: "b"}
		template := demand.NodeTemplate{Name: "t", Node: demand.Node{Allocatable: got, Pods: []*demand.Pod{{Name: "d1"}, {Name: "d2"}}}}
		result := demand.Place(
			demand.Input{
				Pods:     []*demand.Pod{one, two},
				Supplies: []demand.Supply{{Pool: "p", Templates: []demand.NodeTemplate{template}, MaxLaunches: 5}},
			},
		)
		require.Equal(t, []demand.LaunchCount{{Template: "t", Count: 2}}, result.Pools[0].Launch, kind)
	}
}
