package nodes //nolint:testpackage // what is read of a pod is not exported

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cloud"
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
		"the taint of a standby Node": {tolerates(corev1.Toleration{Key: domain.StandbyTaint().Key, Operator: corev1.TolerationOpExists}), 1},
		"the taint and its value":     {tolerates(corev1.Toleration{Key: domain.StandbyTaint().Key, Value: "true", Effect: corev1.TaintEffectNoExecute}), 1},
		"no taint: it is evicted":     {tolerates(), 0},
		"no taint, and it is being deleted": {func(p *corev1.Pod) {
			p.Spec.Tolerations, p.DeletionTimestamp = nil, new(metav1.Now())
		}, 1},
		"another taint":            {tolerates(corev1.Toleration{Key: "other", Operator: corev1.TolerationOpExists}), 0},
		"no taint that evicts":     {tolerates(corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}), 0},
		"of a DaemonSet":           {owned("DaemonSet"), 0},
		"of a file of the kubelet": {func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }, 0},
		"that has ended":           {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, 0},
		"on no Node":               {func(p *corev1.Pod) { p.Spec.NodeName = "" }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := New(domain, platform, func([]string, bool) {})
				w.SawNode(machine())
				pod := bound(c.change)
				waiting := func() int {
					t.Helper()
					w.SawPod(types.NamespacedName{Name: "pod"}, pod)
					machines := w.Machines("web", "", nil)
					require.Len(t, machines, 1)
					return machines[0].Status.Waiting
				}
				if name == "no taint, and it is being deleted" {
					require.Zero(t, waiting(), "the API server may remove it at once")
					time.Sleep(endingAge - time.Nanosecond)
					require.Zero(t, waiting())
					time.Sleep(time.Nanosecond)
				}
				require.Equal(t, c.want, waiting())
				pod.UID = "another"
				want := c.want
				if name == "no taint, and it is being deleted" {
					want = 0
				}
				require.Equal(t, want, waiting(), "another pod of the name")
			})
		})
	}
}

// TestAPodIsEndingSinceItWasSeenToBe sees pods before they are deleted.
func TestAPodIsEndingSinceItWasSeenToBe(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]int{"ReplicaSet": 1, "DaemonSet": 0} {
		synctest.Test(t, func(t *testing.T) {
			w := New(domain, platform, func([]string, bool) {})
			w.SawNode(machine())
			pod := bound(func(p *corev1.Pod) {
				p.Spec.Tolerations, p.OwnerReferences = nil, []metav1.OwnerReference{{Kind: kind, Controller: new(true)}}
			})
			waiting := func() int {
				w.SawPod(types.NamespacedName{Name: "pod"}, pod)
				return w.Machines("web", "", nil)[0].Status.Waiting
			}
			require.Zero(t, waiting())
			time.Sleep(2 * endingAge)
			pod = pod.DeepCopy()
			pod.DeletionTimestamp = new(metav1.Now())
			require.Zero(t, waiting(), "it was not terminating before")
			time.Sleep(endingAge)
			require.Equal(t, want, waiting(), kind)
		})
	}
}

