package main_test

import (
	"bytes"
	"context"
	bigendian "encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
)

// older returns the document without the members, and newer with one more in each object.
func older(document any, less []string) any {
	return each(document, func(object map[string]any) {
		for _, name := range less {
			delete(object, name)
		}
	})
}

func newer(document any) any {
	return each(document, func(object map[string]any) {
		object["of_a_later_version"] = map[string]any{"a": []any{1, nil, "b"}}
	})
}

// each returns a copy of the document in which do has changed each object.
func each(document any, do func(map[string]any)) any {
	switch value := document.(type) {
	case map[string]any:
		copied := map[string]any{}
		for name, member := range value {
			copied[name] = each(member, do)
		}
		do(copied)
		return copied
	case []any:
		copied := make([]any, len(value))
		for n, member := range value {
			copied[n] = each(member, do)
		}
		return copied
	}
	return document
}

// object returns what a value is as JSON, with plain maps and lists.
func object(t *testing.T, value any) (document any) {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &document))
	return document
}

func text(t *testing.T, document any) string {
	t.Helper()
	out, err := json.Marshal(document)
	require.NoError(t, err)
	return string(out)
}

// withAgents is a control plane with a cluster and a region.
func withAgents(t *testing.T) (base, clusterToken, regionToken string) {
	t.Helper()
	p := serveProcess(t, binary(t), "--listen", "127.0.0.1:0", "--metrics-bind-address", "127.0.0.1:0",
		"--database", filepath.Join(t.TempDir(), "db"), "--admin-token-file", writeFile(t, adminToken))
	base = "http://" + p.address
	put := func(path, body string) string {
		t.Helper()
		status, answer := request(t, http.DefaultClient, http.MethodPut, base+"/api/v1/admin/"+path, adminToken, body)
		require.Less(t, status, 300, answer)
		var created struct{ Token string }
		require.NoError(t, json.Unmarshal([]byte(answer), &created))
		return created.Token
	}
	clusterToken = put("clusters/"+clusterID, `{"region":"nyc3"}`)
	put("projects/"+project, `{"cluster_id":"`+clusterID+`","workspace_id":"`+workspace+`","workspace_slug":"acme","slug":"shop"}`)
	put("projects/"+project+"/services/"+service+"/production", `{"service_name":"web","image":"web:1","replicas":1,"tier":"nova"}`)
	regionToken = put("regions/reg_eu", `{"name":"eu-1","platform":"aws"}`)
	put("regions/reg_eu/deployments/d_1", `{"desired_state":"running","spec":{"k8s_namespace":"ws","k8s_name":"d-1","workspace_id":"ws_1",`+
		`"project_id":"prj_1","app_id":"app_1","environment_id":"env_1","image":"web:1","cpu_millicores":"250","memory_mib":"256","port":8080}}`)
	put("regions/reg_eu/sentinels/s_1", `{"desired_state":"running","spec":{"k8s_namespace":"ws","k8s_name":"s-1","workspace_id":"ws_1",`+
		`"project_id":"prj_1","app_id":"app_1","environment_id":"env_1","image":"gate:1","cpu_millicores":"250","memory_mib":"256"}}`)
	put("regions/reg_eu/policies/p_1", `{"desired_state":"running","spec":{"k8s_namespace":"ws","k8s_name":"p-1",`+
		`"policy":"eyJhcGlWZXJzaW9uIjoiY2lsaXVtLmlvL3YyIiwia2luZCI6IkNpbGl1bU5ldHdvcmtQb2xpY3kiLCJzcGVjIjp7fX0="}}`)
	return base, clusterToken, regionToken
}

const (
	project   = "bbbbbbbb-0000-4000-8000-000000000001"
	workspace = "cccccccc-0000-4000-8000-000000000001"
	service   = "dddddddd-0000-4000-8000-000000000001"
)

