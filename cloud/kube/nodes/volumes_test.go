package nodes //nolint:testpackage // in this package as the others

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube"
)

const driver = "ebs.csi.aws.com"

// mounting is a pod with a claim: on a Node, or one that waits.
func mounting(name, node string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{NodeName: node, Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}}}},
	}
	if node == "" {
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			LastTransitionTime: metav1.NewTime(started),
		}}
	}
	return p
}

// bind adds a claim with a volume in zone x.
func bind(c *Cluster, name string) {
	c.SawVolume("pv-"+name, &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver}},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"x"}}},
		}}}},
	}})
	c.SawClaim(types.NamespacedName{Namespace: "team", Name: name}, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv-" + name},
	})
}

func waiting(c *Cluster) (pods []*demand.Pod) {
	c.Read(func(s Snapshot) { pods = s.Waiting() })
	return pods
}

func TestAPodWaitsForWhatItsClaimsSay(t *testing.T) {
	t.Parallel()
	woken := 0
	c := New(domain, platform, func(_ []string, demand bool) {
		if demand {
			woken++
		}
	})
	key := types.NamespacedName{Namespace: "team", Name: "data"}
	c.SawClaim(key, &corev1.PersistentVolumeClaim{})
	require.Zero(t, woken, "nothing waits")
	c.SawClaim(key, nil)
	c.SawPod(key, mounting("data", ""))
	require.Equal(t, []string{"the claims of the cluster are not read yet"}, waiting(c)[0].Unmodelled)
	woken = 0
	c.SawVolumes()
	require.Equal(t, 1, woken)
	require.Equal(t, []string{"claim data does not exist"}, waiting(c)[0].Unmodelled)
	woken = 0
	bind(c, "data")
	require.Equal(t, 2, woken, "its volume and its claim")
	pod := waiting(c)[0]
	require.Empty(t, pod.Unmodelled)
	require.Equal(t, []demand.Volume{{Name: "claim data", Nodes: []demand.NodeTerm{
		{Labels: []demand.Requirement{{Key: "zone", Operator: demand.In, Values: []string{"x"}}}},
	}}}, pod.Volumes)
	woken = 0
	c.SawStorageClass("fast", &storagev1.StorageClass{})
	require.Equal(t, 1, woken)
	c.SawPod(key, nil)
	woken = 0
	c.SawStorageClass("fast", nil)
	require.Zero(t, woken, "nothing waits any more")
	require.Empty(t, waiting(c))
}

func TestANodeTakesAsManyVolumesAsItSays(t *testing.T) {
	t.Parallel()
	c := New(domain, platform, func([]string, bool) {})
	c.SawVolumes()
	n := machine(at(corev1.NodeReady, "True", time.Second, time.Second))
	c.SawNode(n)
	limit := func(node string, like ...string) map[string]int64 {
		out := demand.Node{Name: node}
		c.Read(func(s Snapshot) { s.Limit(&out, like...) })
		return out.Allocatable.Extended
	}
	on := func() (pods []*demand.Pod) {
		c.Read(func(s Snapshot) { pods = s.PodsOn("node") })
		return pods
	}
	bind(c, "there")
	c.SawPod(types.NamespacedName{Namespace: "team", Name: "there"}, mounting("there", "node"))
	count := int32(7)
	c.SawCSINode("node", &storagev1.CSINode{Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
		{Name: driver, Allocatable: &storagev1.VolumeNodeResources{Count: &count}}, {Name: "other"},
	}}})
	require.Nil(t, limit("node"), "no pod asks for a volume")
	require.Empty(t, on()[0].Requests.Extended)
	bind(c, "new")
	c.SawPod(types.NamespacedName{Namespace: "team", Name: "new"}, mounting("new", ""))
	resource := kube.AttachLimit(driver)
	require.Equal(t, map[string]int64{resource: 7}, limit("node"))
	require.Equal(t, map[string]int64{resource: kube.Unlimited}, limit("another"))
	c.SawCSINode("young", &storagev1.CSINode{Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "other"}}}})
	require.Equal(t, map[string]int64{resource: 7}, limit("young", "node"), "its drivers have not registered yet")
	require.Equal(t, map[string]int64{resource: 7}, limit("", "another", "node"), "a machine that is launched is like those that are there")
	require.Equal(t, map[string]int64{resource: 1}, on()[0].Requests.Extended)
	c.SawCSINode("node", nil)
	require.Equal(t, map[string]int64{resource: kube.Unlimited}, limit("node"))
}
