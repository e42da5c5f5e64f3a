package main

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/cmd/agentjob/internal/crds"
	agentjob "github.com/seed-9e1ffd66/trueup/cmd/agentjob/operator"
	"github.com/seed-9e1ffd66/trueup/internal/test/helmtest"
)

var update = flag.Bool("update", false, "rewrite the generated files of the chart")

const (
	rulesFile   = "chart/files/rules.yaml"
	definitions = "chart/files/crds"
	keepPolicy  = "helm.sh/resource-policy"
)

// rendered is what the chart makes of values, by kind and name.
func rendered(t *testing.T, args ...string) map[string]*unstructured.Unstructured {
	t.Helper()
	out, err := helmtest.Run(t, nil, append([]string{"template", agentjob.Account, "chart", "--namespace", agentjob.Namespace}, args...)...)
	require.NoError(t, err)
	return helmtest.Objects(t, out)
}

func deployment(t *testing.T, o *unstructured.Unstructured) *appsv1.Deployment {
	t.Helper()
	require.NotNil(t, o)
	var d appsv1.Deployment
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &d, true))
	return &d
}

// manifests are what "agentjob manifests" prints.
func manifests(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	text, err := agentjob.Manifests{Image: "agentjob"}.YAML()
	require.NoError(t, err)
	return helmtest.Objects(t, text)
}

// TestTheFilesOfTheChartAreUpToDate compares the chart's rules and definitions with those
// of the program, and with -update writes them; that is what "make generate" does.
func TestTheFilesOfTheChartAreUpToDate(t *testing.T) {
	t.Parallel()
	printed := manifests(t)
	field := func(name string, path ...string) any {
		value, found, err := unstructured.NestedFieldNoCopy(printed[name].Object, path...)
		require.NoError(t, err)
		require.True(t, found, name)
		return value
	}
	rules, err := yaml.Marshal(map[string]any{
		"cluster":   field("ClusterRole "+agentjob.Account, "rules"),
		"namespace": field("Role "+agentjob.Account, "rules"),
		"ceiling":   field("ClusterRole "+agentjob.Ceiling, "aggregationRule", "clusterRoleSelectors"),
	})
	require.NoError(t, err)
	want := map[string]string{rulesFile: "# Generated from the rights of the operator by \"make generate\".\n" + string(rules)}
	source := filepath.Join("internal", "crds")
	generated, err := filepath.Glob(filepath.Join(source, "*.yaml"))
	require.NoError(t, err)
	require.Len(t, generated, 8)
	for _, path := range generated {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		want[filepath.Join(definitions, filepath.Base(path))] = string(text)
	}
	for path, text := range want {
		if *update {
			require.NoError(t, os.WriteFile(path, []byte(text), 0o644)) //nolint:gosec // files of a chart are for all
		}
		present, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, text == string(present), `%s is not what the program says: run "make generate"`, path)
	}
	present, err := filepath.Glob(definitions + "/*")
	require.NoError(t, err)
	require.Len(t, present, len(generated), "one is not generated")
}

// TestTheChartIsWhatTheProgramPrints compares the objects installed either way.
func TestTheChartIsWhatTheProgramPrints(t *testing.T) {
	t.Parallel()
	chart, printed := rendered(t), manifests(t)
	delete(printed, "Namespace "+agentjob.Namespace) // helm makes it
	require.Equal(t, slices.Sorted(maps.Keys(printed)), slices.Sorted(maps.Keys(chart)))
	for name, want := range printed {
		got := chart[name]
		if want.GetKind() == "Deployment" {
			continue
		}
		require.Equal(t, want.GetNamespace(), got.GetNamespace(), name)
		require.Equal(t, "Helm", got.GetLabels()["app.kubernetes.io/managed-by"], name)
		for _, o := range []*unstructured.Unstructured{want, got} {
			o.SetLabels(nil)
			annotations := o.GetAnnotations()
			delete(annotations, keepPolicy)
			o.SetAnnotations(annotations)
		}
		require.Empty(t, cmp.Diff(want.Object, got.Object), name)
	}
	made, by := deployment(t, chart["Deployment "+agentjob.Account]), deployment(t, printed["Deployment "+agentjob.Account])
	require.EqualValues(t, 1, *made.Spec.Replicas)
	got, want := made.Spec.Template.Spec, by.Spec.Template.Spec
	require.Equal(t, want.SecurityContext, got.SecurityContext)
	require.Equal(t, want.ServiceAccountName, got.ServiceAccountName)
	agent, wanted := got.Containers[0], want.Containers[0]
	require.Equal(t, wanted.SecurityContext, agent.SecurityContext)
	require.Equal(t, wanted.Ports, agent.Ports)
	require.Subset(t, agent.Env, wanted.Env)
	require.Equal(t, wanted.LivenessProbe.HTTPGet, agent.LivenessProbe.HTTPGet)
	require.Equal(t, wanted.ReadinessProbe.HTTPGet, agent.ReadinessProbe.HTTPGet)
	require.Equal(t, []string{"50m", "64Mi", "500m", "256Mi"}, []string{
		agent.Resources.Requests.Cpu().String(), agent.Resources.Requests.Memory().String(),
		agent.Resources.Limits.Cpu().String(), agent.Resources.Limits.Memory().String(),
	})
}