// TestAnAgentOfAClusterMayBeOlderOrNewer sends each report with a member more in each of its
// objects, and without those that were added since the first version: it is stored either way.
func TestAnAgentOfAClusterMayBeOlderOrNewer(t *testing.T) {
	t.Parallel()
	base, token, _ := withAgents(t)
	url := base + "/api/v1/clusters/" + clusterID + "/"
	status, body := request(t, http.DefaultClient, http.MethodGet, url+"desired-state?of_a_later_version=1", token, "")
	require.Equal(t, http.StatusOK, status, body)
	var state starbase.DesiredState
	require.NoError(t, json.Unmarshal([]byte(body), &state))
	pods, n := int64(3), 0
	now := func() time.Time { return time.Now().UTC().Truncate(time.Second) }
	for _, version := range []string{"now", "older", "newer"} {
		send := func(path string, value any, less ...string) string {
			t.Helper()
			document := object(t, value)
			switch version {
			case "older":
				document = older(document, less)
			case "newer":
				document = newer(document)
			}
			status, answer := request(t, http.DefaultClient, http.MethodPost, url+path, token, text(t, document))
			require.Less(t, status, 300, "%s %s: %s", version, path, answer)
			return answer
		}
		n++
		send("status", starbase.StatusReport{
			Epoch: state.Epoch, Generation: state.Generation, InstanceID: "one", Complete: true,
			Services: starbase.Statuses{{
				ProjectID: project, Environment: "production", ServiceID: service, ObservedGeneration: state.Generation,
				Phase: starbase.PhaseFailed, Ready: n, Desired: 5, ErrorClass: "Quota", Message: "too many", ImageDigest: "sha256:1",
			}},
			LeftProjects: []string{}, HeldDeletions: &starbase.HeldDeletions{Digest: "d", Count: 1, Units: []starbase.HeldUnit{}},
			ClusterErrorClass: starbase.ClassGatewayMissing, ClusterMessage: "none",
		}, "complete", "left_projects", "held_deletions", "cluster_error_class", "cluster_message", "image_digest", "error_class", "message")
		status, answer := request(t, http.DefaultClient, http.MethodGet, base+"/api/v1/admin/clusters/"+clusterID, adminToken, "")
		require.Equal(t, http.StatusOK, status, answer)
		require.Contains(t, answer, fmt.Sprintf(`"ready":%d`, n), version)

		send(
			"capacity",
			starbase.CapacityReport{ClusterID: clusterID, CurrentPodCount: &pods, SoftLimit: &pods, Timestamp: now().Format(time.RFC3339)},
		)

		record := starbase.Snapshot{
			WorkspaceID: workspace, ProjectID: project, Environment: "production", ServiceID: service, PodID: fmt.Sprint("pod-", n), Tier: "nova",
			Phase: "Running", ClusterID: clusterID, SnapshotTimestamp: now().Format(time.RFC3339), CPUMillis: 250, MemoryBytes: 1 << 20,
		}
		record.SnapshotID = record.ID()
		answer = send("snapshots", map[string]any{"snapshots": []starbase.Snapshot{record}})
		require.JSONEq(t, `{"accepted":1,"duplicates":0,"rejected":[]}`, answer, version)
	}
}

// requests are a right one for each RPC of agents.
func requests(n uint64) map[string]proto.Message {
	return map[string]proto.Message{
		"WatchDeployments":                   &ctrlv1.WatchDeploymentsRequest{Markers: true},
		"WatchSentinels":                     &ctrlv1.WatchSentinelsRequest{Markers: true},
		"WatchCiliumNetworkPolicies":         &ctrlv1.WatchCiliumNetworkPoliciesRequest{Markers: true},
		"GetDesiredDeploymentState":          &ctrlv1.GetDesiredDeploymentStateRequest{DeploymentId: "d_1"},
		"GetDesiredSentinelState":            &ctrlv1.GetDesiredSentinelStateRequest{SentinelId: "s_1"},
		"GetDesiredCiliumNetworkPolicyState": &ctrlv1.GetDesiredCiliumNetworkPolicyStateRequest{CiliumNetworkPolicyId: "p_1"},
		"ReportDeploymentStatus": &ctrlv1.ReportDeploymentStatusRequest{Sequence: n, Change: &ctrlv1.ReportDeploymentStatusRequest_Update_{
			Update: &ctrlv1.ReportDeploymentStatusRequest_Update{
				K8SName: "d-1", Instances: []*ctrlv1.ReportDeploymentStatusRequest_Update_Instance{{
					K8SName: fmt.Sprint("pod-", n), Address: "10.0.0.1:8080", CpuMillicores: 250, MemoryMib: 256,
					Status: ctrlv1.ReportDeploymentStatusRequest_Update_Instance_STATUS_RUNNING, Restarts: 1,
				}},
			},
		}},
		"ReportSentinelStatus": &ctrlv1.ReportSentinelStatusRequest{
			K8SName:           "s-1",
			AvailableReplicas: int32(n),
			Health:            ctrlv1.Health_HEALTH_HEALTHY,
		},
		"Heartbeat": &ctrlv1.HeartbeatRequest{Region: "eu-1", Platform: "aws"},
	}
}

