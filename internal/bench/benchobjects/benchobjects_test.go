package benchobjects_test

import (
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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

// TestEachIsCalledOnceAndSoManyAtATime: each of four waits until there are four.
func TestEachIsCalledOnceAndSoManyAtATime(t *testing.T) {
	t.Parallel()
	const at = 4
	var calls [3 * at]atomic.Int64
	var begun atomic.Int64
	all := make(chan struct{})
	require.NoError(t, benchobjects.Each(len(calls), at, func(i int) error {
		calls[i].Add(1)
		if begun.Add(1) == at {
			close(all)
		}
		select {
		case <-all:
			return nil
		case <-time.After(20 * time.Second):
			return errors.New("they are not so many at a time")
		}
	}))
	for i := range calls {
		require.EqualValues(t, 1, calls[i].Load(), i)
	}
	var running, most atomic.Int64
	wrong, other := errors.New("wrong"), errors.New("other")
	err := benchobjects.Each(20, at, func(i int) error {
		defer running.Add(-1)
		if now := running.Add(1); now > at {
			most.Store(now)
		}
		return map[int]error{3: wrong, 19: other}[i]
	})
	require.Zero(t, most.Load(), "at once")
	require.ErrorIs(t, err, wrong)
	require.ErrorIs(t, err, other)
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
	managers, err := cluster.Kubectl(t.Context(), "get", "-n", "ns", "secret", "login-00003", "--show-managed-fields",
		"-o", "jsonpath={.metadata.managedFields[*].manager}")
	require.NoError(t, err)
	require.Contains(t, strings.Fields(managers), "intruder", "the edit is not the owner's")
	absent := (benchobjects.Mix{Namespace: "ns", Count: 11}).Objects()[10]
	ok, err := others.AsStated(t.Context(), absent)
	require.Error(t, err)
	require.False(t, ok, "what is not there is not as stated")
	scaled, err := cluster.Kubectl(t.Context(), "get", "-n", "ns", "deployment", "scaled-00005", "-o", "jsonpath={.spec.replicas}")
	require.NoError(t, err)
	require.Equal(t, "4", scaled)
	shared, err := cluster.Kubectl(t.Context(), "get", "-n", "ns", "configmap", "shared-00007", "-o", "jsonpath={.data.second}")
	require.NoError(t, err)
	require.Equal(t, "added", shared)
}
