package v1_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	webv1 "github.com/seed-9e1ffd66/trueup/examples/kubebuilder/api/v1"
)

func TestTheSampleIsASite(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../config/samples/web_v1_site.yaml")
	require.NoError(t, err)
	var site webv1.Site
	require.NoError(t, yaml.UnmarshalStrict(data, &site))
	require.Equal(t, webv1.SiteSpec{Image: "web:1", Replicas: 2, Page: "hello"}, site.Spec)
	scheme := runtime.NewScheme()
	require.NoError(t, webv1.AddToScheme(scheme))
	kinds, _, err := scheme.ObjectKinds(&site)
	require.NoError(t, err)
	require.Equal(t, site.GroupVersionKind(), kinds[0])
}
