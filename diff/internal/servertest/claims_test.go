package servertest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/diff"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// The tests of this file hold each claim of the package's documentation against
// the server, one by one.

const config = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, finalizers: [example.com/hold]}, data: {a: '1', b: '2'}}"

// secondLater waits until the clock shows another second than our entry, whose
// time has no finer resolution.
func secondLater(t *testing.T, applied *unstructured.Unstructured) {
	t.Helper()
	at := diff.Entry(applied.GetManagedFields(), manager).Time.Unix()
	await.Until(t, waitLimit, "time.Now().Unix() > at", func() bool { return time.Now().Unix() > at })
}

func TestARepeatedApplyChangesNeitherVersionNorTime(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	desired := s.read(t, config)
	applied := s.apply(t, manager, config)
	secondLater(t, applied)
	again := s.apply(t, manager, config)
	require.Equal(t, applied.GetResourceVersion(), again.GetResourceVersion())
	require.Equal(t, diff.Entry(applied.GetManagedFields(), manager).Time, diff.Entry(again.GetManagedFields(), manager).Time)
	still(t, applied, again, desired)
}

func TestWhatOthersAddOrRepeatLeavesOurSetAsItIs(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	desired := s.read(t, config)
	applied := s.apply(t, manager, config)
	secondLater(t, applied)
	s.patch(
		t,
		"other",
		desired,
		types.MergePatchType,
		"{data: {c: '3'}, metadata: {labels: {x: z}, finalizers: [example.com/hold, example.com/other]}}",
	)
	still(t, applied, s.get(t, desired), desired)
	s.patch(t, "other", desired, types.MergePatchType, "{data: {a: '1'}}")
	s.update(t, "editor", desired, func(map[string]any) {})
	still(t, applied, s.get(t, desired), desired)
	s.apply(t, "co-owner", "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: '1'}}")
	still(t, applied, s.get(t, desired), desired)
}

func TestAnyForeignChangeTakesTheFieldForGood(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(*testing.T, *server, *unstructured.Unstructured){
		"a merge patch": func(t *testing.T, s *server, u *unstructured.Unstructured) {
			t.Helper()
			s.patch(t, "other", u, types.MergePatchType, "{data: {a: x}}")
		},
		"an update": func(t *testing.T, s *server, u *unstructured.Unstructured) {
			t.Helper()
			s.update(t, "other", u, func(o map[string]any) { o["data"].(map[string]any)["a"] = "x" })
		},
		"an update under our name": func(t *testing.T, s *server, u *unstructured.Unstructured) {
			t.Helper()
			s.patch(t, manager, u, types.MergePatchType, "{data: {a: x}}")
		},
		"a forced apply": func(t *testing.T, s *server, _ *unstructured.Unstructured) {
			t.Helper()
			s.apply(t, "other", "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: x}}")
		},
		"a removal": func(t *testing.T, s *server, u *unstructured.Unstructured) {
			t.Helper()
			s.patch(t, "other", u, types.MergePatchType, "{data: {a: null}}")
		},
		"the removal of an element of a set": func(t *testing.T, s *server, u *unstructured.Unstructured) {
			t.Helper()
			s.patch(t, "other", u, types.MergePatchType, "{metadata: {finalizers: []}}")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			desired := s.read(t, config)
			applied := s.apply(t, manager, config)
			write(t, s, desired)
			live := s.get(t, desired)
			differs(t, applied, live)
			require.False(t, covers(t, live, desired, manager))
			require.Len(t, lines(t, desired, live, diff.Options{Manager: manager, Applied: true}), 1)
			// Setting it back returns the value, not the ownership.
			s.patch(t, "other", desired, types.MergePatchType, "{data: {a: '1'}, metadata: {finalizers: [example.com/hold]}}")
			live = s.get(t, desired)
			differs(t, applied, live)
			require.False(t, covers(t, live, desired, manager))
			fields, err := diff.Fields(desired.Object, live.Object, diff.Options{Manager: manager, Applied: true})
			require.NoError(t, err)
			require.Len(t, fields, 1)
			require.Equal(t, diff.Taken, fields[0].Difference)
			require.NotEmpty(t, fields[0].By)
			// Only our apply does.
			applied = s.apply(t, manager, config)
			still(t, applied, s.get(t, desired), desired)
		})
	}
}

func TestAChangeByACoOwnerTakesTheFieldFromUs(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	desired := s.read(t, config)
	applied := s.apply(t, manager, config)
	s.apply(t, "co-owner", "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: '1'}}")
	still(t, applied, s.get(t, desired), desired)
	s.apply(t, "co-owner", "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: x}}")
	live := s.get(t, desired)
	differs(t, applied, live)
	require.Equal(
		t,
		[]string{`changed .data.a: "x" -> "1" (by "co-owner")`},
		lines(t, desired, live, diff.Options{Manager: manager, Applied: true}),
	)
}

