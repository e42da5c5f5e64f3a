package operator //nolint:testpackage // what buffers are planned on is not exported

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/pools"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/internal/buffer"
)

func TestForBuffersAMachineThatWarmsUpIsStockAndDoesNotComeAsWell(t *testing.T) {
	t.Parallel()
	o := &operator{now: time.Now, cluster: newCluster(), demand: &pools.ScaleUp{}}
	n := machine()
	n.Labels[v1alpha1.LabelState] = "warmup"
	o.cluster.SawNode(n)
	pool := &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: v1alpha1.NodePoolSpec{PoolSize: 5}}
	state := &poolState{op: o, pool: pool, kept: &poolMemory{}, machines: pools.Pool{
		Spec: cloud.Pool{Size: 5}, Nodes: nodesOf(pool), Memory: &cloud.SharedMemory{},
		Plan: cloud.Plan{Counts: cloud.Counts{Coming: 1, Total: 1}},
	}}
	asked := map[types.NamespacedName]bufferAsk{{Name: "b"}: {Asked: buffer.Asked{Pod: &demand.Pod{}, Units: 1}}}
	in := (&buffers{op: o}).input(asked, map[string]*poolState{"web": state})
	require.Len(t, in.Pools, 1)
	require.Len(t, in.Pools[0].Standby, 1)
	require.Zero(t, in.Pools[0].Coming)
	require.Equal(t, 4, in.Pools[0].MaxLaunches)
}
