package benchobjects_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/internal/bench/benchobjects"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

func TestAMixHasDistinctObjectsOfItsKinds(t *testing.T) {
	t.Parallel()
	resources := benchobjects.Resources()
	seen := map[string]bool{}
	for _, o := range (benchobjects.Mix{Namespace: "ns", Count: 40}).Objects() {
		require.Contains(t, resources, o.GroupVersionKind())
		require.Equal(t, "ns", o.GetNamespace())
		require.False(t, seen[o.GetName()], o.GetName())
		seen[o.GetName()] = true
		o.DeepCopy() // panics for what the API machinery does not know
	}
	require.Len(t, seen, 40)
}

func TestACanonicalMixDiffersInQuantitiesOnly(t *testing.T) {
	t.Parallel()
	written, err := json.Marshal((benchobjects.Mix{Count: 10}).Objects())
	require.NoError(t, err)
	canonical, err := json.Marshal((benchobjects.Mix{Count: 10, Canonical: true}).Objects())
	require.NoError(t, err)
	require.Contains(t, string(written), `"cpu":"0.1"`)
	require.NotContains(t, string(canonical), `"cpu":"0.1"`)
	require.NotContains(t, string(canonical), "1024Mi")
}

func TestOthersEditWhatIsStatedAndAddToSome(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{})
	definition, err := json.Marshal(benchobjects.Definition())
	require.NoError(t, err)
	require.NoError(t, cluster.Apply(t.Context(), string(definition)))
	_, err = cluster.Kubectl(t.Context(), "wait", "--for=condition=Established", "crd", "--all")
	require.NoError(t, err)
	client, err := dynamic.NewForConfig(cluster.Config)
	require.NoError(t, err)
	others := benchobjects.Others{Client: client}
	require.NoError(t, others.Namespace(t.Context(), "ns"))
	objects := (benchobjects.Mix{Namespace: "ns", Count: 10}).Objects()
	for _, o := range objects {
		_, err := client.Resource(benchobjects.Resources()[o.GroupVersionKind()]).
			Namespace("ns").
			Create(t.Context(), o, metav1.CreateOptions{FieldManager: "owner"})
		require.NoError(t, err, o.GetName())
	}
	require.NoError(t, others.Share(t.Context(), objects))
	for _, o := range objects {
		ok, err := others.AsStated(t.Context(), o)
		require.NoError(t, err)
		require.True(t, ok, "what others add changes nothing that is stated: %s", o.GetName())
		require.NoError(t, others.Edit(t.Context(), o))
		ok, err = others.AsStated(t.Context(), o)
		require.NoError(t, err)
		require.False(t, ok, o.GetName())
	}
	scaled, err := cluster.Kubectl(t.Context(), "get", "-n", "ns", "deployment", "scaled-00005", "-o", "jsonpath={.spec.replicas}")
	require.NoError(t, err)
	require.Equal(t, "4", scaled)
	shared, err := cluster.Kubectl(t.Context(), "get", "-n", "ns", "configmap", "shared-00007", "-o", "jsonpath={.data.second}")
	require.NoError(t, err)
	require.Equal(t, "added", shared)
}
