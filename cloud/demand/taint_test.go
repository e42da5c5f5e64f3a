package demand_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

func TestATaintThatPeopleHavePutStays(t *testing.T) {
	t.Parallel()
	for key, passing := range map[string]bool{
		"node.kubernetes.io/not-ready": true, "node.kubernetes.io/unreachable": true, "node.cloudprovider.kubernetes.io/shutdown": true,
		"node.kubernetes.io/out-of-service": false, "node-role.kubernetes.io/control-plane": false, "dedicated": false,
	} {
		require.Equal(t, passing, demand.Taint{Key: key, Value: "x", Effect: demand.NoSchedule}.Passing(), key)
	}
}
