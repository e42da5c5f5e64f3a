package controller_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	webv1 "github.com/seed-9e1ffd66/trueup/examples/kubebuilder/api/v1"
	"github.com/seed-9e1ffd66/trueup/examples/kubebuilder/internal/controller"
)

func TestASiteHasItsChildren(t *testing.T) {
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: scheme.Scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
	require.NoError(t, err)
	require.NoError(t, controller.SetupWithManager(mgr))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()

	site := &webv1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "home"}}
	site.Spec = webv1.SiteSpec{Image: "web:1", Replicas: 2, Page: "hello"}
	require.NoError(t, k8sClient.Create(t.Context(), site))
	key := client.ObjectKeyFromObject(site)
	deployment, page := &appsv1.Deployment{}, &corev1.ConfigMap{}
	require.Eventually(t, func() bool {
		return k8sClient.Get(t.Context(), key, deployment) == nil && k8sClient.Get(t.Context(), key, page) == nil
	}, time.Minute, 10*time.Millisecond)
	require.Equal(t, "web:1", deployment.Spec.Template.Spec.Containers[0].Image)
	require.Equal(t, "hello", page.Data["index.html"])
	cancel()
	require.NoError(t, <-done)
}

// The role grants exactly the rules of the operator.
func TestTheMarkersAreTheRightsOfTheOperator(t *testing.T) {
	data, err := os.ReadFile("../../config/rbac/role.yaml")
	require.NoError(t, err)
	var role rbacv1.ClusterRole
	require.NoError(t, yaml.Unmarshal(data, &role))
	o := controller.NewOperator()
	o.Kind = webv1.GroupVersion.WithKind("Site")
	require.Equal(t, rights(o.Rules()), rights(role.Rules))
}

// rights returns each right of some rules.
func rights(rules []rbacv1.PolicyRule) map[string]bool {
	all := map[string]bool{}
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					all[verb+" "+resource+"."+group] = true
				}
			}
		}
	}
	return all
}
