package cloud_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

func TestATaintThatPeopleHavePutStays(t *testing.T) {
	t.Parallel()
	for key, passing := range map[string]bool{
		"node.kubernetes.io/not-ready": true, "node.kubernetes.io/unreachable": true, "node.cloudprovider.kubernetes.io/shutdown": true,
		"node.kubernetes.io/out-of-service": false, "node-role.kubernetes.io/control-plane": false, "dedicated": false,
	} {
		require.Equal(t, passing, cloud.Taint{Key: key, Value: "x", Effect: cloud.NoSchedule}.Passing(), key)
	}
}
