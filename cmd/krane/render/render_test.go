package render_test

import (
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/apply"
	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/isolation"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/render"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const uid types.UID = "0d9ca1c6-5ac5-4d3c-9f3c-3a9d7c8a2f10"

var cell = render.Cell{
	Region: "eu-central-1", Platform: "aws", RuntimeClass: "gvisor", StorageClass: "ebs-csi-gp3", PodSecurity: isolation.Baseline,
	Registry: render.Registry{URL: "registry.example.com", Username: "krane", Password: "lovelace"},
}

var variables = map[string]string{"DATABASE_URL": "postgres://db", "GREETING": "hello"}

func fullDeployment() *ctrlv1.ApplyDeployment {
	return &ctrlv1.ApplyDeployment{
		K8SNamespace:                  "ws-acme",
		K8SName:                       "web-production-1a2b",
		WorkspaceId:                   "ws_acme",
		ProjectId:                     "proj_shop",
		EnvironmentId:                 "env_production",
		DeploymentId:                  "d_4Kx9Q",
		Image:                         "registry.example.com/shop/web:1",
		CpuMillicores:                 501,
		MemoryMib:                     1024,
		BuildId:                       new("build_77"),
		EncryptedEnvironmentVariables: []byte("sealed"),
		Command:                       []string{"/web", "--listen=$(PORT)"},
		Port:                          8080,
		ShutdownSignal:                "SIGINT",
		Healthcheck: []byte(
			`{"method":"POST","path":"/health?deep=1","intervalSeconds":7,"timeoutSeconds":3,"failureThreshold":4,"initialDelaySeconds":2}`,
		),
		AppId:            "app_web",
		EnvironmentSlug:  "production",
		Region:           "eu-central-1",
		GitCommitSha:     "0123abc",
		GitBranch:        "main",
		GitRepo:          "https://git.example.com/acme/shop",
		GitCommitMessage: "Cut $HOME and $(PORT)\n\nfor 100 %",
		Autoscaling:      &ctrlv1.Autoscaling{MinReplicas: 2, MaxReplicas: 5, CpuThreshold: proto.Uint32(70), MemoryThreshold: proto.Uint32(90)},
		EphemeralStorage: &ctrlv1.EphemeralStorage{SizeMib: 512},
	}
}

func leastDeployment() *ctrlv1.ApplyDeployment {
	return &ctrlv1.ApplyDeployment{
		K8SNamespace: "ws-acme", K8SName: "api", WorkspaceId: "ws_acme", ProjectId: "proj_shop", EnvironmentId: "env_production",
		AppId: "app_api", DeploymentId: "d_2", Image: "api", CpuMillicores: 1, MemoryMib: 1, Port: 1,
	}
}

func sentinel() *ctrlv1.ApplySentinel {
	return &ctrlv1.ApplySentinel{
		K8SNamespace: "ws-acme", K8SName: "sentinel-1", WorkspaceId: "ws_acme", ProjectId: "proj_shop", AppId: "app_web",
		EnvironmentId: "env_production", SentinelId: "s_1", Image: "sentinel:3", Replicas: 2, CpuMillicores: 250, MemoryMib: 256,
	}
}

const policyJSON = `{
	"apiVersion": "cilium.io/v2", "kind": "CiliumNetworkPolicy",
	"metadata": {
		"name": "egress", "namespace": "ws-acme", "uid": "1", "resourceVersion": "7", "managedFields": [],
		"labels": {"team": "shop", "unkey.com/region": "us", "unkey.com/sentinel.id": "s_1", "app.kubernetes.io/managed-by": "hand"},
		"annotations": {"why": "egress to the database", "unkey.com/desired-hash": "x", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
	},
	"spec": {"endpointSelector": {"matchLabels": {"unkey.com/app.id": "app_web"}},
		"egress": [{"toCIDR": ["203.0.113.0/24"], "toPorts": [{"ports": [{"port": "5432", "endPort": 5433, "protocol": "TCP"}]}]}]},
	"status": {"conditions": []}
}`

func policy() *ctrlv1.ApplyCiliumNetworkPolicy {
	return &ctrlv1.ApplyCiliumNetworkPolicy{
		K8SNamespace:          "ws-acme",
		K8SName:               "egress",
		CiliumNetworkPolicyId: "cnp_1",
		Policy:                []byte(policyJSON),
	}
}

func leastPolicy() *ctrlv1.ApplyCiliumNetworkPolicy {
	m := policy()
	m.Policy = []byte(`{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","specs":[]}`)
	return m
}

// must takes the results of a rendering that cannot fail.
func must(t *testing.T) func([]*unstructured.Unstructured, error) []*unstructured.Unstructured {
	t.Helper()
	return func(objects []*unstructured.Unstructured, err error) []*unstructured.Unstructured {
		t.Helper()
		require.NoError(t, err)
		return objects
	}
}

func text(t *testing.T, objects []*unstructured.Unstructured) string {
	t.Helper()
	var all strings.Builder
	for _, o := range objects {
		data, err := yaml.Marshal(o.Object)
		require.NoError(t, err)
		all.WriteString("---\n" + string(data))
	}
	return all.String()
}

func TestObjectsAreAsInTheGoldenFiles(t *testing.T) {
	t.Parallel()
	plain := render.Cell{Region: "eu"}
	for name, rendered := range map[string]struct {
		component render.Component
		region    string
		objects   []*unstructured.Unstructured
	}{
		"namespace":          {render.Namespace, cell.Region, must(t)(cell.Namespace("ws-acme"))},
		"namespace-least":    {render.Namespace, "eu", must(t)(plain.Namespace("ws-acme"))},
		"account":            {render.Account, "eu", must(t)(plain.Account("ws-acme"))},
		"policy-least":       {render.Policy, "eu", must(t)(plain.Policy(leastPolicy()))},
		"deployment":         {render.Deployment, cell.Region, must(t)(cell.Deployment(fullDeployment(), variables, uid))},
		"deployment-least":   {render.Deployment, "eu", must(t)(plain.Deployment(leastDeployment(), nil, ""))},
		"sentinel":           {render.Sentinel, cell.Region, must(t)(cell.Sentinel(sentinel(), uid))},
		"sentinel-least":     {render.Sentinel, "eu", must(t)(plain.Sentinel(sentinel(), ""))},
		"policy":             {render.Policy, cell.Region, must(t)(cell.Policy(policy()))},
		"deployment-root":    {render.Deployment, cell.Region, must(t)(cell.Deployment(withRoot(), nil, ""))},
		"deployment-sigkill": {render.Deployment, "eu", must(t)(plain.Deployment(withSignal("SIGKILL"), nil, ""))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := text(t, rendered.objects)
			golden := filepath.Join("testdata", name+".yaml")
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(string(want), got), "run with -update to accept")

			set, err := apply.NewSet(render.Owner(rendered.component, rendered.region), rendered.objects, apply.SetOptions{})
			require.NoError(t, err)
			require.Equal(t, len(rendered.objects), set.Len())
			kinds := render.Kinds(rendered.component)
			for _, o := range rendered.objects {
				require.Contains(t, kinds, o.GroupVersionKind())
				for key, v := range render.Owner(rendered.component, rendered.region).Labels {
					require.Equal(t, v, o.GetLabels()[key])
				}
			}
		})
	}
}

