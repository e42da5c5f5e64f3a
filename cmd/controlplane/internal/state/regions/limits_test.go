package regions_test

import (
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
)

func TestARegionOpensSoManyStreamsAndOthersGoOn(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		open := func(client ctrlv1connect.ClusterServiceClient) error {
			stream, err := client.WatchDeployments(w.t.Context(), connect.NewRequest(&ctrlv1.WatchDeploymentsRequest{Markers: true}))
			require.NoError(w.t, err)
			if stream.Receive() {
				w.t.Cleanup(func() { _ = stream.Close() })
				return nil
			}
			return stream.Err()
		}
		agent := w.agent()
		for range 32 {
			require.NoError(w.t, open(agent))
		}
		err := open(agent)
		require.Equal(w.t, connect.CodeResourceExhausted, connect.CodeOf(err), "%v", err)
		require.NoError(w.t, open(w.client("Bearer "+w.tokens[us], "us-1")))
		_, err = agent.Heartbeat(w.t.Context(), connect.NewRequest(&ctrlv1.HeartbeatRequest{}))
		require.NoError(w.t, err, "streams are no requests")
	})
}

func TestAReportOfTooManyInstancesIsRefusedBeforeItIsDecoded(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.put("d_1", "running", deployment("one", "one:1"))
		send := func(contentType, body string) (int, string) {
			r, err := http.NewRequestWithContext(
				w.t.Context(),
				http.MethodPost,
				w.url+"/ctrl.v1.ClusterService/ReportDeploymentStatus",
				strings.NewReader(body),
			)
			require.NoError(w.t, err)
			for name, value := range map[string]string{"Authorization": "Bearer " + w.tokens[eu], "X-Krane-Region": "eu-1", "Content-Type": contentType} {
				r.Header.Set(name, value)
			}
			response, err := http.DefaultClient.Do(r)
			require.NoError(w.t, err)
			defer response.Body.Close()
			answer := make([]byte, 1000)
			n, _ := response.Body.Read(answer)
			return response.StatusCode, string(answer[:n])
		}
		objects := func(n int) string {
			return `{"update":{"k8s_name":"one","instances":[{}` + strings.Repeat(",{}", n-1) + `]}}`
		}
		// Field 1 of the report, and in it so many of field 2, all empty.
		many := strings.Repeat("\x12\x00", 20_000)
		size := string([]byte{byte(len(many)&0x7f | 0x80), byte(len(many)>>7&0x7f | 0x80), byte(len(many) >> 14)})
		for contentType, body := range map[string]string{
			"application/json":                objects(20_000),
			"application/json; charset=utf-8": objects(20_000),
			"application/proto":               "\x0a" + size + many,
		} {
			status, answer := send(contentType, body)
			require.Equal(w.t, http.StatusBadRequest, status, "%s %s", contentType, answer)
			require.Contains(w.t, answer, "instances: are more than 10000", contentType)
		}
		status, answer := send("application/json", objects(2))
		require.Equal(w.t, http.StatusBadRequest, status)
		require.Contains(w.t, answer, "instances.k8s_name", "it was decoded")
	})
}
