package ctrlv1_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
)

// TestAMessageCarriesWhatWasPut: each kind of message takes its own two orders and both
// markers, and no other's.
func TestAMessageCarriesWhatWasPut(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		collection     string
		message, other ctrlv1.Message
		apply          ctrlv1.Order
	}{
		{ctrlv1.Deployments, &ctrlv1.DeploymentState{}, &ctrlv1.SentinelState{}, &ctrlv1.ApplyDeployment{}},
		{ctrlv1.Sentinels, &ctrlv1.SentinelState{}, &ctrlv1.CiliumNetworkPolicyState{}, &ctrlv1.ApplySentinel{}},
		{ctrlv1.Policies, &ctrlv1.CiliumNetworkPolicyState{}, &ctrlv1.DeploymentState{}, &ctrlv1.ApplyCiliumNetworkPolicy{}},
	} {
		require.IsType(t, tc.message, ctrlv1.NewMessage(tc.collection))
		require.IsType(t, tc.apply, ctrlv1.NewApply(tc.collection))
		order, gone := ctrlv1.Carried(tc.message)
		require.Nil(t, order, "content of a later version")
		require.False(t, gone)

		ctrlv1.Put(tc.message, tc.apply, 7)
		order, gone = ctrlv1.Carried(tc.message)
		require.Same(t, tc.apply, order)
		require.False(t, gone)
		require.EqualValues(t, 7, tc.message.GetVersion())

		deletion := ctrlv1.NewDelete(tc.collection, "a", "b")
		require.Equal(t, []string{"a", "b"}, []string{deletion.GetK8SNamespace(), deletion.GetK8SName()})
		ctrlv1.Put(tc.message, deletion, 8)
		order, gone = ctrlv1.Carried(tc.message)
		require.Same(t, deletion, order)
		require.True(t, gone)

		for _, marker := range []proto.Message{&ctrlv1.Synced{Count: 3}, &ctrlv1.Bookmark{Head: 4}} {
			ctrlv1.Put(tc.message, marker, 0)
			order, _ = ctrlv1.Carried(tc.message)
			require.Nil(t, order)
		}
		require.EqualValues(t, 4, tc.message.GetBookmark().GetHead())
		require.Panics(t, func() { ctrlv1.Put(tc.other, tc.apply, 1) })
	}
}
