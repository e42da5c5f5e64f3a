package servertest_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/diff"
)

const manager = "me"

// still asserts that a live object is seen to be what was applied, by all means.
func still(t *testing.T, applied, live, desired *unstructured.Unstructured) {
	t.Helper()
	require.Equal(t, digest(t, applied), digest(t, live), "the digest")
	require.True(t, covers(t, live, desired, manager), "Covers")
	require.Empty(t, lines(t, desired, live, diff.Options{Manager: manager, Applied: true}), "Fields")
}

const workload = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: "50%"}}
  template:
    metadata: {labels: {app: web}, annotations: {x: "", y: null}}
    spec:
      hostNetwork: false
      tolerations: []
      securityContext: {}
      volumes: [{name: tmp, emptyDir: {sizeLimit: 1024Mi}}]
      containers:
      - name: main
        image: web:1
        resources: {requests: {cpu: "0.1", memory: 1024Mi}, limits: {cpu: 2000m}}
        ports: [{containerPort: 53}, {containerPort: 53, protocol: UDP}]
        env: [{name: A, value: ""}, {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}]
        livenessProbe: {httpGet: {path: /, port: 53}}
`

// Case 4: non-canonical quantities, both forms of int-or-string, stringData.
func TestWhatTheServerRewritesIsNoDifference(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	desired := s.read(t, workload)
	applied := s.apply(t, manager, workload)
	requests, _, err := unstructured.NestedSlice(applied.Object, "spec", "template", "spec", "containers")
	require.NoError(t, err)
	require.Contains(t, text(requests), `"requests":{"cpu":"100m","memory":"1Gi"}`, "the server rewrites")
	still(t, applied, s.get(t, desired), desired)

	// A changed desired state lists what has changed, and no quantity.
	changed := desired.DeepCopy()
	require.NoError(t, unstructured.SetNestedField(changed.Object, int64(3), "spec", "replicas"))
	require.Equal(t, []string{"changed .spec.replicas: 2 -> 3"}, lines(t, changed, applied, diff.Options{Manager: manager}))

	const secret = "{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {password: hunter2}}"
	desired = s.read(t, secret)
	applied = s.apply(t, manager, secret)
	still(t, applied, s.get(t, desired), desired)
}

// The server keeps stringData as data, and us as the owner of stringData: a
// foreign change of the value leaves our set as it was.
func TestAForeignChangeOfAppliedStringDataIsSeenByFieldsAlone(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	const secret = "{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {password: hunter2}}"
	desired := s.read(t, secret)
	applied := s.apply(t, manager, secret)
	live := s.patch(t, "other", desired, types.MergePatchType, `{data: {password: Zm9v}}`)
	require.Equal(t, digest(t, applied), digest(t, live), "the digest cannot see it")
	require.True(t, covers(t, live, desired, manager), "neither can Covers")
	require.Equal(t, []string{`changed .stringData.password: "(masked)" -> "(masked)" (by "other")`},
		lines(t, desired, live, diff.Options{Manager: manager, Applied: true}))

	// As data it is seen.
	desired.Object = diff.SecretData(desired.Object)
	applied = s.apply(t, manager, text(desired.Object))
	still(t, applied, s.get(t, desired), desired)
	live = s.patch(t, "other", desired, types.MergePatchType, `{data: {password: Zm9v}}`)
	_, owned := diff.Digest(live, manager)
	require.False(t, owned)
	require.Equal(t, []string{`changed .data.password: "(masked)" -> "(masked)" (by "other")`},
		lines(t, desired, live, diff.Options{Manager: manager, Applied: true}))
}

// Case 5: optional fields left out, which the server fills in.
func TestOptionalFieldsLeftOutAreNoDifference(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	const minimal = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {selector: {matchLabels: {a: b}}, " +
		"template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}"
	desired := s.read(t, minimal)
	applied := s.apply(t, manager, minimal)
	require.Contains(t, text(applied.Object), `"terminationGracePeriodSeconds":30`)
	still(t, applied, s.get(t, desired), desired)
	require.Empty(t, lines(t, desired, applied, diff.Options{Manager: manager}), "nor without knowing what was applied")
}

// Case 6: one port number with two protocols, one of them by default.
func TestOnePortOfTwoProtocolsIsComparedExactly(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	const dns = "{apiVersion: v1, kind: Service, metadata: {name: dns}, spec: {selector: {a: b}, " +
		"ports: [{name: tcp, port: 53}, {name: udp, port: 53, protocol: UDP}]}}"
	desired := s.read(t, dns)
	applied := s.apply(t, manager, dns)
	still(t, applied, s.get(t, desired), desired)
	live := s.update(t, "other", desired, func(o map[string]any) {
		ports, _, err := unstructured.NestedSlice(o, "spec", "ports")
		require.NoError(t, err)
		ports[1].(map[string]any)["name"] = "renamed"
		require.NoError(t, unstructured.SetNestedSlice(o, ports, "spec", "ports"))
	})
	require.Equal(t, []string{`changed .spec.ports[port=53,protocol="UDP"].name: "renamed" -> "udp" (by "other")`},
		lines(t, desired, live, diff.Options{Manager: manager, Applied: true}))
	require.Equal(t, []string{`changed .spec.ports[port=53,protocol="UDP"].name: "renamed" -> "udp" (by "other")`},
		lines(t, desired, live, diff.Options{Manager: manager}))
}

// Case 7: a field removed from the desired object while another manager owns the
// same list item.
func TestARemovedItemThatAStaleManagerOwnsTooStays(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.apply(t, "old", "{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {ports: [{name: a, port: 1}, {name: b, port: 2}]}}")
	const two = "{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {ports: [{name: a, port: 1}, {name: b, port: 2}]}}"
	const one = "{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {ports: [{name: a, port: 1}]}}"
	live := s.apply(t, manager, two)
	desired := s.read(t, one)
	want := []string{
		`released .spec.ports[port=2,protocol="TCP"].name: "b", left (to "old")`,
		`released .spec.ports[port=2,protocol="TCP"].port: 2, left (to "old")`,
	}
	require.Equal(t, want, lines(t, desired, live, diff.Options{Manager: manager}))
	applied := s.apply(t, manager, one)
	require.Contains(t, text(applied.Object), `"name":"b"`, "it stays")
	still(t, applied, s.get(t, desired), desired)
}

// Case 8: the version that a CRD serves and we apply has moved on; our entry
// still names the old one.
func TestAnOldVersionInManagedFieldsIsStillOurs(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	schema := map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
		"spec": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
	}}}
	version := func(name string, storage, served bool) any {
		return map[string]any{"name": name, "served": served, "storage": storage, "schema": schema}
	}
	require.NoError(t, s.define(t, "bump.example.com", "Bump", []any{version("v1", true, true), version("v2", false, true)}))
	old := s.apply(t, manager, "{apiVersion: bump.example.com/v1, kind: Bump, metadata: {name: b}, spec: {a: 1, b: x}}")
	desired := s.read(t, "{apiVersion: bump.example.com/v2, kind: Bump, metadata: {name: b}, spec: {a: 1, b: x}}")
	live := s.get(t, desired)
	require.Equal(t, "bump.example.com/v1", diff.Entry(live.GetManagedFields(), manager).APIVersion)
	still(t, old, live, desired)
	s.patch(t, "other", desired, types.MergePatchType, "{spec: {a: 2}}")
	require.Equal(
		t,
		[]string{`changed .spec.a: 2 -> 1 (by "other")`},
		lines(t, desired, s.get(t, desired), diff.Options{Manager: manager, Applied: true}),
	)
	// An apply with the new version keeps one entry, in the new version: another
	// digest, once.
	applied := s.apply(t, manager, text(desired.Object))
	require.Equal(t, "bump.example.com/v2", diff.Entry(applied.GetManagedFields(), manager).APIVersion)
	still(t, applied, s.get(t, desired), desired)
}

// Case 12: replicas that the desired object leaves out belong to who scales.
func TestScalingWhatWasLeftOutIsNoDifference(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	rules, err := diff.NewIgnore(diff.Rule{Kind: "Deployment.apps", Paths: []string{".spec.replicas"}})
	require.NoError(t, err)
	desired := s.read(t, workload)
	desired.Object = rules.Strip(desired.Object)
	applied := s.apply(t, manager, text(desired.Object))
	s.patch(t, "autoscaler", desired, types.MergePatchType, "{spec: {replicas: 7}}", "scale")
	live := s.get(t, desired)
	require.Contains(t, text(live.Object), `"replicas":7`)
	still(t, applied, live, desired)

	// With replicas it is one. Whose, the server does not tell: it gives an
	// unowned field that is scaled no owner.
	whole := s.read(t, workload)
	require.Equal(t, []string{"changed .spec.replicas: 7 -> 2"}, lines(t, whole, live, diff.Options{Manager: manager}))
	applied = s.apply(t, manager, workload)
	s.patch(t, "autoscaler", whole, types.MergePatchType, "{spec: {replicas: 7}}", "scale")
	live = s.get(t, whole)
	differs(t, applied, live)
	require.Equal(t, []string{`changed .spec.replicas: 7 -> 2 (by "autoscaler" on scale)`},
		lines(t, whole, live, diff.Options{Manager: manager, Applied: true}))
}

// Giving a field away by a rule removes it, if no other manager owns it by then.
func TestAFieldIgnoredFromNowOnIsRemovedUnlessOthersOwnIt(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	rules, err := diff.NewIgnore(diff.Rule{Paths: []string{".spec.replicas"}})
	require.NoError(t, err)
	desired := s.read(t, workload)
	live := s.apply(t, manager, workload)
	desired.Object = rules.Strip(desired.Object)
	fields, err := diff.Fields(desired.Object, live.Object, diff.Options{Manager: manager})
	require.NoError(t, err)
	fields = rules.Filter(desired.Object, fields)
	require.Equal(t, []string{"removed .spec.replicas: 2 -> (absent)"}, show(fields), "Filter hides no loss")
	after := s.apply(t, manager, text(desired.Object))
	require.Contains(t, text(after.Object), `"replicas":1`, "the default")
}

// Case 13: managedFields wiped.
func TestWipedManagedFieldsAreNoticedAndThenQuiet(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	desired := s.read(t, workload)
	s.apply(t, manager, workload)
	live := s.patch(t, "other", desired, types.JSONPatchType, "[{op: replace, path: /metadata/managedFields, value: [{}]}]")
	_, owned := diff.Digest(live, manager)
	require.False(t, owned)
	require.False(t, diff.Tracked(live.Object))
	require.True(t, diff.States(live.Object, desired.Object), "the content is right")
	require.Empty(t, lines(t, desired, live, diff.Options{Manager: manager}))
	// The server does not track again by itself.
	live = s.patch(t, "other", desired, types.MergePatchType, "{spec: {replicas: 5}}")
	require.False(t, diff.Tracked(live.Object))
	require.False(t, diff.States(live.Object, desired.Object))
	require.Equal(t, []string{"changed .spec.replicas: 5 -> 2 (by content)"}, lines(t, desired, live, diff.Options{Manager: manager}))
	applied := s.apply(t, manager, workload)
	still(t, applied, s.get(t, desired), desired)
	entries := map[string]bool{}
	for _, e := range applied.GetManagedFields() {
		entries[e.Manager] = true
	}
	require.Equal(t, map[string]bool{manager: true, "before-first-apply": true}, entries, "what was there is its")
}

// differs asserts that the digest tells.
func differs(t *testing.T, applied, live *unstructured.Unstructured) {
	t.Helper()
	now, owned := diff.Digest(live, manager)
	require.False(t, owned && now == digest(t, applied), "the digest must tell")
}
