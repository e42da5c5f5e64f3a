package apply_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/diff"
)

// The tests named "defect N" are for what peers get wrong.

// silent applies objects and expects no request afterwards, a restart included.
func silent(t *testing.T, b *bench, manifests ...string) {
	t.Helper()
	extra := []schema.GroupVersionKind{
		{Group: "apps", Version: "v1", Kind: "StatefulSet"},
		{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
		{Group: "batch", Version: "v1", Kind: "CronJob"},
	}
	a := b.startUnsynced(t, extra...)
	waitSynced(t, a)
	set := b.set(t, manifests...)
	require.Equal(t, set.Len(), apply1(t, a, set).Count(apply.Created))
	require.Len(t, a.net.Writes(), set.Len())
	a.net.Reset()
	for range 3 {
		require.Equal(t, set.Len(), apply1(t, a, set).Unchanged)
	}
	plan, err := a.Plan(t.Context(), set, apply.PruneOptions{})
	require.NoError(t, err)
	require.Empty(t, plan.Changes)
	a.net.NoRequests(t)
	a.stop()
	again := b.startUnsynced(t, extra...)
	waitSynced(t, again)
	require.Equal(t, set.Len(), apply1(t, again, set).Unchanged)
	again.net.NoRequests(t)
}

const (
	oddForms = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: NAMESPACE}, spec: {replicas: 0, selector: {matchLabels: {app: a}},
 strategy: {rollingUpdate: {maxSurge: "25%", maxUnavailable: 1}},
 template: {metadata: {labels: {app: a}}, spec: {volumes: [{name: v, emptyDir: {sizeLimit: 1024Mi}}], containers: [{name: main, image: x, ports: [{name: http, containerPort: 80}],
  livenessProbe: {httpGet: {port: http}}, readinessProbe: {tcpSocket: {port: 80}},
  resources: {requests: {cpu: "0.1", memory: 1024Mi}, limits: {cpu: 1000m, memory: "1073741824"}}}]}}}}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web, namespace: NAMESPACE}, spec: {minAvailable: "50%", selector: {matchLabels: {app: a}}}}
---
{apiVersion: v1, kind: Secret, metadata: {name: web, namespace: NAMESPACE}, stringData: {password: x}}
---
{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: web, namespace: NAMESPACE}, spec: {replicas: 0, serviceName: web, selector: {matchLabels: {app: s}},
 template: {metadata: {labels: {app: s}}, spec: {containers: [{name: main, image: x}]}},
 volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1024Mi}}}}]}}`

	leftOut = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: NAMESPACE}, spec: {selector: {matchLabels: {app: a}},
 template: {metadata: {labels: {app: a}}, spec: {containers: [{name: main, image: x}]}}}}
---
{apiVersion: batch/v1, kind: CronJob, metadata: {name: web, namespace: NAMESPACE}, spec: {schedule: "0 0 1 1 *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: x}]}}}}}}`

	twoProtocols = `{apiVersion: v1, kind: Service, metadata: {name: dns, namespace: NAMESPACE}, spec: {ports: [{name: t, port: 53}, {name: u, port: 53, protocol: UDP}]}}`
)

func TestPeersDefect6OfOnePortWithTwoProtocolsTheRightOneIsNamed(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	set := b.set(t, twoProtocols)
	apply1(t, a, set)
	b.kubectl(
		t,
		"patch",
		"-n",
		b.ns,
		"service",
		"dns",
		"--type=json",
		"-p",
		`[{"op":"replace","path":"/spec/ports/1/targetPort","value":99},{"op":"replace","path":"/spec/ports/1/name","value":"z"}]`,
		"--field-manager=somebody",
	)
	a.waitWoken(t, "Service", "dns")
	plan, err := a.Plan(t.Context(), set, apply.PruneOptions{})
	require.NoError(t, err)
	require.Len(t, plan.Changes, 1)
	require.Len(t, plan.Changes[0].Fields, 1, "%s", plan)
	require.Equal(t, `.spec.ports[port=53,protocol="UDP"].name`, plan.Changes[0].Fields[0].Path)
	require.Equal(t, 1, apply1(t, a, set).Count(apply.Updated))
	require.Equal(t, "t u", b.kubectl(t, "get", "-n", b.ns, "service", "dns", "-o", "jsonpath={.spec.ports[*].name}"))
}