// TestTheDefinitionsOfTheChartStay is the part of C22 that is rendered.
func TestTheDefinitionsOfTheChartStay(t *testing.T) {
	t.Parallel()
	generated, err := crds.YAML()
	require.NoError(t, err)
	want := helmtest.Objects(t, string(generated))
	for _, c := range []struct {
		set  string
		many int
		keep string
	}{{"", 8, "keep"}, {"crds.keep=false", 8, ""}, {"crds.install=false", 0, ""}} {
		many := 0
		for name, o := range rendered(t, "--set", c.set) {
			if o.GetKind() == "CustomResourceDefinition" {
				many++
				require.Contains(t, want, name)
				require.Equal(t, c.keep, o.GetAnnotations()[keepPolicy], name)
			} else {
				require.Empty(t, o.GetAnnotations()[keepPolicy], name)
			}
		}
		require.Equal(t, c.many, many, c.set)
	}
}

// TestTheValuesReachTheProcess renders values that are not the defaults.
func TestTheValuesReachTheProcess(t *testing.T) {
	t.Parallel()
	all := rendered(t, "--values", "testdata/values.yaml")
	d := deployment(t, all["Deployment other"])
	require.EqualValues(t, 2, *d.Spec.Replicas)
	require.Equal(t, appsv1.RollingUpdateDeploymentStrategyType, d.Spec.Strategy.Type)
	pod := d.Spec.Template
	require.Equal(t, "yes", pod.Annotations["example.com/scrape"])
	require.Equal(t, "agents", pod.Labels["team"])
	require.Equal(t, "other", pod.Spec.ServiceAccountName)
	require.Equal(t, "registry", pod.Spec.ImagePullSecrets[0].Name)
	require.Equal(t, map[string]string{"kubernetes.io/os": "linux"}, pod.Spec.NodeSelector)
	require.Equal(t, "agents", pod.Spec.Tolerations[0].Key)
	require.NotNil(t, pod.Spec.Affinity.PodAntiAffinity)
	require.Equal(t, "system-cluster-critical", pod.Spec.PriorityClassName)
	agent := pod.Spec.Containers[0]
	require.Equal(t, "example.com:5000/agentjob@sha256:"+strings.Repeat("0", 64), agent.Image)
	require.Equal(
		t,
		[]string{"--ceiling=other-ceiling", "--cluster-access-namespaces=all", "--keep-finished=90m", "--watch-namespace=team"},
		agent.Args,
	)
	env := map[string]string{}
	for _, e := range agent.Env {
		env[e.Name] = e.Value
	}
	require.Equal(t, map[string]string{
		"POD_NAME": "", "POD_NAMESPACE": "", "THURKUBE_HEALTH_ADDR": "[::]:9000", "RUST_LOG": "warn,thurkube=debug", "GOMEMLIMIT": "483183819",
	}, env)
	require.EqualValues(t, 9000, agent.Ports[0].ContainerPort)
	require.EqualValues(t, 7, agent.LivenessProbe.PeriodSeconds)
	require.EqualValues(t, 3, agent.LivenessProbe.InitialDelaySeconds)
	require.EqualValues(t, 2, agent.LivenessProbe.TimeoutSeconds)
	require.EqualValues(t, 9, agent.LivenessProbe.FailureThreshold)
	require.EqualValues(t, 5, agent.ReadinessProbe.PeriodSeconds)
	require.Equal(t, "arn", all["ServiceAccount other"].GetAnnotations()["example.com/role"])
	require.Equal(t, agentjob.Namespace, all["Role other"].GetNamespace())

	alone := rendered(t, "--set", "leaderElection.enabled=false")
	d = deployment(t, alone["Deployment "+agentjob.Account])
	require.Contains(t, d.Spec.Template.Spec.Containers[0].Args, "--leader-elect=false")
	require.Equal(t, appsv1.RecreateDeploymentStrategyType, d.Spec.Strategy.Type)
	require.NotContains(t, alone, "Role "+agentjob.Account)

	out, err := helmtest.Run(t, nil, "template", "fleet", "chart")
	require.NoError(t, err)
	named := helmtest.Objects(t, out)
	require.Contains(t, named, "Deployment fleet-thurkube")
	require.Contains(t, named, "ClusterRole fleet-thurkube-ceiling")
}

