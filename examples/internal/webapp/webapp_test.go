package webapp_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/seed-9e1ffd66/trueup/examples/internal/webapp"
)

func newApp(config map[string]string) *webapp.WebApp {
	app := &webapp.WebApp{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1"}}
	app.Spec.Image, app.Spec.Replicas, app.Spec.Port, app.Spec.Config = "web:1", 2, 8080, config
	return app
}

func TestChildrenBelongToTheirAppAndFollowItsConfiguration(t *testing.T) {
	t.Parallel()
	kinds := func(app *webapp.WebApp) (kinds []string) {
		for _, child := range webapp.Children(app) {
			require.Equal(t, "u1", string(metav1.GetControllerOf(child).UID))
			kinds = append(kinds, child.GetKind()+" "+child.GetNamespace()+"/"+child.GetName())
		}
		return kinds
	}
	require.Equal(t, []string{"Deployment shop/web", "Service shop/web"}, kinds(newApp(nil)))
	require.Equal(
		t,
		[]string{"Deployment shop/web", "Service shop/web", "ConfigMap shop/web-config"},
		kinds(newApp(map[string]string{"COLOR": "blue"})),
	)
	template := func(color string) any {
		template, found, err := unstructured.NestedFieldNoCopy(
			webapp.Children(newApp(map[string]string{"COLOR": color}))[0].Object,
			"spec",
			"template",
		)
		require.NoError(t, err)
		require.True(t, found)
		return template
	}
	require.Equal(t, template("blue"), template("blue"))
	require.NotEqual(t, template("blue"), template("red"), "another configuration replaces the pods")
}

func TestACopySharesNothing(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	require.NoError(t, webapp.AddToScheme(scheme))
	list := &webapp.List{Items: []webapp.WebApp{*newApp(map[string]string{"COLOR": "blue"})}}
	copied := list.DeepCopyObject().(*webapp.List)
	require.Equal(t, list, copied)
	copied.Items[0].Spec.Config["COLOR"] = "red"
	require.Equal(t, "blue", list.Items[0].Spec.Config["COLOR"])
}