func withSignal(signal string) *ctrlv1.ApplyDeployment {
	d := leastDeployment()
	d.ShutdownSignal = signal
	return d
}

func withRoot() *ctrlv1.ApplyDeployment {
	d := leastDeployment()
	d.PodSecurity = "baseline"
	return d
}

func TestADeploymentIsNoLooserThanTheRegionAllows(t *testing.T) {
	t.Parallel()
	for _, level := range []isolation.Level{"", isolation.Restricted} {
		strict := cell
		strict.PodSecurity = level
		_, err := strict.Deployment(withRoot(), nil, "")
		require.EqualError(t, err, `deployment d_2: pod_security is "baseline": want what the region allows: restricted`)
	}
	d := leastDeployment()
	d.PodSecurity = "privileged"
	_, err := cell.Deployment(d, nil, "")
	require.EqualError(t, err, `deployment d_2: pod_security is "privileged": want restricted or baseline, or nothing for restricted`)
}

func TestTheOrderIsTheDocumentedOne(t *testing.T) {
	t.Parallel()
	objects := slices.Concat(
		must(t)(cell.Namespace("ws-acme")),
		must(t)(cell.Account("ws-acme")),
		must(t)(cell.Deployment(fullDeployment(), variables, "")),
	)
	kinds := make([]string, len(objects))
	for i, o := range objects {
		kinds[i] = o.GetKind()
	}
	require.Equal(t, []string{
		"Namespace", "CiliumNetworkPolicy", "Secret", "ServiceAccount", "CiliumNetworkPolicy", "Secret", "ServiceAccount", "ReplicaSet",
		"HorizontalPodAutoscaler", "PodDisruptionBudget",
	}, kinds)
}

