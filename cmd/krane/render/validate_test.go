package render_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
)

func TestAnInvalidDeploymentIsRefusedWithEachFieldNamed(t *testing.T) {
	t.Parallel()
	for want, broken := range map[string]func(*ctrlv1.ApplyDeployment){
		`k8s_namespace is "Shop": want at most 63`:                       func(d *ctrlv1.ApplyDeployment) { d.K8SNamespace = "Shop" },
		`k8s_namespace is "": want`:                                      func(d *ctrlv1.ApplyDeployment) { d.K8SNamespace = "" },
		`k8s_name is "a.b": want`:                                        func(d *ctrlv1.ApplyDeployment) { d.K8SName = "a.b" },
		`workspace_id is "": want 1 to 63`:                               func(d *ctrlv1.ApplyDeployment) { d.WorkspaceId = "" },
		`project_id is "a b": want`:                                      func(d *ctrlv1.ApplyDeployment) { d.ProjectId = "a b" },
		`app_id is "": want`:                                             func(d *ctrlv1.ApplyDeployment) { d.AppId = "" },
		`environment_id is "_": want`:                                    func(d *ctrlv1.ApplyDeployment) { d.EnvironmentId = "_" },
		`deployment_id is "": want`:                                      func(d *ctrlv1.ApplyDeployment) { d.DeploymentId = "" },
		`deployment_id is "a..b": want an id from which`:                 func(d *ctrlv1.ApplyDeployment) { d.DeploymentId = "a..b" },
		`build_id is "": want`:                                           func(d *ctrlv1.ApplyDeployment) { d.BuildId = new("") },
		`image is "": want`:                                              func(d *ctrlv1.ApplyDeployment) { d.Image = "" },
		`image is "two words": want`:                                     func(d *ctrlv1.ApplyDeployment) { d.Image = "two words" },
		`cpu_millicores is "0": want 1 to 2147483647`:                    func(d *ctrlv1.ApplyDeployment) { d.CpuMillicores = 0 },
		`memory_mib is "-1": want 1 to 2147483647`:                       func(d *ctrlv1.ApplyDeployment) { d.MemoryMib = -1 },
		`memory_mib is "9223372036854775807": want`:                      func(d *ctrlv1.ApplyDeployment) { d.MemoryMib = 1<<63 - 1 },
		`port is "0": want 1 to 65535`:                                   func(d *ctrlv1.ApplyDeployment) { d.Port = 0 },
		`port is "65536": want`:                                          func(d *ctrlv1.ApplyDeployment) { d.Port = 65536 },
		`shutdown_signal is "SIGHUP": want SIGTERM`:                      func(d *ctrlv1.ApplyDeployment) { d.ShutdownSignal = "SIGHUP" },
		`region is "us": want this agent's, eu-central-1`:                func(d *ctrlv1.ApplyDeployment) { d.Region = "us" },
		`command[1] is "\x00": want`:                                     func(d *ctrlv1.ApplyDeployment) { d.Command[1] = "\x00" },
		`ephemeral_storage.size_mib is "4294967295": want`:               func(d *ctrlv1.ApplyDeployment) { d.EphemeralStorage.SizeMib = 1<<32 - 1 },
		`autoscaling.min_replicas is "0": want 1`:                        func(d *ctrlv1.ApplyDeployment) { d.Autoscaling.MinReplicas = 0 },
		`autoscaling.max_replicas is "1": want min_replicas, which is 2`: func(d *ctrlv1.ApplyDeployment) { d.Autoscaling.MaxReplicas = 1 },
		`autoscaling.cpu_threshold is "0": want`:                         func(d *ctrlv1.ApplyDeployment) { d.Autoscaling.CpuThreshold = proto.Uint32(0) },
		`autoscaling.memory_threshold is "201": want`:                    func(d *ctrlv1.ApplyDeployment) { d.Autoscaling.MemoryThreshold = proto.Uint32(201) },
		`healthcheck is `:                                                func(d *ctrlv1.ApplyDeployment) { d.Healthcheck = []byte("x") },
		`healthcheck.method is "PUT": want GET or POST`:                  func(d *ctrlv1.ApplyDeployment) { d.Healthcheck = []byte(`{"method":"PUT"}`) },
		`healthcheck.path is "health": want`:                             func(d *ctrlv1.ApplyDeployment) { d.Healthcheck = []byte(`{"path":"health"}`) },
		`healthcheck.path is "/a b": want`:                               func(d *ctrlv1.ApplyDeployment) { d.Healthcheck = []byte(`{"path":"/a b"}`) },
		`healthcheck.intervalSeconds is "0": want 1`:                     func(d *ctrlv1.ApplyDeployment) { d.Healthcheck = []byte(`{"intervalSeconds":0}`) },
		`healthcheck.timeoutSeconds is "-1": want 1`:                     func(d *ctrlv1.ApplyDeployment) { d.Healthcheck = []byte(`{"timeoutSeconds":-1}`) },
		`healthcheck.failureThreshold is "0": want 1`:                    func(d *ctrlv1.ApplyDeployment) { d.Healthcheck = []byte(`{"failureThreshold":0}`) },
		`healthcheck.initialDelaySeconds is "-1": want 0`:                func(d *ctrlv1.ApplyDeployment) { d.Healthcheck = []byte(`{"initialDelaySeconds":-1}`) },
	} {
		d := fullDeployment()
		broken(d)
		objects, err := cell.Deployment(d, variables, uid)
		require.ErrorContains(t, err, want)
		require.Empty(t, objects)
		require.Equal(t, 0, strings.Count(err.Error(), "\n"), "one field is wrong: %v", err)
	}
	_, err := cell.Deployment(&ctrlv1.ApplyDeployment{}, nil, "")
	for _, field := range []string{"k8s_namespace", "k8s_name", "workspace_id", "project_id", "app_id", "environment_id", "deployment_id", "image", "cpu_millicores", "memory_mib", "port"} {
		require.ErrorContains(t, err, field+" is ")
	}
}

