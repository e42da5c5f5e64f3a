package operator //nolint:testpackage // what is read of a pod is not exported

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
)

// bound returns a pod on the Node of machine() that tolerates every taint.
func bound(change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", UID: "pod"},
		Spec:       corev1.PodSpec{NodeName: "node", Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
	if change != nil {
		change(p)
	}
	return p
}

func TestAPodWaitsForAStandbyMachineIfNothingElseEndsIt(t *testing.T) {
	t.Parallel()
	tolerates := func(all ...corev1.Toleration) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Tolerations = all }
	}
	owned := func(kind string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Controller: new(true)}} }
	}
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		want   int
	}{
		"it tolerates everything":     {nil, 1},
		"of a Deployment":             {owned("ReplicaSet"), 1},
		"that is being deleted":       {func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }, 1},
		"the taint of a standby Node": {tolerates(corev1.Toleration{Key: v1alpha1.TaintStandby, Operator: corev1.TolerationOpExists}), 1},
		"the taint and its value":     {tolerates(corev1.Toleration{Key: v1alpha1.TaintStandby, Value: "true", Effect: corev1.TaintEffectNoExecute}), 1},
		"no taint: it is evicted":     {tolerates(), 0},
		"another taint":               {tolerates(corev1.Toleration{Key: "other", Operator: corev1.TolerationOpExists}), 0},
		"no taint that evicts":        {tolerates(corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}), 0},
		"of a DaemonSet":              {owned("DaemonSet"), 0},
		"of a file of the kubelet":    {func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }, 0},
		"that has ended":              {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, 0},
		"on no Node":                  {func(p *corev1.Pod) { p.Spec.NodeName = "" }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(func([]string, bool) {})
			w.sawNode(machine())
			w.sawPod(types.NamespacedName{Name: "pod"}, bound(c.change))
			machines := w.machines("web", "", nil)
			require.Len(t, machines, 1)
			require.Equal(t, c.want, machines[0].status.Waiting)
		})
	}
}

// TestTheRoomOfABoundPodIsOfferedToNoOther is about other pods that look for a machine, before
// and during the start of one that a pod is bound to.
func TestTheRoomOfABoundPodIsOfferedToNoOther(t *testing.T) {
	t.Parallel()
	for state, sites := range map[cloud.State]func(demand.Input) []*demand.Node{
		cloud.StateStandby: func(in demand.Input) []*demand.Node { return in.Supplies[0].Standby },
		cloud.StateRunning: func(in demand.Input) []*demand.Node { return []*demand.Node{in.Starting[0].Node} },
	} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			o := &operator{now: func() time.Time { return started }, world: newWorld(func([]string, bool) {})}
			n := machine()
			n.Labels[v1alpha1.LabelState], n.Annotations[v1alpha1.AnnotationScaleUpStarted] = string(state), formatTime(started)
			o.world.sawNode(n)
			o.world.sawPod(types.NamespacedName{Name: "pod"}, bound(nil))
			o.world.sawPod(types.NamespacedName{Name: "other"}, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "other", UID: "other"},
				Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
					Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
					LastTransitionTime: metav1.NewTime(started),
				}}},
			})
			pool := &poolState{op: o, pool: &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, kept: &poolMemory{}}
			in, _ := newDemand(o).input(map[string]*poolState{"web": pool}, started)
			found := sites(in)
			require.Len(t, found, 1)
			require.Len(t, found[0].Pods, 1)
			require.Equal(t, "pod", found[0].Pods[0].Name)
		})
	}
}

// TestAReadyMachineIsKeptForItsPodsUntilTheyAreBound has a machine that was started for a pod, and
// is ready. Another pod that comes meanwhile gets a machine of its own.
func TestAReadyMachineIsKeptForItsPodsUntilTheyAreBound(t *testing.T) {
	t.Parallel()
	o := &operator{now: func() time.Time { return started }, world: newWorld(func([]string, bool) {})}
	n := machine()
	n.Labels[v1alpha1.LabelState], n.Spec.Taints, n.Spec.Unschedulable = string(cloud.StateRunning), nil, false
	n.Annotations = nil
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Status.Allocatable = corev1.ResourceList{
		"cpu": resource.MustParse("4"), "memory": resource.MustParse("16Gi"), "pods": resource.MustParse("20"),
	}
	o.world.sawNode(n)
	wait := func(name string) {
		o.world.sawPod(types.NamespacedName{Name: name}, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("3")}},
			}}},
			Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
				LastTransitionTime: metav1.NewTime(started),
			}}},
		})
	}
	wait("later")
	wait("another")
	id := o.world.nodes[n.Name].status.ID
	d := newDemand(o)
	d.reservations = []demand.Reservation{{Machine: id, Pods: []string{"later"}, Deadline: started.Add(time.Second)}}
	pools := map[string]*poolState{"web": {op: o, pool: &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, kept: &poolMemory{}}}
	placed := func(now time.Time) string {
		in, _ := d.input(pools, now)
		for _, p := range demand.Place(in).Placements {
			if p.Node.Machine == id {
				return p.Pod.Name
			}
		}
		return ""
	}
	require.Equal(t, "later", placed(started), "the other one would come first by its name")
	require.True(t, d.reserved()[id])
	require.Equal(t, "another", placed(started.Add(time.Second)), "its deadline is over")
	require.False(t, d.reserved()[id])

	d.reservations = []demand.Reservation{{Machine: id, Pods: []string{"later"}, Deadline: started.Add(time.Second)}}
	o.world.sawPod(types.NamespacedName{Name: "later"}, nil)
	require.Equal(t, "another", placed(started), "its pod is gone")
	require.False(t, d.reserved()[id])
}
