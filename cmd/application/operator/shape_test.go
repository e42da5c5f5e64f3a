package operator //nolint:testpackage // what is rendered is not exported

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
)

// TestTheAppIsShapedAsItsSpecSays: a preview's namespace lacks the Secrets of its parent.
func TestTheAppIsShapedAsItsSpecSays(t *testing.T) {
	t.Parallel()
	w, app := site(t), small()
	app.Spec.Port, app.Spec.HealthPath, app.Spec.Command = 8080, "/up", []string{"/bin/serve", "--fast"}
	app.Spec.ImagePullSecrets = []v1alpha1.ImagePullSecret{{Name: "registry"}}
	preview := &v1alpha1.PreviewEnvironment{}
	preview.Name, preview.Namespace, preview.UID = "shop-7", "team", "3f6c2c0e-0000-4000-8000-000000000007"
	preview.Spec = v1alpha1.PreviewEnvironmentSpec{ApplicationRef: "shop", PullRequest: 7, Branch: "feature", ImageRef: "shop:pr-7"}
	for secrets, s := range map[string]subject{"registry": w.application(app), "": w.copyOf(preview, app)} {
		_, objects := rendered(t, w, s)
		kinds := map[string]*unstructured.Unstructured{}
		for _, o := range objects {
			if o.GetName() == s.names.Workload() {
				kinds[o.GetKind()] = o
			}
		}
		spec := func(kind string, path ...string) any {
			found, _, err := unstructured.NestedFieldNoCopy(kinds[kind].Object, append([]string{"spec"}, path...)...)
			require.NoError(t, err)
			return found
		}
		container := spec("Deployment", "template", "spec", "containers").([]any)[0].(object)
		require.Equal(t, []any{"/bin/serve", "--fast"}, container["command"])
		require.Equal(t, []any{object{"name": "http", "containerPort": int64(8080), "protocol": "TCP"}}, container["ports"])
		for _, probe := range []string{"readinessProbe", "livenessProbe"} {
			require.Equal(t, object{"path": "/up", "port": "http"}, container[probe].(object)["httpGet"], probe)
		}
		require.Equal(t, int64(8080), spec("Service", "ports").([]any)[0].(object)["targetPort"])
		require.Equal(t, []any{object{"protocol": "TCP", "port": int64(8080)}}, spec("NetworkPolicy", "ingress").([]any)[0].(object)["ports"])
		if secrets == "" {
			require.Nil(t, spec("Deployment", "template", "spec", "imagePullSecrets"))
		} else {
			require.Equal(t, []any{object{"name": secrets}}, spec("Deployment", "template", "spec", "imagePullSecrets"))
		}
	}
}

// TestResourcesAreCompleted: a request without a limit, or a limit without a request, stays so.
func TestResourcesAreCompleted(t *testing.T) {
	t.Parallel()
	list := func(name corev1.ResourceName, quantity string) corev1.ResourceList {
		return corev1.ResourceList{name: resource.MustParse(quantity)}
	}
	for name, c := range map[string]struct {
		stated           corev1.ResourceRequirements
		requests, limits object
	}{
		"none": {
			requests: object{"cpu": "100m", "memory": "256Mi"}, limits: object{"cpu": "1", "memory": "512Mi"},
		},
		"a request": {
			stated:   corev1.ResourceRequirements{Requests: list(corev1.ResourceMemory, "1Gi")},
			requests: object{"cpu": "100m", "memory": "1Gi"}, limits: object{"cpu": "1"},
		},
		"a limit": {
			stated:   corev1.ResourceRequirements{Limits: list(corev1.ResourceCPU, "2")},
			requests: object{"memory": "256Mi"}, limits: object{"cpu": "2", "memory": "512Mi"},
		},
		"both": {
			stated:   corev1.ResourceRequirements{Requests: list(corev1.ResourceCPU, "50m"), Limits: list(corev1.ResourceCPU, "2")},
			requests: object{"cpu": "50m", "memory": "256Mi"}, limits: object{"cpu": "2", "memory": "512Mi"},
		},
		"another": {
			stated:   corev1.ResourceRequirements{Limits: list("example.com/gpu", "1")},
			requests: object{"cpu": "100m", "memory": "256Mi"}, limits: object{"cpu": "1", "memory": "512Mi", "example.com/gpu": "1"},
		},
	} {
		require.Equal(t, object{"requests": c.requests, "limits": c.limits}, resources(c.stated), name)
	}
}