// TestWhatHasToBeEvicted is B8: neither the pods of DaemonSets, nor mirrors, nor what has
// ended.
func TestWhatHasToBeEvicted(t *testing.T) {
	t.Parallel()
	var pools []string
	w := New(domain, platform, func(changed []string, _ bool) { pools = append(pools, changed...) })
	w.SawNode(machine())
	pools = nil
	see := func(name string, change func(*corev1.Pod)) []string {
		pools = nil
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
			Spec:       corev1.PodSpec{NodeName: "node"},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning},
		}
		change(p)
		w.SawPod(types.NamespacedName{Name: name}, p)
		return pools
	}
	require.Empty(t, see("daemon", func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Controller: new(true)}}
	}))
	require.Empty(t, see("mirror", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }))
	require.Empty(t, see("done", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }))
	grace := func(seconds int64) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds, p.Finalizers = new(metav1.Now()), &seconds, []string{"example.com/a"}
		}
	}
	require.Empty(t, see("finalizer", grace(0)))
	require.Equal(t, []string{"web"}, see("ending", grace(1)), "its kubelet may not have ended it")
	require.Equal(t, []string{"web"}, see("ending", grace(0)), "its kubelet has")
	require.Equal(
		t,
		[]string{"web"},
		see("graceless", func(p *corev1.Pod) { p.DeletionGracePeriodSeconds = new(int64(0)) }),
		"it is not being deleted",
	)
	w.SawPod(types.NamespacedName{Name: "graceless"}, nil)
	require.Equal(t, []string{"web"}, see("a", func(*corev1.Pod) {}), "the machine is no longer empty")
	require.Empty(t, see("b", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	}))
	require.Equal(
		t,
		[]podOnNode{{types.NamespacedName{Name: "a"}, "a", false}, {types.NamespacedName{Name: "b"}, "b", false}},
		w.evictable("node"),
	)
	w.SawPod(types.NamespacedName{Name: "b"}, nil)
	require.Equal(t, []string{"web"}, see("a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }))
	require.Empty(t, w.evictable("node"))
}

func TestAPodMayAskNotToBeDisrupted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		annotations map[string]string
		change      func(*corev1.Pod)
		want        bool
	}{
		"no annotation":         {},
		"of the domain":         {annotations: map[string]string{"stratos.sh/do-not-disrupt": "true"}, want: true},
		"of Karpenter":          {annotations: map[string]string{"karpenter.sh/do-not-disrupt": "true"}, want: true},
		"of cluster-autoscaler": {annotations: map[string]string{"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}, want: true},
		"it may be evicted":     {annotations: map[string]string{"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}},
		"another value":         {annotations: map[string]string{"stratos.sh/do-not-disrupt": "false"}},
		"it has ended":          {annotations: map[string]string{"stratos.sh/do-not-disrupt": "true"}, change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }},
		"it is of another Node": {annotations: map[string]string{"stratos.sh/do-not-disrupt": "true"}, change: func(p *corev1.Pod) { p.Spec.NodeName = "other" }},
		"a DaemonSet's pod": {annotations: map[string]string{"stratos.sh/do-not-disrupt": "true"}, change: func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Controller: new(true)}}
		}},
	} {
		w := New(domain, platform, func([]string, bool) {})
		w.SawNode(machine())
		w.SawPod(types.NamespacedName{Name: "pod"}, bound(func(p *corev1.Pod) {
			p.Annotations = c.annotations
			if c.change != nil {
				c.change(p)
			}
		}))
		v, _ := w.Node("node")
		require.Equal(t, c.want, v.Status.DoNotDisrupt, name)
		require.Equal(t, c.want, w.Machines("web", "", nil)[0].Status.DoNotDisrupt, name)
	}
}

// TestAPodOnItsWayUsesItsNode has pods that the scheduler has chosen a Node for, and not bound yet: their
// volumes are made first.
func TestAPodOnItsWayUsesItsNode(t *testing.T) {
	t.Parallel()
	claim := func(node, volume string) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}}
		if node != "" {
			c.Annotations = map[string]string{"volume.kubernetes.io/selected-node": node}
		}
		return c
	}
	for name, c := range map[string]struct {
		claim  *corev1.PersistentVolumeClaim
		change func(*corev1.Pod)
		want   int
	}{
		"nothing is chosen":                  {claim: claim("", "")},
		"its claim says so":                  {claim: claim("node", ""), want: 1},
		"its claim names another Node":       {claim: claim("other", "")},
		"the volume is there":                {claim: claim("node", "pv")},
		"its claim is gone":                  {},
		"its status says so":                 {change: func(p *corev1.Pod) { p.Status.NominatedNodeName = "node" }, want: 1},
		"it is being deleted":                {claim: claim("node", ""), change: func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }},
		"it has ended":                       {claim: claim("node", ""), change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }},
		"it is bound to another meanwhile":   {claim: claim("node", ""), change: func(p *corev1.Pod) { p.Spec.NodeName = "other" }},
		"it looks for a place, with a claim": {claim: claim("node", ""), change: func(p *corev1.Pod) { *p = *mounting("data", "") }, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := New(domain, platform, func([]string, bool) {})
			w.SawNode(machine())
			p := mounting("data", "")
			p.Status.Conditions = nil
			if c.change != nil {
				c.change(p)
			}
			key := types.NamespacedName{Namespace: "team", Name: "data"}
			w.SawPod(key, p)
			w.SawClaim(key, c.claim)
			require.Equal(t, c.want, w.Machines("web", "", nil)[0].Status.Pods)
			require.Equal(t, c.want > 0, w.expects("node"))
			on := 0
			w.Read(func(s Snapshot) { on = len(s.PodsOn("node")) + len(s.Waiting()) })
			require.Equal(t, c.want, on, "its room is counted once")
			require.Empty(t, w.evictable("node"), "it cannot be evicted")
			g := Guard{Marks: &Marks{Client: server(t), Cluster: w, Pool: Pool{Domain: domain}}}
			err := g.Check(t.Context(), cloud.Action{Verb: cloud.Stop, Machine: "i-1"})
			require.Equal(t, c.want > 0, err != nil, err)
		})
	}
}
