package operator //nolint:testpackage // what is read of a Node is not exported

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
)

// started is when the machine of the tests was started last.
var started = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func machine(conditions ...corev1.NodeCondition) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "node", UID: "u", ResourceVersion: "1",
			Labels:      map[string]string{v1alpha1.LabelPool: "web", v1alpha1.LabelState: "running", v1alpha1.LabelStateSince: "1767323045"},
			Annotations: map[string]string{v1alpha1.AnnotationLastStarted: formatTime(started)},
		},
		Spec:   corev1.NodeSpec{ProviderID: "aws:///eu-west-1a/i-1"},
		Status: corev1.NodeStatus{Conditions: conditions},
	}
}

// at returns a condition with the times of its last heartbeat and its last transition.
func at(kind corev1.NodeConditionType, status corev1.ConditionStatus, heard, since time.Duration) corev1.NodeCondition {
	return corev1.NodeCondition{
		Type:               kind,
		Status:             status,
		LastHeartbeatTime:  metav1.NewTime(started.Add(heard)),
		LastTransitionTime: metav1.NewTime(started.Add(since)),
	}
}

// TestAMachineFoundRunningWasStartedWhenTheCloudSays: what its Node has said since then is
// fresh.
func TestAMachineFoundRunningWasStartedWhenTheCloudSays(t *testing.T) {
	t.Parallel()
	now := started.Add(time.Hour)
	for name, c := range map[string]struct {
		launched time.Time
		want     time.Time
	}{
		"a start by another process":          {started.Add(30 * time.Minute), started.Add(30 * time.Minute)},
		"one in the second of the stop":       {started, started},
		"its own start, nothing is read":      {time.Time{}, now},
		"the launch, before it was stopped":   {started.Add(-time.Minute), now},
		"a clock that is ahead of this one's": {now.Add(time.Minute), now},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := machine()
			n.Labels[v1alpha1.LabelState] = "standby"
			m := &marks{world: newWorld(nil), pool: &v1alpha1.NodePool{}, now: func() time.Time { return now }}
			require.NoError(
				t,
				m.apply(n, cloud.Mark{Instance: cloud.Instance{ID: "i-1", LaunchTime: c.launched}, From: cloud.StateStandby, To: cloud.StateRunning}),
			)
			require.Equal(t, formatTime(c.want), n.Annotations[v1alpha1.AnnotationLastStarted])
			require.Equal(t, formatTime(now), n.Annotations[v1alpha1.AnnotationScaleUpStarted])
		})
	}
}

// restarted is a machine whose Node said one thing when it was stopped, and another one
// since it was started.
func restarted(t *testing.T, w *world, stop, now []corev1.NodeCondition) *corev1.Node {
	t.Helper()
	m := &marks{world: w, pool: &v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, now: func() time.Time { return started }}
	n := machine(stop...)
	n.Status.NodeInfo.BootID = "first"
	require.NoError(t, m.apply(n, cloud.Mark{Instance: cloud.Instance{ID: "i-1"}, From: cloud.StateRunning, To: cloud.StateStandby}))
	require.NoError(t, m.apply(n, cloud.Mark{Instance: cloud.Instance{ID: "i-1"}, From: cloud.StateStandby, To: cloud.StateRunning}))
	n.Status.Conditions, n.Status.NodeInfo.BootID = now, "second"
	if len(now) == 0 {
		n.Status.Conditions, n.Status.NodeInfo.BootID = stop, "first"
	}
	return n
}