func TestAVariableThatIsWrongIsNamedWithoutItsValue(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]map[string]string{
		"A B": {"A B": "sesame"}, "": {"": "sesame"}, "ZERO": {"ZERO": "sesame\x00"}, "bytes": {"BIG": strings.Repeat("sesame", 1<<18)},
	} {
		_, err := cell.Deployment(fullDeployment(), broken, uid)
		require.ErrorContains(t, err, "encrypted_environment_variables is ")
		require.ErrorContains(t, err, name)
		require.NotContains(t, err.Error(), "sesame")
	}
}

// TestVariablesFillASecretAndNoMore, names and values together.
func TestVariablesFillASecretAndNoMore(t *testing.T) {
	t.Parallel()
	full := map[string]string{"AB": strings.Repeat("x", 1<<19), "CD": strings.Repeat("x", 1<<19-4)}
	require.NotEmpty(t, must(t)(cell.Deployment(fullDeployment(), full, uid)))
	full["E"] = ""
	_, err := cell.Deployment(fullDeployment(), full, uid)
	require.ErrorContains(t, err, `encrypted_environment_variables is "1048577 bytes": want at most 1048576`)
}

func TestAnInvalidSentinelIsRefusedWithEachFieldNamed(t *testing.T) {
	t.Parallel()
	for want, broken := range map[string]func(*ctrlv1.ApplySentinel){
		`sentinel s_1: k8s_name is "1st": want`:       func(s *ctrlv1.ApplySentinel) { s.K8SName = "1st" },
		`sentinel_id is "": want`:                     func(s *ctrlv1.ApplySentinel) { s.SentinelId = "" },
		`replicas is "-1": want 0 or more`:            func(s *ctrlv1.ApplySentinel) { s.Replicas = -1 },
		`cpu_millicores is "0": want 1 to 2147483647`: func(s *ctrlv1.ApplySentinel) { s.CpuMillicores = 0 },
		`environment_id is "": want`:                  func(s *ctrlv1.ApplySentinel) { s.EnvironmentId = "" },
	} {
		s := sentinel()
		broken(s)
		objects, err := cell.Sentinel(s, "")
		require.ErrorContains(t, err, want)
		require.Empty(t, objects)
	}
	paused := sentinel()
	paused.Replicas = 0
	set := must(t)(cell.Sentinel(paused, ""))[0]
	replicas, found, err := unstructured.NestedInt64(set.Object, "spec", "replicas")
	require.NoError(t, err)
	require.True(t, found)
	require.Zero(t, replicas)
	for _, name := range []string{"Shop", "", "kube-system"} {
		_, err := cell.Namespace(name)
		require.ErrorContains(t, err, `namespace: k8s_namespace is "`+name+`"`)
		_, err = cell.Account(name)
		require.ErrorContains(t, err, `account: k8s_namespace is "`+name+`"`)
	}
}

