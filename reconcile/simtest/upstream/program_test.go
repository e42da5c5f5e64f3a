package upstream_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