// TestTheFlagsOfTheChartAreThoseOfTheProgram parses the arguments that the chart renders.
func TestTheFlagsOfTheChartAreThoseOfTheProgram(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"--values", "testdata/values.yaml"}, {"--set", "leaderElection.enabled=false"}} {
		for _, o := range rendered(t, args...) {
			if o.GetKind() == "Deployment" {
				require.NoError(t, command().Flags().Parse(deployment(t, o).Spec.Template.Spec.Containers[0].Args))
			}
		}
	}
}

// TestTheChartHasTheLevelsOfTheProgram: a level renders if the program knows it.
func TestTheChartHasTheLevelsOfTheProgram(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"trace", "debug", "info", "warn", "warning", "error", "off", "INFO", "thurkube=debug", "warn, thurkube = debug", "warn,", "a=trace,b=off",
		"loud", "warn,loud", "thurkube=loud", "thurkube", "debug=", "infoo", "warn error",
	} {
		_, err := helmtest.Run(t, nil, "template", "x", "chart", "--set", "logLevel="+strings.ReplaceAll(text, ",", `\,`))
		if _, unknown := logLevel(text); unknown == "" {
			require.NoError(t, err, text)
		} else {
			require.ErrorContains(t, err, "/logLevel", text)
		}
	}
}

// TestTheChartIsLinted is without a warning.
func TestTheChartIsLinted(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"--values", "testdata/values.yaml"}} {
		out, err := helmtest.Run(t, nil, append([]string{"lint", "chart", "--strict"}, args...)...)
		require.NoError(t, err, out)
		require.NotContains(t, out, "[WARNING]")
	}
}

// TestWrongValuesAreRefused names each by the value that is wrong.
func TestWrongValuesAreRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("long: it builds Helm")
	}
	t.Parallel()
	for set, want := range map[string]string{
		"health.port=0":                               "/health/port",
		"health.port=80":                              "/health/port",
		"health.port=70000":                           "/health/port",
		"health.port=web":                             "/health/port",
		"health.host=example.com":                     "/health/host",
		"probes.liveness.periodSeconds=0":             "/probes/liveness/periodSeconds",
		"probes.readiness.timeoutSeconds=1s":          "/probes/readiness/timeoutSeconds",
		"probes.readiness.period=5":                   "'period'",
		"health.host=127.0.0.1":                       "/health/host",
		"logLevel=1":                                  "/logLevel",
		"clusterAccessNamespaces=some":                "/clusterAccessNamespaces",
		"keepFinished=soon":                           "/keepFinished",
		"keepFinished=0h":                             "/keepFinished",
		"keepFinished=-1h":                            "/keepFinished",
		"image.repository=":                           "/image/repository",
		"image.pullPolicy=Sometimes":                  "/image/pullPolicy",
		"image.digest=latest":                         "/image/digest",
		"image.registry=example.com":                  "'registry'",
		"replicaCount=-1":                             "/replicaCount",
		"replicaCount=2,leaderElection.enabled=false": "/leaderElection/enabled",
		"crds.keep=maybe":                             "/crds/keep",
		"resources.limits.memory=much":                "/resources/limits/memory",
		"fullnameOverride=Thurkube":                   "/fullnameOverride",
		"watchNamespace=a/b":                          "/watchNamespace",
		"loglevel=debug":                              "'loglevel'",
		"podAnnotations.a=1":                          "/podAnnotations/a",
	} {
		t.Run(set, func(t *testing.T) {
			t.Parallel()
			_, err := helmtest.Run(t, nil, "template", "x", "chart", "--set", set)
			require.ErrorContains(t, err, "don't meet the specifications of the schema")
			require.ErrorContains(t, err, want)
		})
	}
	_, err := helmtest.Run(t, nil, "template", "x", "chart", "--set-string", "podAnnotations.a=1")
	require.NoError(t, err)
}
