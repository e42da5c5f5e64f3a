package operator //nolint:testpackage // what is known of a Node is not exported

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/cloud/kube/pools"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

// TestANodeThatNoEventShowedIsForgotten has a Node that this process has made, and that was
// deleted while the watch was away.
func TestANodeThatNoEventShowedIsForgotten(t *testing.T) {
	t.Parallel()
	server := &simtest.Server{Kinds: []simtest.Kind{{Version: "v1", Resource: "nodes", Kind: "Node", Cluster: true, Status: true}}}
	client, err := dynamic.NewForConfig(&rest.Config{Host: "http://simtest", Transport: server})
	require.NoError(t, err)
	o := &operator{client: client, now: time.Now, cluster: newCluster(), demand: &pools.ScaleUp{}}
	o.cluster.SawNode(machine())
	m := o.marksOf(&v1alpha1.NodePool{})
	m.Look = func(nodes ...types.NamespacedName) {
		for _, key := range nodes {
			_, err := o.reconcileNode(t.Context(), key, nil) // as with a watch that does not have it
			require.NoError(t, err)
		}
	}
	require.True(t, apierrors.IsNotFound(m.SetEmpty(t.Context(), "node", true)))
	_, known := o.cluster.Node("node")
	require.False(t, known)
}
