package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestAnObjectNamesItsOwner(t *testing.T) {
	t.Parallel()
	yes := true
	for want, c := range map[string]struct {
		labels, annotations map[string]string
		controller          string
	}{
		"it is of Flux: shop; that tool must let it go, then: trueup adopt --from flux": {
			labels: map[string]string{"kustomize.toolkit.fluxcd.io/name": "shop"},
		},
		"it is of Flux: web; that tool must let it go, then: trueup adopt --from flux": {
			labels: map[string]string{"helm.toolkit.fluxcd.io/name": "web"},
		},
		"it is of Argo CD: shop:/ConfigMap:a/b; that tool must let it go, then: trueup adopt --from argocd": {
			annotations: map[string]string{"argocd.argoproj.io/tracking-id": "shop:/ConfigMap:a/b"},
		},
		"it is of Argo CD: shop; that tool must let it go, then: trueup adopt --from argocd": {
			labels: map[string]string{"argocd.argoproj.io/instance": "shop"},
		},
		"it is of the set one in the namespace two, part three": {
			labels: map[string]string{labelSet: "one", labelSetNamespace: "two", labelPart: "three"},
		},
		"it is controlled by ReplicaSet web": {controller: "web"},
		"kubectl apply made it; to take it: trueup adopt --from kubectl": {
			annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}"},
		},
		"made by alice,bob; to take it: trueup adopt --from alice,bob": {},
	} {
		live := &unstructured.Unstructured{Object: map[string]any{}}
		live.SetLabels(c.labels)
		live.SetAnnotations(c.annotations)
		if c.controller != "" {
			live.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: c.controller, Controller: &yes}})
		}
		live.SetManagedFields([]metav1.ManagedFieldsEntry{
			{Manager: "alice"}, {Manager: "kubelet", Subresource: "status"}, {Manager: "bob"}, {Manager: "alice"},
		})
		require.Equal(t, want, belongsTo(live))
	}
}
