package upstream_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest/upstream"
)

func access(server http.RoundTripper) *rest.Config {
	return &rest.Config{Host: "http://simtest", Transport: server, QPS: -1, UserAgent: "test"}
}

func newServer() *simtest.Server {
	return &simtest.Server{
		Kinds: []simtest.Kind{
			{Version: "v1", Resource: "pods", Kind: "Pod", Status: true},
			{Version: "v1", Resource: "services", Kind: "Service", Status: true},
			{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Status: true, ShortNames: []string{"deploy"}},
			{Group: "example.com", Version: "v1", Resource: "widgets", Kind: "Widget", Status: true},
		},
		Machinery: &upstream.Machinery{Scheme: scheme.Scheme},
	}
}

func web() *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{
				{Name: "a", Image: "a:1"}, {Name: "b", Image: "b:1"},
			}}},
		},
	}
}

func TestATypedClientMaySendProtobuf(t *testing.T) {
	t.Parallel()
	config := access(newServer())
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	deployments := client.AppsV1().Deployments("shop")
	created, err := deployments.Create(t.Context(), web(), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, "b:1", created.Spec.Template.Spec.Containers[1].Image)
	require.EqualValues(t, 1, created.Generation)
	created.Status.Replicas = 2
	_, err = deployments.UpdateStatus(t.Context(), created, metav1.UpdateOptions{})
	require.NoError(t, err)
	scale, err := deployments.GetScale(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 2, scale.Status.Replicas)
	require.Equal(t, "app=web", scale.Status.Selector)
	scale.Spec.Replicas = 5
	_, err = deployments.UpdateScale(t.Context(), "web", scale, metav1.UpdateOptions{})
	require.NoError(t, err)
	now, err := deployments.Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 5, *now.Spec.Replicas)
	require.EqualValues(t, 2, now.Generation)
	wrong := types.UID("another")
	err = deployments.Delete(t.Context(), "web", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &wrong}})
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.NoError(t, deployments.Delete(t.Context(), "web", *metav1.NewDeleteOptions(0)))
	list, err := deployments.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, list.Items)
}

func TestAStrategicMergePatchChangesOneContainer(t *testing.T) {
	t.Parallel()
	client, err := kubernetes.NewForConfig(access(newServer()))
	require.NoError(t, err)
	deployments := client.AppsV1().Deployments("shop")
	_, err = deployments.Create(t.Context(), web(), metav1.CreateOptions{})
	require.NoError(t, err)
	patch := `{"spec":{"template":{"spec":{"containers":[{"name":"b","image":"b:2"}]}}}}`
	patched, err := deployments.Patch(t.Context(), "web", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
	require.Equal(t, "a:1", patched.Spec.Template.Spec.Containers[0].Image)
	require.Equal(t, "b:2", patched.Spec.Template.Spec.Containers[1].Image)
	patch = `[{"op":"test","path":"/spec/replicas","value":2},{"op":"replace","path":"/spec/replicas","value":3}]`
	patched, err = deployments.Patch(t.Context(), "web", types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 3, *patched.Spec.Replicas)
	_, err = deployments.Patch(t.Context(), "web", types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	require.True(t, apierrors.IsInvalid(err), "the test does not hold any more: %v", err)
}

func TestManagersShareAListByItsKeys(t *testing.T) {
	t.Parallel()
	client, err := kubernetes.NewForConfig(access(newServer()))
	require.NoError(t, err)
	services := client.CoreV1().Services("shop")
	apply := func(manager, ports string) (*corev1.Service, error) {
		config := `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"},"spec":{"ports":[` + ports + `]}}`
		return services.Patch(t.Context(), "web", types.ApplyPatchType, []byte(config), metav1.PatchOptions{FieldManager: manager})
	}
	_, err = apply("a", `{"port":80,"protocol":"TCP","name":"http"}`)
	require.NoError(t, err)
	both, err := apply("b", `{"port":443,"protocol":"TCP","name":"https"}`)
	require.NoError(t, err, "another item of the list")
	require.Len(t, both.Spec.Ports, 2)
	_, err = apply("b", `{"port":80,"protocol":"TCP","name":"mine"}`)
	require.True(t, apierrors.IsConflict(err), "%v", err)
}

func TestAnApplyOfYAMLAndFinalizersOfACustomResource(t *testing.T) {
	t.Parallel()
	send := func(server http.RoundTripper, manager, finalizer string) (int, string) {
		return patch(
			t,
			server,
			"/apis/example.com/v1/namespaces/shop/widgets/web?force=true&fieldManager="+manager,
			"application/apply-patch+yaml",
			"apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: web, finalizers: ["+finalizer+"]}\nspec: {size: 1}\n",
		)
	}
	server := newServer()
	code, body := send(server, "a", "example.com/a")
	require.Equal(t, http.StatusCreated, code, body)
	code, body = send(server, "b", "example.com/b")
	require.Equal(t, http.StatusOK, code, body)
	require.Contains(t, body, `"finalizers":["example.com/a","example.com/b"]`, "a set, as in every kind")
}

func TestAClientFindsTheKindsByDiscovery(t *testing.T) {
	t.Parallel()
	client, err := discovery.NewDiscoveryClientForConfig(access(newServer()))
	require.NoError(t, err)
	version, err := client.ServerVersion()
	require.NoError(t, err)
	require.Equal(t, "1", version.Major)
	for _, legacy := range []bool{false, true} {
		client.UseLegacyDiscovery = legacy
		mapper := restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client)), client, nil)
		mapping, err := mapper.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Widget"})
		require.NoError(t, err)
		require.Equal(t, "widgets", mapping.Resource.Resource)
		short, err := mapper.ResourceFor(schema.GroupVersionResource{Resource: "deploy"})
		require.NoError(t, err)
		require.Equal(t, "apps", short.Group)
		lease, err := mapper.RESTMapping(schema.GroupKind{Group: "coordination.k8s.io", Kind: "Lease"})
		require.NoError(t, err)
		require.Equal(t, "v1", lease.Resource.Version)
	}
}