// TestOnlyAFreshSignalCounts is C23: what a Node said before its machine was stopped is no
// news, whatever the clock of the machine says. Each is seen by a process that has just
// started, too.
func TestOnlyAFreshSignalCounts(t *testing.T) {
	t.Parallel()
	const before, after = -time.Minute, time.Second
	ready, network := corev1.NodeReady, corev1.NodeNetworkUnavailable
	up := []corev1.NodeCondition{at(ready, "True", before, before), at(network, "False", before, before)}
	for name, c := range map[string]struct {
		stop, now      []corev1.NodeCondition
		ready, network bool
	}{
		"nothing":                         {},
		"the same as before the stop":     {up, nil, false, false},
		"heard of again":                  {up, []corev1.NodeCondition{at(ready, "True", after, before), at(network, "False", after, before)}, true, true},
		"changed":                         {up, []corev1.NodeCondition{at(ready, "True", before, after), at(network, "False", before, after)}, true, true},
		"a boot within one second":        {up, up, true, false},
		"ready, its network is old":       {up, []corev1.NodeCondition{at(ready, "True", after, after), up[1]}, true, false},
		"ready, its network is down":      {up, []corev1.NodeCondition{at(ready, "True", after, after), at(network, "True", after, after)}, true, false},
		"a network of a node not ready":   {up, []corev1.NodeCondition{at(ready, "False", after, after), at(network, "False", after, after)}, false, false},
		"a Node created again":            {nil, []corev1.NodeCondition{at(ready, "True", after, after), at(network, "False", after, after)}, true, true},
		"the plugin's own condition":      {nil, []corev1.NodeCondition{at(ready, "True", after, after), at(conditionNetworkingReady, "True", after, after), at(network, "True", after, after)}, true, true},
		"the plugin's own condition last": {nil, []corev1.NodeCondition{at(ready, "True", after, after), at(network, "False", after, after), at(conditionNetworkingReady, "False", after, after)}, true, false},
		"the plugin's own, an old one": {
			[]corev1.NodeCondition{up[0], at(conditionNetworkingReady, "True", before, before)},
			[]corev1.NodeCondition{at(ready, "True", after, after), at(conditionNetworkingReady, "True", before, before)},
			true, false,
		},
		"silent": {up, []corev1.NodeCondition{at(ready, "Unknown", before, after)}, false, false},
	} {
		for _, skew := range []time.Duration{-10 * time.Minute, -20 * time.Second, 0, 20 * time.Second, 10 * time.Minute} {
			t.Run(name+" "+skew.String(), func(t *testing.T) {
				t.Parallel()
				w := newWorld(func([]string, bool) {})
				w.sawNode(restarted(t, w, skewed(c.stop, skew), skewed(c.now, skew)))
				v, ok := w.view("node")
				require.True(t, ok)
				require.Equal(t, c.ready, v.status.Ready)
				require.Equal(t, c.network, v.status.NetworkReady)
				require.True(t, v.status.Starting, "no pass has seen it ready")
			})
		}
	}
}

// skewed is what a machine says whose clock is ahead.
func skewed(conditions []corev1.NodeCondition, by time.Duration) (out []corev1.NodeCondition) {
	for _, c := range conditions {
		c.LastHeartbeatTime, c.LastTransitionTime = metav1.NewTime(c.LastHeartbeatTime.Add(by)), metav1.NewTime(c.LastTransitionTime.Add(by))
		out = append(out, c)
	}
	return out
}

