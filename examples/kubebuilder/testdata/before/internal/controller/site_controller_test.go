package controller_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webv1 "github.com/seed-9e1ffd66/trueup/examples/kubebuilder/api/v1"
	"github.com/seed-9e1ffd66/trueup/examples/kubebuilder/internal/controller"
)

func TestASiteHasItsChildren(t *testing.T) {
	site := &webv1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "home"}}
	site.Spec = webv1.SiteSpec{Image: "web:1", Replicas: 2, Page: "hello"}
	require.NoError(t, k8sClient.Create(t.Context(), site))
	key := client.ObjectKeyFromObject(site)
	r := &controller.SiteReconciler{Client: k8sClient, Scheme: scheme.Scheme}
	_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	require.NoError(t, err)

	deployment, page := &appsv1.Deployment{}, &corev1.ConfigMap{}
	require.NoError(t, k8sClient.Get(t.Context(), key, deployment))
	require.Equal(t, "web:1", deployment.Spec.Template.Spec.Containers[0].Image)
	require.NoError(t, k8sClient.Get(t.Context(), key, page))
	require.Equal(t, "hello", page.Data["index.html"])
}
