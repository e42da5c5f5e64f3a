package ctrlv1_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
)

// contract is all of ctrl.v1, written down by hand from what agents and control
// planes agreed on, never from the code. A line of it changes only with that.
const contract = `
service ClusterService
  Heartbeat(HeartbeatRequest) HeartbeatResponse
  GetDesiredCiliumNetworkPolicyState(GetDesiredCiliumNetworkPolicyStateRequest) CiliumNetworkPolicyState
  GetDesiredDeploymentState(GetDesiredDeploymentStateRequest) DeploymentState
  GetDesiredSentinelState(GetDesiredSentinelStateRequest) SentinelState
  ReportDeploymentStatus(ReportDeploymentStatusRequest) ReportDeploymentStatusResponse
  ReportSentinelStatus(ReportSentinelStatusRequest) ReportSentinelStatusResponse
  WatchCiliumNetworkPolicies(WatchCiliumNetworkPoliciesRequest) stream CiliumNetworkPolicyState
  WatchDeployments(WatchDeploymentsRequest) stream DeploymentState
  WatchSentinels(WatchSentinelsRequest) stream SentinelState

message ApplyCiliumNetworkPolicy
  1 k8s_namespace string
  2 k8s_name string
  3 cilium_network_policy_id string
  4 policy bytes

message ApplyDeployment
  1 k8s_namespace string
  2 k8s_name string
  3 workspace_id string
  4 project_id string
  5 environment_id string
  6 deployment_id string
  7 image string
  8 reserved
  9 cpu_millicores int64
  10 memory_mib int64
  11 build_id optional string
  12 encrypted_environment_variables bytes
  13 command repeated string
  14 port int32
  15 shutdown_signal string
  16 reserved
  17 healthcheck bytes
  18 app_id string
  19 reserved
  20 reserved
  21 environment_slug string
  22 region string
  23 git_commit_sha string
  24 git_branch string
  25 git_repo string
  26 git_commit_message string
  27 autoscaling Autoscaling
  28 reserved
  29 ephemeral_storage EphemeralStorage
  30 pod_security string

message ApplySentinel
  1 k8s_namespace string
  2 k8s_name string
  3 workspace_id string
  4 project_id string
  5 app_id string
  6 environment_id string
  7 sentinel_id string
  8 image string
  9 replicas int32
  10 cpu_millicores int64
  11 memory_mib int64

message Autoscaling
  1 min_replicas uint32
  2 max_replicas uint32
  3 cpu_threshold optional uint32
  4 memory_threshold optional uint32

message Bookmark
  1 epoch string
  2 version uint64
  3 head uint64
  4 mark string

message CiliumNetworkPolicyState
  1 apply oneof state ApplyCiliumNetworkPolicy
  2 delete oneof state DeleteCiliumNetworkPolicy
  3 version uint64
  10 synced oneof state Synced
  11 bookmark oneof state Bookmark

message DeleteCiliumNetworkPolicy
  1 k8s_namespace string
  2 k8s_name string

message DeleteDeployment
  1 k8s_namespace string
  2 k8s_name string

message DeleteSentinel
  1 k8s_namespace string
  2 k8s_name string

message DeploymentState
  1 apply oneof state ApplyDeployment
  2 delete oneof state DeleteDeployment
  3 version uint64
  10 synced oneof state Synced
  11 bookmark oneof state Bookmark

message EphemeralStorage
  1 size_mib uint32

message ErrorDetail
  1 reason string

message GetDesiredCiliumNetworkPolicyStateRequest
  1 cilium_network_policy_id string

message GetDesiredDeploymentStateRequest
  1 deployment_id string

message GetDesiredSentinelStateRequest
  1 sentinel_id string

enum Health
  0 HEALTH_UNSPECIFIED
  1 HEALTH_HEALTHY
  2 HEALTH_UNHEALTHY
  3 HEALTH_PAUSED

message HeartbeatRequest
  1 region string
  2 platform string
  10 agent_epoch uint64
  11 sequence uint64
  12 observed_version uint64
  13 epoch string
  14 mark string
  15 claim bool
  16 yield bool
  17 held_deletions HeldDeletions
  18 problems repeated Problem

message Problem
  1 resource string
  2 message string

message HeartbeatResponse
  10 agent_epoch uint64
  11 approved_deletions string

message HeldDeletions
  1 digest string
  2 count int32
  3 units repeated HeldUnit

message HeldUnit
  1 unit string
  2 objects int32
  3 reason string

message ReportDeploymentStatusRequest
  1 update oneof change ReportDeploymentStatusRequest.Update
  2 delete oneof change ReportDeploymentStatusRequest.Delete
  10 agent_epoch uint64
  11 sequence uint64
  12 observed_version uint64

message ReportDeploymentStatusRequest.Delete
  1 k8s_name string

message ReportDeploymentStatusRequest.Update
  1 k8s_name string
  2 instances repeated ReportDeploymentStatusRequest.Update.Instance

message ReportDeploymentStatusRequest.Update.Instance
  1 k8s_name string
  2 address string
  3 cpu_millicores int64
  4 memory_mib int64
  5 status ReportDeploymentStatusRequest.Update.Instance.Status
  10 reason string
  11 restarts int32

enum ReportDeploymentStatusRequest.Update.Instance.Status
  0 STATUS_UNSPECIFIED
  1 STATUS_PENDING
  2 STATUS_RUNNING
  3 STATUS_FAILED

message ReportDeploymentStatusResponse

message ReportSentinelStatusRequest
  1 k8s_name string
  2 available_replicas int32
  3 health Health
  10 agent_epoch uint64
  11 sequence uint64
  12 observed_version uint64

message ReportSentinelStatusResponse

message SentinelState
  1 apply oneof state ApplySentinel
  2 delete oneof state DeleteSentinel
  3 version uint64
  10 synced oneof state Synced
  11 bookmark oneof state Bookmark

message Synced
  1 epoch string
  2 version uint64
  3 count uint64
  4 digest bytes
  5 mark string

message WatchCiliumNetworkPoliciesRequest
  1 region string
  2 version_last_seen uint64
  10 epoch string
  11 markers bool
  12 mark string

message WatchDeploymentsRequest
  1 region string
  2 version_last_seen uint64
  10 epoch string
  11 markers bool
  12 mark string

message WatchSentinelsRequest
  1 region string
  2 version_last_seen uint64
  10 epoch string
  11 markers bool
  12 mark string
`