// TestTheNetworkPluginDecidesWithItsPod is B9 with aws-node.
func TestTheNetworkPluginDecidesWithItsPod(t *testing.T) {
	t.Parallel()
	w := newWorld(func([]string, bool) {})
	fresh := []corev1.NodeCondition{
		at(corev1.NodeReady, "True", time.Second, time.Second),
		at(corev1.NodeNetworkUnavailable, "False", time.Second, time.Second),
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			UID:             "plugin",
			Labels:          map[string]string{"k8s-app": "aws-node"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Controller: new(true)}},
		},
		Spec: corev1.PodSpec{NodeName: "node"},
		Status: corev1.PodStatus{
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: "True", LastTransitionTime: metav1.NewTime(started.Add(time.Hour))}},
		},
	}
	key := types.NamespacedName{Namespace: "kube-system", Name: "aws-node-x"}
	w.sawPod(key, pod) // it is ready when the machine is stopped
	w.sawNode(restarted(t, w, nil, fresh))
	ready := func() bool { v, _ := w.view("node"); return v.status.NetworkReady }
	require.True(t, ready(), "there is no plugin")
	plugin := &appsv1.DaemonSet{
		Spec: appsv1.DaemonSetSpec{
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"k8s-app": "aws-node"}}},
		},
	}
	w.sawDaemon(types.NamespacedName{Name: "aws-node"}, plugin)
	require.False(t, ready(), "it was ready before the stop, by whatever clock")
	pod.Status.Conditions[0].Status = "False"
	w.sawPod(key, pod)
	require.False(t, ready())
	pod.Status.Conditions[0].Status, pod.Status.Conditions[0].LastTransitionTime = "True", metav1.NewTime(started.Add(-time.Hour))
	w.sawPod(key, pod)
	require.True(t, ready(), "it has become ready since, by a clock that is behind")
	w.sawPod(key, nil)
	require.False(t, ready(), "its pod is not there")
}

// TestAMachineIsStartingUntilItsNodeWasReady is the record of a start: it goes once the Node
// is ready, and is there for the next process.
func TestAMachineIsStartingUntilItsNodeWasReady(t *testing.T) {
	t.Parallel()
	n := restarted(t, newWorld(nil), nil, []corev1.NodeCondition{at(corev1.NodeReady, "False", time.Second, time.Second)})
	pass := &nodePass{view: viewNode(n)}
	pass.started(n)
	require.True(t, viewNode(n).status.Starting, "it is not ready yet")
	n.Status.Conditions = []corev1.NodeCondition{at(corev1.NodeReady, "True", time.Second, time.Second)}
	pass.view = viewNode(n)
	pass.started(n)
	require.False(t, viewNode(n).status.Starting)
	n.Status.Conditions = []corev1.NodeCondition{at(corev1.NodeReady, "Unknown", time.Second, time.Minute)}
	v := viewNode(n)
	require.False(t, v.status.Ready)
	require.False(t, v.status.Starting, "it has lost its readiness")
}

// TestTaintsOfTheClusterGoWithAStart is what the demand sees of a standby machine.
func TestTaintsOfTheClusterGoWithAStart(t *testing.T) {
	t.Parallel()
	pool := &v1alpha1.NodePool{Spec: v1alpha1.NodePoolSpec{Template: v1alpha1.NodeTemplate{
		Taints: []v1alpha1.Taint{
			{Key: "node.kubernetes.io/mine", Effect: "NoSchedule"},
		},
		StartupTaints: []v1alpha1.Taint{{Key: "slow", Effect: "NoExecute"}},
	}}}
	for key, want := range map[string]bool{
		"node.cloudprovider.kubernetes.io/shutdown": true, "node.cloudprovider.kubernetes.io/uninitialized": true,
		"node.kubernetes.io/not-ready": true, "node.kubernetes.io/unreachable": true, "node.kubernetes.io/unschedulable": true,
		"node.kubernetes.io/network-unavailable": true, "node.kubernetes.io/memory-pressure": true,
		"node.kubernetes.io/out-of-service": false, "node.kubernetes.io/mine": false, "dedicated": false,
		v1alpha1.TaintStandby: true, v1alpha1.TaintNotReady: true,
	} {
		require.Equal(t, want, passing(pool, demand.Taint{Key: key, Effect: demand.NoSchedule}), key)
	}
	require.True(t, passing(pool, demand.Taint{Key: "slow", Effect: demand.NoExecute}))
}

