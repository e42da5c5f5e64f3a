package controltest_test

import (
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/controltest"
)

func TestTheServerStreamsWhatIsWantedAndItsFaults(t *testing.T) {
	t.Parallel()
	server := controltest.Start(t, "eu")
	server.Want(t, &ctrlv1.ApplyDeployment{K8SNamespace: "ws", K8SName: "web"}, &ctrlv1.ApplyDeployment{K8SNamespace: "ws", K8SName: "api"})
	client := ctrlv1connect.NewClusterServiceClient(http.DefaultClient, server.URL)
	list := func() (names []string, count uint64, err error) {
		request := connect.NewRequest(&ctrlv1.WatchDeploymentsRequest{Markers: true})
		request.Header().Set("Authorization", "Bearer secret")
		request.Header().Set("X-Krane-Region", "eu")
		stream, err := client.WatchDeployments(t.Context(), request)
		require.NoError(t, err)
		defer stream.Close()
		for stream.Receive() {
			if synced := stream.Msg().GetSynced(); synced != nil {
				return names, synced.GetCount(), nil
			}
			names = append(names, stream.Msg().GetApply().GetK8SName())
		}
		return names, 0, stream.Err()
	}
	names, count, err := list()
	require.NoError(t, err)
	require.Equal(t, []string{"web", "api"}, names)
	require.Equal(t, uint64(2), count)

	server.Set(controltest.Faults{Lie: true})
	_, count, err = list()
	require.NoError(t, err)
	require.Equal(t, uint64(3), count)

	server.Set(controltest.Faults{Token: "another"})
	_, _, err = list()
	require.Equal(t, connect.CodeUnauthenticated, connect.CodeOf(err))
}
