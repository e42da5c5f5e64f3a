package upstream_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest/upstream"
)

// TestKindsAreThoseOfAServer compares kinds of each sort with those of a real server.
func TestKindsAreThoseOfAServer(t *testing.T) {
	t.Parallel()
	kinds, err := upstream.Kinds(
		scheme.Scheme, &corev1.Pod{}, &networkingv1.Ingress{}, &networkingv1.NetworkPolicy{}, &rbacv1.ClusterRole{}, &corev1.Node{},
		&admissionv1.ValidatingWebhookConfiguration{},
	)
	require.NoError(t, err)
	require.Equal(t, []simtest.Kind{
		{Version: "v1", Resource: "pods", Kind: "Pod", Status: true},
		{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses", Kind: "Ingress", Status: true},
		{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies", Kind: "NetworkPolicy"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles", Kind: "ClusterRole", Cluster: true},
		{Version: "v1", Resource: "nodes", Kind: "Node", Cluster: true, Status: true},
		{
			Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations",
			Kind: "ValidatingWebhookConfiguration", Cluster: true,
		},
	}, kinds)
	_, err = upstream.Kinds(runtime.NewScheme(), &corev1.Pod{})
	require.ErrorContains(t, err, "no kind is registered")
}

func TestKindsOfDefinitionsInFiles(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	write("widgets.yaml", `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, listKind: WidgetList, plural: widgets, singular: widget, shortNames: [wd]}
  versions:
    - {name: v1alpha1, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
    - {name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object}}}
---
apiVersion: v1
kind: ConfigMap
`)
	write("zones.yaml", `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": {"name": "zones.example.com"},
		"spec": {"group": "example.com", "scope": "Cluster", "names": {"kind": "Zone", "plural": "zones"},
		"versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}}`)
	kinds, err := upstream.Definitions(filepath.Join(folder, "*.yaml"))
	require.NoError(t, err)
	for i := range kinds {
		require.NotNil(t, kinds[i].Schema)
		kinds[i].Schema = nil
	}
	require.Equal(t, []simtest.Kind{
		{
			Group: "example.com", Version: "v1", Resource: "widgets", Kind: "Widget", Status: true, Singular: "widget",
			ShortNames: []string{"wd"},
		},
		{Group: "example.com", Version: "v1", Resource: "zones", Kind: "Zone", Cluster: true, Singular: "zone"},
	}, kinds)
	_, err = upstream.Definitions(filepath.Join(folder, "*.json"))
	require.ErrorContains(t, err, "must match files with definitions")
	write("broken.yaml", "kind: [")
	_, err = upstream.Definitions(filepath.Join(folder, "*.yaml"))
	require.ErrorContains(t, err, "broken.yaml")

	mapper := upstream.Mapper(kinds)
	for resource, scope := range map[string]meta.RESTScopeName{"widgets": meta.RESTScopeNameNamespace, "zones": meta.RESTScopeNameRoot} {
		kind, err := mapper.KindFor(schema.GroupVersionResource{Group: "example.com", Resource: resource})
		require.NoError(t, err)
		one, err := mapper.ResourceFor(schema.GroupVersionResource{Group: "example.com", Resource: strings.TrimSuffix(resource, "s")})
		require.NoError(t, err)
		require.Equal(t, resource, one.Resource)
		mapping, err := mapper.RESTMapping(kind.GroupKind(), "v1")
		require.NoError(t, err)
		require.Equal(t, resource, mapping.Resource.Resource)
		require.Equal(t, scope, mapping.Scope.Name())
	}
}
