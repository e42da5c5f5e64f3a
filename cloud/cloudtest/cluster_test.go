package cloudtest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/cloudtest"
)

// TestAKubeletReportsToANodeThatIsThere deletes the Node of a running machine: its kubelet does
// not register again, and reports to the Node that an executor creates.
func TestAKubeletReportsToANodeThatIsThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := &cloudtest.Fake{}
		scope := cloud.Scope{Domain: "example.com", Cluster: "c", Pool: "p", PoolUID: "u"}
		cluster := &cloudtest.Cluster{Fake: fake, Scope: scope, ControllerStop: true}
		launched, err := fake.LaunchInstance(t.Context(), cloud.LaunchConfig{
			Token: "a", ImageID: "i", InstanceType: "m5.large", Tags: scope.LaunchTags("a", nil),
		})
		require.NoError(t, err)
		steps := func() {
			for range 4 {
				cluster.Step()
				time.Sleep(30 * time.Second)
			}
		}
		steps()
		require.True(t, cluster.HasNode(launched.ID))
		heard := cluster.Heard(launched.ID)
		cluster.DeleteNode(launched.ID)
		steps()
		require.False(t, cluster.HasNode(launched.ID), "it does not register again")

		mark := cloud.Mark{Instance: launched, Node: "node-1", From: cloud.StateStandby, To: cloud.StateRunning}
		require.NoError(t, cluster.Mark(t.Context(), mark))
		steps()
		require.True(t, cluster.Heard(launched.ID).After(heard), "it reports")
		require.Empty(t, cluster.Wrong())
	})
}
