package apply //nolint:testpackage // the order is decided within

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

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
			{Group: "crd.projectcalico.org", Kind: "NetworkPolicy"},
			{Group: "crd.projectcalico.org", Kind: "GlobalNetworkPolicy"},
			{Group: "cilium.io", Kind: "CiliumNetworkPolicy"},
			{Group: "cilium.io", Kind: "CiliumClusterwideNetworkPolicy"},
			{Group: "policy.networking.k8s.io", Kind: "AdminNetworkPolicy"},
			{Group: "policy.networking.k8s.io", Kind: "BaselineAdminNetworkPolicy"},
			{Group: "policy.networking.k8s.io", Kind: "ClusterNetworkPolicy"},
			{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"},
			{Group: "scheduling.k8s.io", Kind: "PriorityClass"},
			{Group: "storage.k8s.io", Kind: "StorageClass"},
		},
		{{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}, {Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"}},
		{{Kind: "ServiceAccount"}, {Kind: "ConfigMap"}, {Kind: "Secret"}, {Kind: "PersistentVolume"}, {Kind: "PersistentVolumeClaim"}},
		{{Kind: "Service"}},
		{{Group: "apps", Kind: "Deployment"}, {Group: "batch", Kind: "Job"}, {Group: "example.com", Kind: "Widget"}, {Kind: "Pod"}},
		{{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}, {Group: "policy", Kind: "PodDisruptionBudget"}},
		{{Group: "networking.k8s.io", Kind: "Ingress"}, {Group: "gateway.networking.k8s.io", Kind: "HTTPRoute"}, {Group: "gateway.networking.k8s.io", Kind: "Gateway"}},
		{
			{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration"},
			{Group: "admissionregistration.k8s.io", Kind: "MutatingWebhookConfiguration"},
			{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"},
		},
	} {
		for _, kind := range stage {
			require.Greater(t, stageOf(kind), last, "%s", kind)
			require.Equal(t, stageOf(stage[0]), stageOf(kind), "%s", kind)
		}
		last = stageOf(stage[0])
	}
	require.Equal(t, stageAdmission, last)
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
		object(
			"ConfigMap",
			"a",
			"ConfigMap/x/b",
		),
		object("ConfigMap", "b", "ConfigMap/x/c"),
		object("ConfigMap", "c", ""),
		object("ConfigMap", "d", "Pod/x/p"),
		object("Pod", "p", ""),
	}, SetOptions{})
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
