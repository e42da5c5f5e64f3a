package readiness_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme" //nolint:depguard // every type of Kubernetes, in a test alone

	"github.com/seed-9e1ffd66/trueup/apply/readiness"
)

// TestReadinessIsInTheMetadataOfKindsWhoseStatusDoesNotMatter goes by the types of
// Kubernetes, in every version: no such kind has a field in its status that Of looks at.
func TestReadinessIsInTheMetadataOfKindsWhoseStatusDoesNotMatter(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for kind, typ := range scheme.Scheme.AllKnownTypes() {
		if _, object := typ.FieldByName("ObjectMeta"); !object || kind.Version == "__internal" {
			continue
		}
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(kind)
		if !readiness.InMetadata(o) || kind.GroupKind() == (schema.GroupKind{Kind: "Service"}) {
			continue
		}
		found[kind.Kind] = true
		status, has := typ.FieldByName("Status")
		if !has || kind.Kind == "Namespace" { // its conditions are about its deletion
			continue
		}
		for _, field := range []string{"Conditions", "ObservedGeneration"} {
			_, matters := status.Type.FieldByName(field)
			require.False(t, matters, "%s has status.%s", kind, field)
		}
	}
	for _, kind := range []string{"ConfigMap", "Secret", "Role", "ClusterRoleBinding", "Ingress", "NetworkPolicy", "ResourceQuota", "StorageClass"} {
		require.True(t, found[kind], kind)
	}
	require.False(t, readiness.InMetadata(nil))
	custom := &unstructured.Unstructured{}
	custom.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "ConfigMap"})
	require.False(t, readiness.InMetadata(custom), "a custom kind may report anything")
}

func TestReadinessOfAServiceIsInItsMetadataUnlessItAsksForALoadBalancer(t *testing.T) {
	t.Parallel()
	service := func(spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Service", "spec": spec}}
	}
	require.True(t, readiness.InMetadata(service(nil)))
	require.True(t, readiness.InMetadata(service(map[string]any{"type": "NodePort"})))
	require.False(t, readiness.InMetadata(service(map[string]any{"type": "LoadBalancer"})))
}
