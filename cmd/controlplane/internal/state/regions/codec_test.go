package regions_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// TestEveryProtocolCarriesTheSame reads one stream as each protocol, twice,
// because the second stream gets the messages marshalled for the first.
func TestEveryProtocolCarriesTheSame(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.put("d_1", "running", deployment("one", "one:1"))
		w.put("d_2", "stopped", deployment("two", "two:1"))
		read := func(options ...connect.ClientOption) (messages []*ctrlv1.DeploymentState) {
			transport := &http.Transport{Protocols: new(http.Protocols)}
			transport.Protocols.SetUnencryptedHTTP2(true)
			defer transport.CloseIdleConnections()
			client := ctrlv1connect.NewClusterServiceClient(
				&http.Client{
					Timeout:   time.Minute,
					Transport: headed{transport, []string{"Authorization", "Bearer " + w.tokens[eu], "X-Krane-Region", "eu-1"}},
				},
				w.url,
				options...)
			stream, err := client.WatchDeployments(w.t.Context(), connect.NewRequest(&ctrlv1.WatchDeploymentsRequest{Markers: true}))
			require.NoError(w.t, err)
			defer stream.Close()
			for stream.Receive() {
				messages = append(messages, stream.Msg())
				if stream.Msg().GetSynced() != nil {
					return messages
				}
			}
			require.NoError(w.t, stream.Err())
			return nil
		}
		first := read()
		require.Len(w.t, first, 3)
		require.Equal(w.t, "one:1", first[0].GetApply().GetImage())
		require.Equal(w.t, "two", first[1].GetDelete().GetK8SName())
		for name, options := range map[string][]connect.ClientOption{
			"Connect": nil, "Connect as JSON": {connect.WithProtoJSON()}, "gRPC": {connect.WithGRPC()}, "gRPC-Web": {connect.WithGRPCWeb()},
		} {
			got := read(options...)
			require.Len(w.t, got, 3, name)
			for i := range first {
				require.True(w.t, proto.Equal(first[i], got[i]), "%s: %v, not %v", name, got[i], first[i])
			}
		}
		// What changes is marshalled again. A list may be a moment behind.
		w.put("d_1", "running", deployment("one", "one:2"))
		await.Eventually(w.t, `read()[1].GetApply().GetImage() == "one:2"`, func() bool { return read()[1].GetApply().GetImage() == "one:2" })
	})
}

// TestOnlyWhatIsNewestIsKeptMarshalled lets many streams render the same changes
// at once.
func TestOnlyWhatIsNewestIsKeptMarshalled(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		const streams, changes = 16, 30
		w.put("d_1", "running", deployment("one", "one:0"))
		w.put("d_2", "running", deployment("two", "two:0"))
		last := fmt.Sprint("one:", changes)
		var reading sync.WaitGroup
		for range streams {
			reading.Go(func() {
				err := w.watch(
					&ctrlv1.WatchDeploymentsRequest{Markers: true},
					func(m *ctrlv1.DeploymentState) bool { return m.GetApply().GetImage() == last },
				)
				if err != nil {
					w.t.Error(err)
				}
			})
		}
		for n := range changes {
			w.put("d_1", "running", deployment("one", fmt.Sprint("one:", n+1)))
		}
		reading.Wait()
		require.Equal(w.t, 2, regions.Marshalled(w.service))
	})
}
