package buffers_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/buffers"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/pools"
)

const domain nodes.Domain = "buffers.example.com"

// stocked returns a Controller that sees these Nodes, and the pool web, which may have five machines.
func stocked(machines ...*corev1.Node) (*buffers.Controller, *pools.Pool) {
	loop := &pools.ScaleUp{Cluster: nodes.New(domain, nodes.Zoned("fake", nil), func([]string, bool) {})}
	for _, n := range machines {
		loop.Cluster.SawNode(n)
	}
	return &buffers.Controller{ScaleUp: loop}, &pools.Pool{
		Spec: cloud.Pool{Size: 5}, Nodes: nodes.Pool{Domain: domain, Name: "web", UID: "u"}, Memory: &cloud.SharedMemory{},
	}
}

// machine is the Node of a machine of the pool web, which has attested its warm-up.
func machine(id string, state cloud.State, since string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        id,
			Labels:      map[string]string{domain.PoolLabel(): "web", domain.StateLabel(): string(state), string(domain) + "/state-since": since},
			Annotations: map[string]string{domain.AttestedAnnotation(): `{"bootID":"b"}`},
		},
		Spec: corev1.NodeSpec{ProviderID: "fake:///zone-a/" + id},
	}
}

func TestForBuffersAMachineThatWarmsUpIsStockAndDoesNotComeAsWell(t *testing.T) {
	t.Parallel()
	c, pool := stocked(machine("i-1", cloud.StateWarmup, "1"))
	pool.Plan = cloud.Plan{Counts: cloud.Counts{Coming: 1, Total: 1}}
	in := c.Input([]buffers.Ask{{Pod: &demand.Pod{}, Units: 1}}, map[string]*pools.Pool{"web": pool})
	require.Len(t, in.Pools, 1)
	require.Len(t, in.Pools[0].Standby, 1)
	require.Zero(t, in.Pools[0].Coming)
	require.Equal(t, 4, in.Pools[0].MaxLaunches)
}

func TestForBuffersMachinesOnStandbyComeBeforeThoseThatWarmUp(t *testing.T) {
	t.Parallel()
	c, pool := stocked(machine("i-1", cloud.StateWarmup, "1"), machine("i-2", cloud.StateStandby, "2"))
	in := c.Input([]buffers.Ask{{Pod: &demand.Pod{}, Units: 1}}, map[string]*pools.Pool{"web": pool})
	require.Len(t, in.Pools[0].Standby, 2)
	require.Equal(t, "i-2", in.Pools[0].Standby[0].Machine)
	require.Equal(t, map[string]bool{"i-2": true}, in.Ready)
}

// TestForBuffersAMachineWithoutANodeTakesRoom unless it warms up and is yet to join.
func TestForBuffersAMachineWithoutANodeTakesRoom(t *testing.T) {
	t.Parallel()
	c, pool := stocked(machine("i-1", cloud.StateStandby, "1"))
	pool.Plan.Machines = []cloud.MachineView{
		{ID: "i-1", Joined: true, State: cloud.StateStandby, Instance: cloud.InstanceStopped},
		{ID: "i-2", Joined: true, State: cloud.StateStandby, Instance: cloud.InstanceStopped}, // its Node went after the plan
		{ID: "i-3", State: cloud.StateRunning, Instance: cloud.InstanceRunning},
		{ID: "i-4", State: cloud.StateWarmup, Instance: cloud.InstancePending, Coming: true},
		{ID: "i-5", State: cloud.StateTerminating, Instance: cloud.InstanceTerminated},
	}
	in := c.Input([]buffers.Ask{{Pod: &demand.Pod{}, Units: 1}}, map[string]*pools.Pool{"web": pool})
	require.Len(t, in.Pools[0].Standby, 1)
	require.Equal(t, 2, in.Pools[0].MaxLaunches)
}

// TestForBuffersOnlyGoodMachinesCount has standby machines that a pass replaces: they take room, and are no stock.
func TestForBuffersOnlyGoodMachinesCount(t *testing.T) {
	t.Parallel()
	unproven, partly := machine("i-2", cloud.StateStandby, "2"), machine("i-3", cloud.StateStandby, "3")
	unproven.Annotations = nil
	partly.Annotations[domain.AttestedAnnotation()] = `{"bootID":"b","failed":["image"]}`
	c, pool := stocked(machine("i-1", cloud.StateStandby, "1"), unproven, partly, machine("i-4", cloud.StateStandby, "4"))
	pool.Memory.Take([]cloud.Instance{{ID: "i-1"}, {ID: "i-4"}}, time.Now())
	pool.Drifted = func(i cloud.Instance) bool { return i.ID == "i-1" }
	all := map[string]*pools.Pool{"web": pool}
	in := c.Input([]buffers.Ask{{Pod: &demand.Pod{}, Units: 1}}, all)
	require.Equal(t, map[string]bool{"i-4": true}, in.Ready)
	require.Equal(t, 1, in.Pools[0].MaxLaunches)
	pool.Spec.BestEffortImages = true
	in = c.Input([]buffers.Ask{{Pod: &demand.Pod{}, Units: 1}}, all)
	require.Equal(t, map[string]bool{"i-3": true, "i-4": true}, in.Ready)
}

func TestForBuffersAMachineThatStartsForAPodIsNoStock(t *testing.T) {
	t.Parallel()
	c, pool := stocked(machine("i-1", cloud.StateStandby, "1"), machine("i-2", cloud.StateStandby, "2"))
	pool.Capacity = func(int) demand.Resources { return demand.Resources{CPU: 4000, Memory: 16 << 30, Pods: 20} }
	all := map[string]*pools.Pool{"web": pool}
	c.ScaleUp.Pools, c.ScaleUp.Look = func() map[string]*pools.Pool { return all }, func(string) {}
	c.ScaleUp.Cluster.SawPod(types.NamespacedName{Name: "pod"}, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", UID: "pod"},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: metav1.Now(),
		}}},
	})
	require.Len(t, c.ScaleUp.Decide().Placements, 1)
	in := c.Input([]buffers.Ask{{Pod: &demand.Pod{}, Units: 1}}, all)
	require.Len(t, in.Ready, 1)
	require.Len(t, in.Pools[0].Standby, 1)
	require.Equal(t, 3, in.Pools[0].MaxLaunches)
}