func TestPeersDefect7WhatAnotherOneOwnsAsWellStaysAndIsQuiet(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	// An update made the object once, and still owns what it stated.
	with := strings.Replace(
		selecting("one"),
		"image: example.com/web}",
		"image: example.com/web, env: [{name: A, value: '1'}, {name: B, value: '2'}]}",
		1,
	)
	file := filepath.Join(t.TempDir(), "web.yaml")
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(with, "NAMESPACE", b.ns)), 0o600))
	b.kubectl(t, "create", "-f", file, "--field-manager=stale")
	a := b.start(t)
	a.Adoption = apply.AdoptForeign
	require.Equal(t, 1, apply1(t, a, b.set(t, with)).Count(apply.Updated))
	left := func() string {
		return b.kubectl(t, "get", "-n", b.ns, "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].env[*].name}")
	}

	without := b.set(t, strings.Replace(with, ", {name: B, value: '2'}", "", 1))
	plan, err := a.Plan(t.Context(), without, apply.PruneOptions{})
	require.NoError(t, err)
	named := map[string]diff.Field{}
	for _, f := range plan.Changes[0].Fields {
		named[f.Path] = f
	}
	field, ok := named[`.spec.template.spec.containers[name="main"].env[name="B"].value`]
	require.True(t, ok, "%s", plan)
	require.Equal(t, diff.Released, field.Difference, "%s", plan)
	require.Equal(t, "stale", field.By[0].Manager)
	require.Equal(t, 1, apply1(t, a, without).Count(apply.Updated))
	require.Equal(t, "A B", left(), "as planned, it stays")
	a.net.Reset()
	for range 3 {
		require.Equal(t, 1, apply1(t, a, without).Unchanged)
	}
	a.net.NoRequests(t)
}

func TestPeersDefect7AnElementOfWhichAnotherOneOwnsAPartGoesAndIsQuiet(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	with := strings.Replace(
		selecting("one"),
		"image: example.com/web}",
		"image: example.com/web, env: [{name: A, value: '1'}, {name: B, value: '2'}]}",
		1,
	)
	apply1(t, a, b.set(t, with))
	for _, value := range []string{"3", "2"} {
		b.kubectl(t, "patch", "-n", b.ns, "deployment", "web", "--type=json", "-p",
			`[{"op":"replace","path":"/spec/template/spec/containers/0/env/1/value","value":"`+value+`"}]`, "--field-manager=stale")
	}
	a.waitWoken(t, "Deployment", "web")
	require.Equal(t, 1, apply1(t, a, b.set(t, with)).Count(apply.Updated), "its value is ours again, too")
	without := b.set(t, strings.Replace(with, ", {name: B, value: '2'}", "", 1))
	plan, err := a.Plan(t.Context(), without, apply.PruneOptions{})
	require.NoError(t, err)
	require.Contains(
		t,
		plan.String(),
		`.spec.template.spec.containers[name="main"].env[name="B"]: {"name":"B","value":"2"} -> (absent) (by "stale"`,
	)
	require.Equal(t, 1, apply1(t, a, without).Count(apply.Updated))
	require.Equal(
		t,
		"A",
		b.kubectl(t, "get", "-n", b.ns, "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].env[*].name}"),
		"as planned, it was removed: the other one does not own the element",
	)
	require.Equal(t, 1, apply1(t, a, without).Unchanged)
}

func TestPeersDefect4ValuesInAnotherFormAreSilent(t *testing.T) {
	t.Parallel()
	silent(t, serverBench(t), oddForms)
}

func TestPeersDefect5FieldsLeftOutAreSilent(t *testing.T) {
	t.Parallel()
	silent(t, serverBench(t), leftOut)
}

func TestPeersDefect6OnePortWithTwoProtocolsIsSilent(t *testing.T) {
	t.Parallel()
	silent(t, serverBench(t), twoProtocols)
}

// An apply asks for no field validation, which does not decide about such fields.
func TestAFieldThatTheKindLacksIsRefusedByName(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	defer a.stop()
	for kind, manifest := range map[string]string{
		"built in": `{apiVersion: v1, kind: Service, metadata: {name: a, namespace: NAMESPACE}, spec: {ports: [{port: 80}], slector: {app: a}}}`,
		"custom":   `{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: a, namespace: NAMESPACE}, spec: {hostnams: [a.example.com]}}`,
	} {
		report, err := a.Apply(t.Context(), b.set(t, manifest))
		require.ErrorContains(t, err, "field not declared in schema", kind)
		require.Equal(t, 1, report.Count(apply.Failed), kind)
	}
}