func TestEachComponentHasAnOwnerOfItsOwn(t *testing.T) {
	t.Parallel()
	components := []render.Component{render.Namespace, render.Account, render.Deployment, render.Sentinel, render.Policy}
	seen := map[string]bool{}
	for _, c := range components {
		for _, region := range []string{"eu", "us"} {
			seen[fmt.Sprint(render.Owner(c, region).Labels)] = true
		}
		require.NotEmpty(t, render.Kinds(c))
	}
	require.Len(t, seen, 10)
	require.Empty(t, render.Kinds("other"))
}

func TestAReplicaSetLeavesItsReplicasToTheAutoscaler(t *testing.T) {
	t.Parallel()
	for _, d := range []*ctrlv1.ApplyDeployment{fullDeployment(), leastDeployment()} {
		for _, o := range must(t)(cell.Deployment(d, variables, uid)) {
			_, found, err := unstructured.NestedFieldNoCopy(o.Object, "spec", "replicas")
			require.NoError(t, err)
			require.False(t, found, o.GetKind())
		}
	}
}

func TestAnOutageOfTheVaultEmptiesNoSecret(t *testing.T) {
	t.Parallel()
	_, err := cell.Deployment(fullDeployment(), nil, uid)
	require.ErrorContains(t, err, `deployment d_4Kx9Q: encrypted_environment_variables is "not decrypted"`)
	_, err = cell.Deployment(fullDeployment(), map[string]string{}, uid)
	require.NoError(t, err, "it was decrypted, and holds none")
}

func TestWhatTheDeploymentStatesIsNeverReadByAShellNorExpanded(t *testing.T) {
	t.Parallel()
	d := fullDeployment()
	d.Healthcheck = []byte(`{"method":"POST","path":"/$(reboot)';reboot;#"}`)
	d.GitBranch = "$(DATABASE_URL)$$(PORT)"
	set := must(t)(cell.Deployment(d, variables, ""))[3]
	containers, _, err := unstructured.NestedSlice(set.Object, "spec", "template", "spec", "containers")
	require.NoError(t, err)
	container, _ := containers[0].(map[string]any)
	command, _, err := unstructured.NestedStringSlice(container, "livenessProbe", "exec", "command")
	require.NoError(t, err)
	require.NotContains(t, command[2], "reboot")
	require.Equal(t, "http://127.0.0.1:8080/$$(reboot)';reboot;#", command[4])
	env, _, err := unstructured.NestedSlice(container, "env")
	require.NoError(t, err)
	require.Contains(t, env, any(map[string]any{"name": "UNKEY_GIT_BRANCH", "value": "$$(DATABASE_URL)$$$$(PORT)"}))
}

// TestPropertiesOfManyDeployments renders random messages.
func TestPropertiesOfManyDeployments(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		d := fullDeployment()
		d.CpuMillicores, d.MemoryMib = 1+random.Int64N(1<<20), 1+random.Int64N(1<<20)
		d.DeploymentId = strings.Repeat("dD_9", 1+random.IntN(8)) + "x"
		d.Autoscaling.MinReplicas = 1 + random.Uint32N(9)
		d.Autoscaling.MaxReplicas = d.Autoscaling.MinReplicas + random.Uint32N(9)
		d.ShutdownSignal = []string{"", "SIGTERM", "SIGINT", "SIGQUIT", "SIGKILL"}[random.IntN(5)]
		before := proto.Clone(d)
		objects, err := cell.Deployment(d, variables, uid)
		require.NoError(t, err, "seed %d", seed)
		require.True(t, proto.Equal(before, d), "the message is only read")
		again, err := cell.Deployment(d, variables, uid)
		require.NoError(t, err)
		require.True(t, reflect.DeepEqual(objects, again), "seed %d", seed)
		_, err = apply.NewSet(render.Owner(render.Deployment, cell.Region), objects, apply.SetOptions{})
		require.NoError(t, err, "seed %d", seed)
		for _, o := range objects {
			require.Equal(t, d.GetDeploymentId(), o.GetLabels()["unkey.com/deployment.id"])
			require.Equal(t, o.GetKind() != "ReplicaSet" && o.GetKind() != "CiliumNetworkPolicy", len(o.GetOwnerReferences()) == 1)
			if o.GetKind() == "Secret" || o.GetKind() == "ServiceAccount" {
				require.Equal(t, "deploy-"+strings.ReplaceAll(strings.ToLower(d.GetDeploymentId()), "_", "-"), o.GetName())
			}
		}
		// The parts share no memory: a change of one object changes no other.
		objects[0].Object["metadata"].(map[string]any)["labels"].(map[string]any)["x"] = "y"
		require.True(t, reflect.DeepEqual(objects[1:], again[1:]), "seed %d", seed)
	}
}

