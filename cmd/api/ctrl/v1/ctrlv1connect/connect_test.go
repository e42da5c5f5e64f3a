package ctrlv1connect_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
)

// serve serves every RPC with an answer that says which one was reached.
func serve(t *testing.T) *httptest.Server {
	t.Helper()
	path, handler := ctrlv1connect.NewClusterServiceHandler(ctrlv1connect.UnimplementedClusterServiceHandler{})
	require.Equal(t, "/ctrl.v1.ClusterService/", path)
	mux := http.NewServeMux()
	mux.Handle(path, handler)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

func TestEveryUnaryCallTakesPlainJSON(t *testing.T) {
	t.Parallel()
	server := serve(t)
	methods := ctrlv1.File_ctrl_v1_cluster_proto.Services().ByName("ClusterService").Methods()
	require.Equal(t, 9, methods.Len())
	for i := range methods.Len() {
		method := methods.Get(i)
		if method.IsStreamingServer() {
			continue
		}
		url := server.URL + "/ctrl.v1.ClusterService/" + string(method.Name())
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("{}"))
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/json")
		response, err := server.Client().Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusNotImplemented, response.StatusCode, url)
	}
}

func TestTheThreeWatchesAreServerStreams(t *testing.T) {
	t.Parallel()
	server := serve(t)
	client := ctrlv1connect.NewClusterServiceClient(server.Client(), server.URL)
	deployments, err := client.WatchDeployments(t.Context(), connect.NewRequest(&ctrlv1.WatchDeploymentsRequest{}))
	require.NoError(t, err)
	ended(t, deployments)
	sentinels, err := client.WatchSentinels(t.Context(), connect.NewRequest(&ctrlv1.WatchSentinelsRequest{}))
	require.NoError(t, err)
	ended(t, sentinels)
	policies, err := client.WatchCiliumNetworkPolicies(t.Context(), connect.NewRequest(&ctrlv1.WatchCiliumNetworkPoliciesRequest{}))
	require.NoError(t, err)
	ended(t, policies)
}

func ended[T any](t *testing.T, stream *connect.ServerStreamForClient[T]) {
	t.Helper()
	require.False(t, stream.Receive())
	require.Equal(t, connect.CodeUnimplemented, connect.CodeOf(stream.Err()))
	require.NoError(t, stream.Close())
}
