package regions_test

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/regions"
)

const service = "/ctrl.v1.ClusterService/"

// send posts a body as it is.
func (w *world) send(method, path, contentType string, body []byte, headers ...string) (status int, answer string) {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, strings.NewReader(string(body)))
	require.NoError(w.t, err)
	for n := 0; n < len(headers); n += 2 {
		request.Header.Set(headers[n], headers[n+1])
	}
	request.Header.Set("Authorization", "Bearer "+w.tokens[eu])
	request.Header.Set("X-Krane-Region", "eu-1")
	request.Header.Set("Content-Type", contentType)
	response, err := http.DefaultClient.Do(request)
	require.NoError(w.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(w.t, err)
	return response.StatusCode, string(text)
}

func TestWhatIsNoRequestIsToldWhy(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		for _, c := range []struct {
			name, method, path, contentType, body string
			status                                int
			says                                  string
		}{
			{"JSON that ends early", http.MethodPost, "Heartbeat", "application/json", `{"region":`, http.StatusBadRequest, `"invalid_argument"`},
			{"a JSON value of another type", http.MethodPost, "Heartbeat", "application/json", `{"sequence":"many"}`, http.StatusBadRequest, `"invalid_argument"`},
			{"a negative version", http.MethodPost, "Heartbeat", "application/json", `{"observedVersion":-1}`, http.StatusBadRequest, `"invalid_argument"`},
			{"no protobuf", http.MethodPost, "Heartbeat", "application/proto", "\x0a\xff", http.StatusBadRequest, `"invalid_argument"`},
			{"a body of 5 MiB", http.MethodPost, "Heartbeat", "application/json", `{"region":"` + strings.Repeat("x", 5<<20) + `"}`, http.StatusTooManyRequests, `"resource_exhausted"`},
			{"another content type", http.MethodPost, "Heartbeat", "text/plain", "{}", http.StatusUnsupportedMediaType, ""},
			{"another method", http.MethodDelete, "Heartbeat", "application/json", "{}", http.StatusMethodNotAllowed, ""},
			{"no such RPC", http.MethodPost, "Reboot", "application/json", "{}", http.StatusNotFound, ""},
			{"an unknown compression", http.MethodPost, "Heartbeat", "application/json", "{}", http.StatusNotImplemented, `"unimplemented"`},
		} {
			var headers []string
			if strings.Contains(c.name, "compression") {
				headers = []string{"Content-Encoding", "lzma"}
			}
			status, answer := w.send(c.method, service+c.path, c.contentType, []byte(c.body), headers...)
			require.Equal(w.t, c.status, status, "%s: %s", c.name, answer)
			require.Contains(w.t, answer, c.says, c.name)
		}
		status, answer := w.send(http.MethodPost, service+"Heartbeat", "application/json", []byte(`{"ofAnotherVersion":1}`))
		require.Equal(w.t, http.StatusOK, status, "newer agents may say more: "+answer)
	})
}

// envelope is a message of a stream; its stated length may be wrong.
func envelope(says int, message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(says)), message...) //nolint:gosec // small
}

func TestAStreamThatIsAskedForWronglyEndsWithTheReason(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		good, err := proto.Marshal(&ctrlv1.WatchDeploymentsRequest{Markers: true, VersionLastSeen: 1})
		require.NoError(w.t, err)
		for name, c := range map[string]struct{ contentType, body, code string }{
			"cut":                     {"application/connect+proto", string(envelope(len(good)+9, good)), "internal"},
			"no protobuf":             {"application/connect+proto", string(envelope(2, []byte("\x0a\xff"))), "invalid_argument"},
			"5 MiB":                   {"application/connect+proto", string(envelope(5<<20, good)), "resource_exhausted"},
			"empty":                   {"application/connect+proto", "", "unimplemented"},
			"two messages":            {"application/connect+proto", string(append(envelope(len(good), good), envelope(len(good), good)...)), "unimplemented"},
			"no JSON":                 {"application/connect+json", string(envelope(4, []byte("oops"))), "invalid_argument"},
			"a cursor without epoch":  {"application/connect+proto", string(envelope(len(good), good)), "invalid_argument"},
			"a negative version":      {"application/connect+json", string(envelope(23, []byte(`{"versionLastSeen":"-1"}`)[:23])), "invalid_argument"},
			"the region of another":   {"application/connect+json", string(envelope(17, []byte(`{"region":"us-1"}`))), "invalid_argument"},
			"a cursor of the future ": {"application/connect+json", string(envelope(24, []byte(`{"versionLastSeen":"99"}`))), "failed_precondition"},
		} {
			_, answer := w.send(http.MethodPost, service+"WatchDeployments", c.contentType, []byte(c.body))
			require.NotEmpty(w.t, answer, name)
			var end struct {
				Error struct{ Code, Message string }
			}
			require.Equal(w.t, byte(2), answer[0], "%s: the end of a stream, not %q", name, answer)
			require.NoError(w.t, json.Unmarshal([]byte(answer[5:]), &end), name)
			assert.Equal(w.t, c.code, end.Error.Code, "%s: %s", name, end.Error.Message)
			require.NotEmpty(w.t, end.Error.Message, name)
		}
	})
}