func TestStatusWritesAreNoneOfOurBusiness(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	desired := s.read(t, workload)
	applied := s.apply(t, manager, workload)
	s.patch(t, "controller", desired, types.MergePatchType, "{status: {replicas: 2, observedGeneration: 1}}", "status")
	live := s.get(t, desired)
	require.Contains(t, text(live.Object), `"observedGeneration":1`)
	still(t, applied, live, desired)

	// A desired object that states a status: the server neither takes nor owns it.
	require.NoError(t, unstructured.SetNestedField(desired.Object, int64(9), "status", "replicas"))
	applied = s.apply(t, manager, text(desired.Object))
	require.NotContains(t, text(applied.Object), `"replicas":9`)
	require.Equal(t, digest(t, live), digest(t, applied))
	require.False(t, covers(t, applied, desired, manager), "so leave it out: Covers is never true with it")
	require.Empty(t, lines(t, desired, applied, diff.Options{Manager: manager, Applied: true}))
}

func TestAnAtomicListIsOneField(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	const policy = "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: np}, spec: {podSelector: {}, " +
		"policyTypes: [Ingress], ingress: [{ports: [{port: 80}]}]}}"
	desired := s.read(t, policy)
	applied := s.apply(t, manager, policy)
	require.Contains(t, text(applied.Object), `"protocol":"TCP"`, "a default within it")
	still(t, applied, s.get(t, desired), desired)
	require.Empty(t, lines(t, desired, applied, diff.Options{Manager: manager}))
	live := s.patch(t, "other", desired, types.MergePatchType, "{spec: {policyTypes: [Ingress, Egress]}}")
	differs(t, applied, live)
	require.Equal(t, []string{`changed .spec.policyTypes: ["Ingress","Egress"] -> ["Ingress"] (by "other")`},
		lines(t, desired, live, diff.Options{Manager: manager, Applied: true}))
}

// What the digest cannot see, one: the order of a list that is merged by item.
func TestTheOrderOfItemsIsNotOwned(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	const service = "{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {ports: [{name: a, port: 1}, {name: b, port: 2}]}}"
	desired := s.read(t, service)
	applied := s.apply(t, manager, service)
	live := s.update(t, "other", desired, func(o map[string]any) {
		ports, _, err := unstructured.NestedSlice(o, "spec", "ports")
		require.NoError(t, err)
		ports[0], ports[1] = ports[1], ports[0]
		require.NoError(t, unstructured.SetNestedSlice(o, ports, "spec", "ports"))
	})
	require.NotEqual(t, applied.GetResourceVersion(), live.GetResourceVersion())
	require.Equal(t, digest(t, applied), digest(t, live))
	fields, err := diff.Fields(desired.Object, live.Object, diff.Options{Manager: manager, Applied: true})
	require.NoError(t, err)
	require.Len(t, fields, 1)
	require.Equal(t, diff.Reordered, fields[0].Difference)
	after := s.apply(t, manager, service)
	require.Equal(t, text(contentOf(applied.Object)), text(contentOf(after.Object)), "an apply restores it")
}

// What the digest may not see, two: an apply of the same fields under our name.
func TestAnApplyUnderOurNameIsOurs(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	desired := s.read(t, config)
	applied := s.apply(t, manager, config)
	secondLater(t, applied)
	live := s.apply(t, manager, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, finalizers: [example.com/hold]}, data: {a: x, b: '2'}}")
	require.True(t, covers(t, live, desired, manager), "the fields are the same")
	differs(t, applied, live)
}

// What the digest cannot see, three: what the desired object leaves to a default.
func TestAChangedDefaultIsNotOurs(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	desired := s.read(t, workload)
	applied := s.apply(t, manager, workload)
	live := s.patch(t, "other", desired, types.MergePatchType, "{spec: {revisionHistoryLimit: 3}}")
	still(t, applied, live, desired)
}

func TestAFieldThatTheServerDoesNotKnowIsRefused(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	require.NoError(t, s.define(t, "drop.example.com", "Drop", []any{map[string]any{
		"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{
			"type": "object", "properties": map[string]any{"spec": map[string]any{
				"type": "object", "properties": map[string]any{"a": map[string]any{"type": "string"}},
			}},
		}},
	}}))
	const dropped = "{apiVersion: drop.example.com/v1, kind: Drop, metadata: {name: d}, spec: {a: x, unknown: z}}"
	desired := s.read(t, dropped)
	_, err := s.tryApply(t.Context(), manager, desired, metav1.ApplyOptions{Force: true})
	require.ErrorContains(t, err, ".spec.unknown: field not declared in schema")
}