// TestAnOlderNodeIsNoNews is what keeps a pass from acting on a state from before its own
// writes.
func TestAnOlderNodeIsNoNews(t *testing.T) {
	t.Parallel()
	var woken int
	w := newWorld(func([]string, bool) { woken++ })
	n := machine()
	n.ResourceVersion = "7"
	w.sawNode(n)
	require.Equal(t, 1, woken)
	old := n.DeepCopy()
	old.ResourceVersion, old.Labels[v1alpha1.LabelState] = "6", "standby"
	w.sawNode(old)
	v, _ := w.view("node")
	require.Equal(t, cloud.StateRunning, v.status.State)
	heartbeat := n.DeepCopy()
	heartbeat.ResourceVersion = "9"
	heartbeat.Status.Conditions = []corev1.NodeCondition{at(corev1.NodeMemoryPressure, "False", time.Hour, 0)}
	w.sawNode(heartbeat)
	woken = 0
	heartbeat = heartbeat.DeepCopy()
	heartbeat.ResourceVersion = "10"
	heartbeat.Status.Conditions = []corev1.NodeCondition{at(corev1.NodeMemoryPressure, "False", 2*time.Hour, 0)}
	w.sawNode(heartbeat)
	require.Zero(t, woken, "a heartbeat starts no pass")
	// One that was deleted does not come back by an older event, its successor does.
	w.dropNode("node", "u")
	w.sawNode(n)
	_, ok := w.view("node")
	require.False(t, ok)
	successor := n.DeepCopy()
	successor.UID, successor.ResourceVersion = "v", "11"
	w.sawNode(successor)
	_, ok = w.view("node")
	require.True(t, ok)
}

// TestWhatHasToBeEvicted is B8: neither the pods of DaemonSets, nor mirrors, nor what has
// ended.
func TestWhatHasToBeEvicted(t *testing.T) {
	t.Parallel()
	var pools []string
	w := newWorld(func(changed []string, _ bool) { pools = append(pools, changed...) })
	w.sawNode(machine())
	pools = nil
	see := func(name string, change func(*corev1.Pod)) []string {
		pools = nil
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
			Spec:       corev1.PodSpec{NodeName: "node"},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning},
		}
		change(p)
		w.sawPod(types.NamespacedName{Name: name}, p)
		return pools
	}
	require.Empty(t, see("daemon", func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Controller: new(true)}}
	}))
	require.Empty(t, see("mirror", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }))
	require.Empty(t, see("done", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }))
	require.Equal(t, []string{"web"}, see("a", func(*corev1.Pod) {}), "the machine is no longer empty")
	require.Empty(t, see("b", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	}))
	require.Equal(
		t,
		[]podOnNode{{types.NamespacedName{Name: "a"}, "a", false}, {types.NamespacedName{Name: "b"}, "b", false}},
		w.evictable("node"),
	)
	w.sawPod(types.NamespacedName{Name: "b"}, nil)
	require.Equal(t, []string{"web"}, see("a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }))
	require.Empty(t, w.evictable("node"))
}

// TestAMachineIsNamedByItsProviderID joins no Node of another cloud.
func TestAMachineIsNamedByItsProviderID(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"aws:///eu-west-1a/i-1": {"eu-west-1a", "i-1"}, "aws:////i-1": {"", "i-1"}, "gce:///a/b": {}, "": {}, "aws:///i-1": {}, "aws:///a/b/c": {}, "i-1": {},
	} {
		zone, id := instanceOf(text)
		require.Equal(t, want, [2]string{zone, id}, text)
	}
}

