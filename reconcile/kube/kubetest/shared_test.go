package kubetest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube/kubetest"
)

var shared kubetest.Shared

func TestMain(m *testing.M) { shared.Main(m) }

func TestASharedClusterIsStartedOnceAndEachNamespaceIsNew(t *testing.T) {
	t.Parallel()
	one, two := shared.Cluster(t), shared.Cluster(t)
	require.Same(t, one, two)
	first, second := one.Namespace(t), two.Namespace(t)
	require.NotEqual(t, first, second)
	_, err := one.Kubectl(t.Context(), "get", "namespace", first, second)
	require.NoError(t, err)
}

func TestWhatWasNeverStartedStops(t *testing.T) {
	t.Parallel()
	new(kubetest.Shared).Stop()
}