func TestEveryNumberNameAndTypeIsAsAgreed(t *testing.T) {
	t.Parallel()
	got := map[string][]string{}
	protoregistry.GlobalFiles.RangeFilesByPackage(ctrlv1.File_ctrl_v1_cluster_proto.Package(), func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			describeService(got, file.Services().Get(i))
		}
		describeTypes(got, file)
		return true
	})
	want := map[string][]string{}
	for block := range strings.SplitSeq(strings.TrimSpace(contract), "\n\n") {
		lines := strings.Split(block, "\n")
		want[lines[0]] = lines[1:]
	}
	for _, lines := range got {
		slices.Sort(lines)
	}
	for _, lines := range want {
		slices.Sort(lines)
	}
	require.Empty(t, cmp.Diff(want, got, cmp.Transformer("empty", func(lines []string) string { return strings.Join(lines, "\n") })))
}

func describeService(to map[string][]string, service protoreflect.ServiceDescriptor) {
	key := "service " + local(service)
	for i := range service.Methods().Len() {
		m := service.Methods().Get(i)
		stream := ""
		if m.IsStreamingServer() {
			stream = "stream "
		}
		if m.IsStreamingClient() {
			stream += "client stream "
		}
		to[key] = append(to[key], fmt.Sprintf("  %s(%s) %s%s", m.Name(), local(m.Input()), stream, local(m.Output())))
	}
}

// describeTypes describes the messages and enums of a file or message.
func describeTypes(to map[string][]string, in interface {
	Messages() protoreflect.MessageDescriptors
	Enums() protoreflect.EnumDescriptors
},
) {
	for i := range in.Enums().Len() {
		enum := in.Enums().Get(i)
		for j := range enum.Values().Len() {
			v := enum.Values().Get(j)
			to["enum "+local(enum)] = append(to["enum "+local(enum)], fmt.Sprintf("  %d %s", v.Number(), v.Name()))
		}
	}
	for i := range in.Messages().Len() {
		message := in.Messages().Get(i)
		var lines []string
		for j := range message.Fields().Len() {
			lines = append(lines, describeField(message.Fields().Get(j)))
		}
		for j := range message.ReservedRanges().Len() {
			for n := message.ReservedRanges().Get(j)[0]; n < message.ReservedRanges().Get(j)[1]; n++ {
				lines = append(lines, fmt.Sprintf("  %d reserved", n))
			}
		}
		to["message "+local(message)] = lines
		describeTypes(to, message)
	}
}

func describeField(f protoreflect.FieldDescriptor) string {
	kind := f.Kind().String()
	switch f.Kind() {
	case protoreflect.MessageKind:
		kind = local(f.Message())
	case protoreflect.EnumKind:
		kind = local(f.Enum())
	default:
	}
	switch {
	case f.HasOptionalKeyword():
		kind = "optional " + kind
	case f.IsList():
		kind = "repeated " + kind
	case f.ContainingOneof() != nil:
		kind = "oneof " + string(f.ContainingOneof().Name()) + " " + kind
	}
	return fmt.Sprintf("  %d %s %s", f.Number(), f.Name(), kind)
}

func local(d protoreflect.Descriptor) string {
	return strings.TrimPrefix(string(d.FullName()), "ctrl.v1.")
}
