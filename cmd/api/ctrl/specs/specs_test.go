package specs_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/specs"
	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
)

const ids = `"workspace_id":"w","project_id":"p","app_id":"a","environment_id":"e"`

func deployment(t *testing.T) *ctrlv1.ApplyDeployment {
	t.Helper()
	m := &ctrlv1.ApplyDeployment{}
	require.NoError(
		t,
		protojson.Unmarshal(
			[]byte(
				`{"k8s_namespace":"ws","k8s_name":"web","deployment_id":"d_1","image":"web:1","cpu_millicores":"250","memory_mib":"256","port":8080,`+ids+`}`,
			),
			m,
		),
	)
	return m
}

// TestEachWrongFieldIsNamedAlone breaks one field of a deployment at a time.
func TestEachWrongFieldIsNamedAlone(t *testing.T) {
	var none specs.Errors
	require.Nil(t, none.Deployment(deployment(t)))
	require.NoError(t, none.Err())
	for field, breaks := range map[string]func(*ctrlv1.ApplyDeployment){
		"k8s_namespace":              func(d *ctrlv1.ApplyDeployment) { d.K8SNamespace = "kube-system" },
		"k8s_name":                   func(d *ctrlv1.ApplyDeployment) { d.K8SName = "a.b" },
		"workspace_id":               func(d *ctrlv1.ApplyDeployment) { d.WorkspaceId = "" },
		"project_id":                 func(d *ctrlv1.ApplyDeployment) { d.ProjectId = "" },
		"app_id":                     func(d *ctrlv1.ApplyDeployment) { d.AppId = "" },
		"environment_id":             func(d *ctrlv1.ApplyDeployment) { d.EnvironmentId = "a b" },
		"deployment_id":              func(d *ctrlv1.ApplyDeployment) { d.DeploymentId = "" },
		"build_id":                   func(d *ctrlv1.ApplyDeployment) { d.BuildId = new("") },
		"image":                      func(d *ctrlv1.ApplyDeployment) { d.Image = strings.Repeat("x", 1025) },
		"cpu_millicores":             func(d *ctrlv1.ApplyDeployment) { d.CpuMillicores = 0 },
		"memory_mib":                 func(d *ctrlv1.ApplyDeployment) { d.MemoryMib = 1 << 31 },
		"port":                       func(d *ctrlv1.ApplyDeployment) { d.Port = 0 },
		"shutdown_signal":            func(d *ctrlv1.ApplyDeployment) { d.ShutdownSignal = "SIGHUP" },
		"command[0]":                 func(d *ctrlv1.ApplyDeployment) { d.Command = []string{"\x00"} },
		"ephemeral_storage.size_mib": func(d *ctrlv1.ApplyDeployment) { d.EphemeralStorage = &ctrlv1.EphemeralStorage{SizeMib: 1 << 31} },
		"autoscaling.max_replicas":   func(d *ctrlv1.ApplyDeployment) { d.Autoscaling = &ctrlv1.Autoscaling{MinReplicas: 2, MaxReplicas: 1} },
		"healthcheck":                func(d *ctrlv1.ApplyDeployment) { d.Healthcheck = []byte("x") },
		"healthcheck.method":         func(d *ctrlv1.ApplyDeployment) { d.Healthcheck = []byte(`{"method":"PUT"}`) },
		"healthcheck.path":           func(d *ctrlv1.ApplyDeployment) { d.Healthcheck = []byte(`{"path":"x"}`) },
		"healthcheck.timeoutSeconds": func(d *ctrlv1.ApplyDeployment) { d.Healthcheck = []byte(`{"timeoutSeconds":0}`) },
		"autoscaling.memory_threshold": func(d *ctrlv1.ApplyDeployment) {
			d.Autoscaling = &ctrlv1.Autoscaling{MinReplicas: 1, MaxReplicas: 1, MemoryThreshold: new(uint32(0))}
		},
	} {
		d := deployment(t)
		breaks(d)
		var found specs.Errors
		found.Deployment(d)
		require.Len(t, found, 1, "%s: %v", field, found.Err())
		require.Equal(t, field, found[0].Field)
		require.LessOrEqual(t, len(found[0].Value), 80)
		require.EqualError(t, found.Err(), fmt.Sprintf("%s is %q: want %s", field, found[0].Value, found[0].Want))
	}
}

func TestASentinelAndAPolicyAreChecked(t *testing.T) {
	fields := func(e specs.Errors) (names []string) {
		for _, f := range e {
			names = append(names, f.Field)
		}
		return names
	}
	var sentinel, policy specs.Errors
	sentinel.Sentinel(&ctrlv1.ApplySentinel{K8SName: "1st", Replicas: -1})
	require.Equal(
		t,
		[]string{
			"k8s_namespace",
			"workspace_id",
			"project_id",
			"app_id",
			"environment_id",
			"sentinel_id",
			"image",
			"cpu_millicores",
			"memory_mib",
			"k8s_name",
			"replicas",
		},
		fields(sentinel),
	)
	policy.Policy(
		&ctrlv1.ApplyCiliumNetworkPolicy{K8SNamespace: "ws", K8SName: "p", CiliumNetworkPolicyId: "p_1", Policy: []byte(`{"kind":"Secret"}`)},
	)
	require.Equal(t, []string{"policy", "policy"}, fields(policy))
	policy = nil
	object := policy.Policy(&ctrlv1.ApplyCiliumNetworkPolicy{
		K8SNamespace:          "ws",
		K8SName:               "p",
		CiliumNetworkPolicyId: "p_1",
		Policy:                []byte(`{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","spec":{}}`),
	})
	require.NoError(t, policy.Err())
	require.Equal(t, specs.PolicyKind, object.GetKind())
}
