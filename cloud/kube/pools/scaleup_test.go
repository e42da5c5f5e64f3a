package pools //nolint:testpackage // what a decision reads is not exported

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
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
)

// bound returns a pod on the Node of machine() that tolerates every taint.
func bound() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", UID: "pod"},
		Spec:       corev1.PodSpec{NodeName: "node", Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
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
			s := &ScaleUp{Cluster: newCluster()}
			n := machine()
			n.Labels[domain.StateLabel()], n.Annotations[string(domain)+"/scale-up-started"] = string(state), started.Format(time.RFC3339)
			s.Cluster.SawNode(n)
			s.Cluster.SawPod(types.NamespacedName{Name: "pod"}, bound())
			s.Cluster.SawPod(types.NamespacedName{Name: "other"}, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "other", UID: "other"},
				Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
					Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
					LastTransitionTime: metav1.NewTime(started),
				}}},
			})
			in, _ := s.input(map[string]*Pool{"web": web()}, started)
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
	s := &ScaleUp{Cluster: newCluster()}
	n := machine()
	n.Labels[domain.StateLabel()], n.Spec.Taints, n.Spec.Unschedulable = string(cloud.StateRunning), nil, false
	n.Annotations = nil
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Status.Allocatable = corev1.ResourceList{
		"cpu": resource.MustParse("4"), "memory": resource.MustParse("16Gi"), "pods": resource.MustParse("20"),
	}
	s.Cluster.SawNode(n)
	wait := func(name string) {
		s.Cluster.SawPod(types.NamespacedName{Name: name}, &corev1.Pod{
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
	v, _ := s.Cluster.Node(n.Name)
	id := v.Status.ID
	s.reservations = []demand.Reservation{{Machine: id, Pods: []string{"later"}, Deadline: started.Add(time.Second)}}
	pools := map[string]*Pool{"web": web()}
	placed := func(now time.Time) string {
		in, _ := s.input(pools, now)
		for _, p := range demand.Place(in).Placements {
			if p.Node.Machine == id {
				return p.Pod.Name
			}
		}
		return ""
	}
	require.Equal(t, "later", placed(started), "the other one would come first by its name")
	require.True(t, s.Reserved()[id])
	require.Equal(t, "another", placed(started.Add(time.Second)), "its deadline is over")
	require.False(t, s.Reserved()[id])

	s.reservations = []demand.Reservation{{Machine: id, Pods: []string{"later"}, Deadline: started.Add(time.Second)}}
	s.Cluster.SawPod(types.NamespacedName{Name: "later"}, nil)
	require.Equal(t, "another", placed(started), "its pod is gone")
	require.False(t, s.Reserved()[id])
}

const domain nodes.Domain = "pools.example.com"

// web returns the pool of machine().
func web() *Pool {
	return &Pool{Nodes: nodes.Pool{Domain: domain, Name: "web"}, Memory: &cloud.SharedMemory{}}
}

// newCluster returns a cluster that has seen no objects.
func newCluster() *nodes.Cluster {
	return nodes.New(domain, nodes.Zoned("aws", nil), func([]string, bool) {})
}

// started is when the machine of the tests was started last.
var started = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func machine() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "node", UID: "u", ResourceVersion: "1",
			Labels: map[string]string{
				domain.PoolLabel(): "web", domain.StateLabel(): "running", string(domain) + "/state-since": "1767323045",
			},
			Annotations: map[string]string{string(domain) + "/last-started": started.Format(time.RFC3339)},
		},
		Spec: corev1.NodeSpec{ProviderID: "aws:///eu-west-1a/i-1"},
	}
}