func TestABadReportStoresNothing(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ctx := w.t.Context()
		w.put("d_1", "running", deployment("one", "one:1"))
		_, err := w.store.PutSentinel(
			ctx,
			eu,
			"s_1",
			regions.Wanted{
				State: "running",
				Spec: json.RawMessage(
					`{"k8s_namespace":"ws","k8s_name":"gate","workspace_id":"ws_1","project_id":"prj_1","app_id":"app_1","environment_id":"env_1","image":"g:1","cpu_millicores":"1","memory_mib":"1"}`,
				),
			},
		)
		require.NoError(w.t, err)
		type update = ctrlv1.ReportDeploymentStatusRequest_Update
		type instance = ctrlv1.ReportDeploymentStatusRequest_Update_Instance
		many := make([]*instance, 10_001)
		for i := range many {
			many[i] = &instance{K8SName: "one-a"}
		}
		for says, m := range map[string]*ctrlv1.ReportDeploymentStatusRequest{
			"change":              {},
			"k8s_name":            {Change: &ctrlv1.ReportDeploymentStatusRequest_Update_{Update: &update{Instances: []*instance{{K8SName: "one-a"}}}}},
			"instances.k8s_name":  {Change: &ctrlv1.ReportDeploymentStatusRequest_Update_{Update: &update{K8SName: "one", Instances: []*instance{{K8SName: "one-a"}, {}}}}},
			"instances.reason":    {Change: &ctrlv1.ReportDeploymentStatusRequest_Update_{Update: &update{K8SName: "one", Instances: []*instance{{K8SName: "one-a", Reason: strings.Repeat("x", 1025)}}}}},
			"instances.restarts":  {Change: &ctrlv1.ReportDeploymentStatusRequest_Update_{Update: &update{K8SName: "one", Instances: []*instance{{K8SName: "one-a", Restarts: -1}}}}},
			"instances: are more": {Change: &ctrlv1.ReportDeploymentStatusRequest_Update_{Update: &update{K8SName: "one", Instances: many}}},
		} {
			_, err := w.agent().ReportDeploymentStatus(ctx, connect.NewRequest(m))
			require.Equal(w.t, connect.CodeInvalidArgument, connect.CodeOf(err), says)
			require.ErrorContains(w.t, err, says)
		}
		for says, m := range map[string]*ctrlv1.ReportSentinelStatusRequest{
			"k8s_name":           {AvailableReplicas: 1, Health: ctrlv1.Health_HEALTH_HEALTHY},
			"available_replicas": {K8SName: "gate", AvailableReplicas: -1, Health: ctrlv1.Health_HEALTH_HEALTHY},
		} {
			_, err := w.agent().ReportSentinelStatus(ctx, connect.NewRequest(m))
			require.Equal(w.t, connect.CodeInvalidArgument, connect.CodeOf(err), says)
			require.ErrorContains(w.t, err, says)
		}
		_, resources, err := w.store.Resources(ctx, eu)
		require.NoError(w.t, err)
		require.Len(w.t, resources, 2)
		for _, r := range resources {
			require.Empty(w.t, r.Instances)
			require.NotEqual(w.t, "healthy", r.Health)
		}
	})
}
