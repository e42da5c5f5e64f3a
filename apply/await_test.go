package apply //nolint:testpackage // plays the watch, in orders that no server can be made to produce

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestWhatIsWaitedForWakesOnce(t *testing.T) {
	t.Parallel()
	n := name{"x", "a"}
	v, drifts := newView(t)
	write1(v, told("u", "12", ours))
	v.await(n, 12)
	require.Zero(t, *drifts, "it has not changed since it was read")
	require.NoError(t, v.Update(told("u", "11", ours)))
	require.Zero(t, *drifts, "nor by an old word")
	require.NoError(t, v.Update(told("u", "13", ours)))
	require.Equal(t, 1, *drifts)
	require.NoError(t, v.Update(told("u", "14", ours)))
	require.Equal(t, 1, *drifts, "nobody waits any more")

	v.await(n, 13)
	require.Equal(t, 2, *drifts, "it had changed before we began to wait")
	require.NoError(t, v.Update(told("u", "15", ours)))
	require.Equal(t, 2, *drifts)

	// A list may hide a change.
	v.await(n, 15)
	require.NoError(t, v.Replace([]any{told("u", "20", ours)}, "20"))
	require.Equal(t, 3, *drifts)
	require.NoError(t, v.Replace([]any{told("u", "20", ours)}, "21"))
	require.Equal(t, 3, *drifts)
}

func TestReadinessOfWhatIsNoLongerWantedIsForgotten(t *testing.T) {
	t.Parallel()
	var a Applier
	kept, gone := ID{Kind: "Widget", Name: "kept"}, ID{Kind: "Widget", Name: "gone"}
	a.statuses.set(kept, versioned{})
	a.statuses.set(gone, versioned{})
	a.forget(&Set{ids: map[ID]bool{kept: true}})
	require.Len(t, a.statuses.by, 1)
	require.Contains(t, a.statuses.by, kept)
}

func TestKindsComeInTheirOrder(t *testing.T) {
	t.Parallel()
	last := -1
	for _, stage := range [][]schema.GroupKind{
		{{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}, {Group: "apiregistration.k8s.io", Kind: "APIService"}},
		{{Kind: "Namespace"}},
		{
			{Kind: "ResourceQuota"},
			{Kind: "LimitRange"},
			{Group: "networking.k8s.io", Kind: "NetworkPolicy"},
			{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"},
			{Group: "scheduling.k8s.io", Kind: "PriorityClass"},
			{Group: "storage.k8s.io", Kind: "StorageClass"},
			{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"},
		},
		{{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}, {Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"}},
		{{Kind: "ServiceAccount"}, {Kind: "ConfigMap"}, {Kind: "Secret"}, {Kind: "PersistentVolume"}, {Kind: "PersistentVolumeClaim"}},
		{{Kind: "Service"}},
		{{Group: "apps", Kind: "Deployment"}, {Group: "batch", Kind: "Job"}, {Group: "example.com", Kind: "Widget"}, {Kind: "Pod"}},
		{{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}, {Group: "policy", Kind: "PodDisruptionBudget"}},
		{{Group: "networking.k8s.io", Kind: "Ingress"}, {Group: "gateway.networking.k8s.io", Kind: "HTTPRoute"}, {Group: "gateway.networking.k8s.io", Kind: "Gateway"}},
	} {
		for _, kind := range stage {
			require.Greater(t, stageOf(kind), last, "%s", kind)
			require.Equal(t, stageOf(stage[0]), stageOf(kind), "%s", kind)
		}
		last = stageOf(stage[0])
	}
	require.Equal(t, stageCount-1, last)
}

func TestADependencyComesBeforeWhatDependsOnItWithinAStage(t *testing.T) {
	t.Parallel()
	object := func(kind, name, after string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind}}
		o.SetNamespace("x")
		o.SetName(name)
		if after != "" {
			o.SetAnnotations(map[string]string{"example.com/depends-on": after})
		}
		return o
	}
	set, err := NewSet(Owner{Manager: "me", Domain: "example.com", Labels: map[string]string{"a": "b"}}, []*unstructured.Unstructured{
		object("ConfigMap", "a", "ConfigMap/x/b"), object("ConfigMap", "b", "ConfigMap/x/c"), object("ConfigMap", "c", ""), object("ConfigMap", "d", "Pod/x/p"), object("Pod", "p", ""),
	})
	require.NoError(t, err)
	var ranks [][]string
	for items := range set.ranks() {
		var names []string
		for i := range items {
			names = append(names, items[i].id.Name)
		}
		ranks = append(ranks, names)
	}
	require.Equal(t, [][]string{{"c"}, {"b"}, {"a"}, {"p"}, {"d"}}, ranks)
}