// visit calls do with the message and each message in it.
func visit(m protoreflect.Message, do func(protoreflect.Message)) {
	do(m)
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Message() == nil:
		case field.IsList():
			for n := range value.List().Len() {
				visit(value.List().Get(n).Message(), do)
			}
		default:
			visit(value.Message(), do)
		}
		return true
	})
}

// TestAnAgentOfARegionMayBeOlderOrNewer calls each RPC of the service, in JSON and in protobuf,
// with a field more in each message, and without the fields that extend the first version,
// whose numbers begin at 10.
func TestAnAgentOfARegionMayBeOlderOrNewer(t *testing.T) {
	t.Parallel()
	base, _, token := withAgents(t)
	methods := ctrlv1.File_ctrl_v1_cluster_proto.Services().ByName("ClusterService").Methods()
	var n uint64
	for _, version := range []string{"now", "older", "newer"} {
		for _, encoding := range []string{"json", "proto"} {
			n++
			for i := range methods.Len() {
				method := methods.Get(i)
				message, ok := requests(n)[string(method.Name())]
				require.True(t, ok, "an RPC without a case: %s", method.Name())
				visit(message.ProtoReflect(), func(m protoreflect.Message) {
					switch fields := m.Descriptor().Fields(); version {
					case "older":
						for f := range fields.Len() {
							if fields.Get(f).Number() >= 10 {
								m.Clear(fields.Get(f))
							}
						}
					case "newer":
						m.SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 1000, protowire.BytesType), "of a later version"))
					}
				})
				body, err := proto.Marshal(message)
				require.NoError(t, err)
				if encoding == "json" {
					known, err := protojson.Marshal(message)
					require.NoError(t, err)
					var document any
					require.NoError(t, json.Unmarshal(known, &document))
					if version == "newer" {
						document = newer(document)
					}
					body = []byte(text(t, document))
				}
				kind := "application/" + encoding
				if method.IsStreamingServer() {
					kind = "application/connect+" + encoding
					body = append(bigendian.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...) //nolint:gosec // small
				}
				what := fmt.Sprintf("%s, %s, %s", method.Name(), version, encoding)
				status, first := rpc(t, base, string(method.Name()), token, kind, body)
				require.Equal(t, http.StatusOK, status, "%s: %q", what, first)
				if method.IsStreamingServer() {
					require.Zero(t, first[0], "%s: a message, not the end of the stream: %q", what, first)
				}
			}
			status, answer := request(t, http.DefaultClient, http.MethodGet, base+"/api/v1/admin/regions/reg_eu", adminToken, "")
			require.Equal(t, http.StatusOK, status, answer)
			require.Contains(t, answer, fmt.Sprintf(`"pod-%d"`, n), "%s, %s", version, encoding)
		}
	}
}

// rpc returns the status and the beginning of the answer.
func rpc(t *testing.T, base, method, token, contentType string, body []byte) (status int, first []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/ctrl.v1.ClusterService/"+method, bytes.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("X-Krane-Region", "eu-1")
	r.Header.Set("Content-Type", contentType)
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	first = make([]byte, 1024)
	read, err := response.Body.Read(first)
	if !errors.Is(err, io.EOF) {
		require.NoError(t, err)
	}
	return response.StatusCode, first[:read]
}