func TestAPolicyThatIsNoneOfOursIsRefusedWithoutItsRules(t *testing.T) {
	t.Parallel()
	const head = `{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy",`
	for sent, want := range map[string]string{
		``:                    `policy is "[not shown]": want a JSON object`,
		`sesame`:              "want a JSON object",
		`["sesame"]`:          "want a JSON object",
		`null`:                "want a JSON object",
		head + `"spec":{}}{}`: "want a JSON object",
		`{"apiVersion":"v1","kind":"Secret","spec":{"a":"sesame"}}`:                       `policy is "v1 Secret": want cilium.io/v2 CiliumNetworkPolicy`,
		`{"apiVersion":"cilium.io/v2","kind":"CiliumClusterwideNetworkPolicy","spec":{}}`: `want cilium.io/v2 CiliumNetworkPolicy`,
		`{"apiVersion":"networking.k8s.io/v1","kind":"CiliumNetworkPolicy","spec":{}}`:    `want cilium.io/v2 CiliumNetworkPolicy`,
		head + `"metadata":{"name":"other"},"spec":{}}`:                                   `policy.metadata.name is "other": want k8s_name, which is egress`,
		head + `"metadata":{"namespace":"kube-system"},"spec":{}}`:                        `policy.metadata.namespace is "kube-system": want k8s_namespace, which is ws-acme`,
		head + `"metadata":{"labels":{"a":1}},"spec":{}}`:                                 `policy.metadata.labels is "[not shown]": want a map of text`,
		head + `"metadata":"sesame","spec":{}}`:                                           `policy.metadata.labels`,
		head + `"metadata":{"annotations":["sesame"]},"spec":{}}`:                         `policy.metadata.annotations is "[not shown]"`,
		head + `"spec":"sesame"}`:                                                         `policy.spec is "[not shown]": want an object`,
		head + `"specs":{"a":"sesame"}}`:                                                  `policy.specs is "[not shown]": want a list`,
		head + `"status":{"a":"sesame"}}`:                                                 `want spec or specs`,
		head + `"spec":{},"data":{"a":"sesame"}}`:                                         `policy is "data": want no other fields`,
	} {
		m := policy()
		m.Policy = []byte(sent)
		objects, err := cell.Policy(m)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "policy cnp_1: ")
		require.Empty(t, objects)
		require.NotContains(t, err.Error(), "sesame")
	}
	for want, broken := range map[string]func(*ctrlv1.ApplyCiliumNetworkPolicy){
		`k8s_name is "A": want`:                func(m *ctrlv1.ApplyCiliumNetworkPolicy) { m.K8SName = "A" },
		`k8s_namespace is "": want`:            func(m *ctrlv1.ApplyCiliumNetworkPolicy) { m.K8SNamespace = "" },
		`cilium_network_policy_id is "": want`: func(m *ctrlv1.ApplyCiliumNetworkPolicy) { m.CiliumNetworkPolicyId = "" },
	} {
		m := policy()
		broken(m)
		_, err := cell.Policy(m)
		require.ErrorContains(t, err, want)
	}
}