func TestVariablesAreInTheSecretAndNowhereElse(t *testing.T) {
	t.Parallel()
	objects := must(t)(cell.Deployment(fullDeployment(), variables, uid))
	for _, o := range objects {
		data, err := json.Marshal(o)
		require.NoError(t, err)
		for _, v := range variables {
			require.NotContains(t, string(data), v)
			require.Equal(t, o.GetKind() == "Secret", strings.Contains(string(data), base64.StdEncoding.EncodeToString([]byte(v))))
		}
	}
}

func TestOneVariableIsEnoughForASecret(t *testing.T) {
	t.Parallel()
	data, found, err := unstructured.NestedMap(
		must(t)(cell.Deployment(fullDeployment(), map[string]string{"ONLY": "one"}, uid))[1].Object, "data")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, map[string]any{"ONLY": base64.StdEncoding.EncodeToString([]byte("one"))}, data)
}

// TestAnAutoscalerWatchesWhatIsStatedAlone: a target of nothing would add pods up to the most.
func TestAnAutoscalerWatchesWhatIsStatedAlone(t *testing.T) {
	t.Parallel()
	d := fullDeployment()
	d.Autoscaling.MemoryThreshold = nil
	metrics, _, err := unstructured.NestedSlice(must(t)(cell.Deployment(d, variables, uid))[4].Object, "spec", "metrics")
	require.NoError(t, err)
	require.Len(t, metrics, 1)
	resource, _, err := unstructured.NestedString(metrics[0].(map[string]any), "resource", "name")
	require.NoError(t, err)
	require.Equal(t, "cpu", resource)
}

// TestAComponentOwnsItsKindsAloneUnderOneName: another manager, or domain, would not know what this one has applied.
func TestAComponentOwnsItsKindsAloneUnderOneName(t *testing.T) {
	t.Parallel()
	for component, objects := range map[render.Component][]*unstructured.Unstructured{
		render.Namespace:  must(t)(cell.Namespace("ws-acme")),
		render.Account:    must(t)(cell.Account("ws-acme")),
		render.Deployment: must(t)(cell.Deployment(fullDeployment(), variables, uid)),
		render.Sentinel:   must(t)(cell.Sentinel(sentinel(), uid)),
		render.Policy:     must(t)(cell.Policy(policy())),
	} {
		owner, kinds := render.Owner(component, "eu"), []schema.GroupVersionKind(nil)
		require.Equal(t, "krane", owner.Manager)
		require.Equal(t, "unkey.com", owner.Domain)
		for _, o := range objects {
			kinds = append(kinds, o.GroupVersionKind())
		}
		require.ElementsMatch(t, kinds, render.Kinds(component), component)
	}
}

func TestWholeNumbersInAPolicyStaySo(t *testing.T) {
	t.Parallel()
	m := policy()
	m.Policy = []byte(strings.Replace(policyJSON, "5433", "9007199254740993", 1))
	data, err := json.Marshal(must(t)(cell.Policy(m))[0])
	require.NoError(t, err)
	require.Contains(t, string(data), `"endPort":9007199254740993`)
	keys := slices.Sorted(func(yield func(string) bool) {
		for key := range must(t)(cell.Policy(policy()))[0].Object {
			if !yield(key) {
				return
			}
		}
	})
	require.Equal(t, []string{"apiVersion", "kind", "metadata", "spec"}, keys)
}