// TestMarks are B5's effects on a Node.
func TestMarks(t *testing.T) {
	t.Parallel()
	now := started.Add(time.Hour)
	pool := &v1alpha1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "pool"},
		Spec: v1alpha1.NodePoolSpec{Template: v1alpha1.NodeTemplate{
			Labels: map[string]string{"team": "a"}, StartupTaints: []v1alpha1.Taint{{Key: "slow", Effect: "NoExecute"}},
		}},
	}
	m := &marks{world: newWorld(nil), pool: pool, now: func() time.Time { return now }}
	n := machine()
	n.Spec.Taints = []corev1.Taint{{Key: "kept", Effect: "NoSchedule"}, standbyTaint()}
	n.Annotations[v1alpha1.AnnotationIntent] = "{}"
	require.NoError(t, m.apply(n, cloud.Mark{Instance: cloud.Instance{ID: "i-1"}, From: cloud.StateStandby, To: cloud.StateRunning}))
	starts := []corev1.Taint{{Key: "slow", Effect: "NoExecute"}, {Key: v1alpha1.TaintNotReady, Value: "true", Effect: "NoSchedule"}}
	require.Empty(t, cmp.Diff(append([]corev1.Taint{{Key: "kept", Effect: "NoSchedule"}}, starts...), n.Spec.Taints))
	require.False(t, n.Spec.Unschedulable)
	require.Empty(t, cmp.Diff(map[string]string{
		"team":                   "a",
		v1alpha1.LabelPool:       "web",
		v1alpha1.LabelState:      "running",
		v1alpha1.LabelStateSince: "1767326645",
		v1alpha1.LabelInstanceID: "i-1",
	}, n.Labels))
	require.Empty(t, cmp.Diff(map[string]string{
		v1alpha1.AnnotationPoolUID: "pool", v1alpha1.AnnotationLastStarted: formatTime(now), v1alpha1.AnnotationScaleUpStarted: formatTime(now),
	}, n.Annotations))

	require.NoError(
		t,
		m.apply(
			n,
			cloud.Mark{
				Instance: cloud.Instance{ID: "i-1"},
				From:     cloud.StateRunning,
				To:       cloud.StateTerminating,
				Intent:   cloud.Intent{Verb: cloud.Stop, Reason: "why", Since: now},
			},
		),
	)
	require.True(t, n.Spec.Unschedulable)
	require.Equal(t, cloud.Intent{Verb: cloud.Stop, Reason: "why", Since: now}, parseIntent(n.Annotations[v1alpha1.AnnotationIntent]))

	n.Annotations[v1alpha1.AnnotationScaleDownCandidate] = formatTime(now)
	require.NoError(t, m.apply(n, cloud.Mark{Instance: cloud.Instance{ID: "i-1"}, From: cloud.StateTerminating, To: cloud.StateStandby}))
	require.Empty(t, cmp.Diff([]corev1.Taint{
		{Key: "kept", Effect: "NoSchedule"},
		{Key: "slow", Effect: "NoExecute"},
		{Key: v1alpha1.TaintNotReady, Value: "true", Effect: "NoSchedule"},
		standbyTaint(),
	}, n.Spec.Taints))
	for _, gone := range []string{v1alpha1.AnnotationScaleDownCandidate, v1alpha1.AnnotationScaleUpStarted, v1alpha1.AnnotationIntent} {
		require.NotContains(t, n.Annotations, gone)
	}
	require.NotContains(t, n.Annotations, v1alpha1.AnnotationWarmupCompleted)
	again := n.DeepCopy()
	patch, err := patchOf(again, func(n *corev1.Node) error {
		return m.apply(n, cloud.Mark{Instance: cloud.Instance{ID: "i-1"}, From: cloud.StateStandby, To: cloud.StateStandby})
	})
	require.NoError(t, err)
	require.Nil(t, patch, "nothing has changed")
}

// TestANodeOnItsWayOutIsClosedAgain has Nodes that a person has uncordoned.
func TestANodeOnItsWayOutIsClosedAgain(t *testing.T) {
	t.Parallel()
	for state, closed := range map[cloud.State]bool{
		cloud.StateStandby: true, cloud.StateTerminating: true, cloud.StateRunning: false, cloud.StateWarmup: false,
	} {
		n := machine()
		n.Labels[v1alpha1.LabelState] = string(state)
		(&nodePass{}).keepClosed(n)
		require.Equal(t, closed, n.Spec.Unschedulable, state)
		require.Equal(t, state == cloud.StateStandby, hasTaint(n.Spec.Taints, standbyTaint()), state)
	}
}
