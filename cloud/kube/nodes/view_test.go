package nodes //nolint:testpackage // what is read of a Node is not exported

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// started is when the machine of the tests was started last.
var started = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// domain and platform are those of the tests.
const domain = Domain("stratos.sh")

var platform = Zoned("aws", map[string]string{"k8s-app": "aws-node"})

func read(n *corev1.Node) View { return view(n, domain, platform) }

func machine(conditions ...corev1.NodeCondition) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "node", UID: "u", ResourceVersion: "1",
			Labels:      map[string]string{domain.PoolLabel(): "web", domain.StateLabel(): "running", domain.stateSince(): "1767323045"},
			Annotations: map[string]string{domain.lastStarted(): formatTime(started)},
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

// restarted is a machine whose Node said one thing when it was stopped, and another one
// since it was started.
func restarted(t *testing.T, w *Cluster, stop, now []corev1.NodeCondition) *corev1.Node {
	t.Helper()
	m := &Marks{Cluster: w, Pool: Pool{Domain: domain, Name: "web"}, now: func() time.Time { return started }}
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
				w := New(domain, platform, func([]string, bool) {})
				w.SawNode(restarted(t, w, skewed(c.stop, skew), skewed(c.now, skew)))
				v, ok := w.Node("node")
				require.True(t, ok)
				require.Equal(t, c.ready, v.Status.Ready)
				require.Equal(t, c.network, v.Status.NetworkReady)
				require.True(t, v.Status.Starting, "no pass has seen it ready")
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
	w := New(domain, platform, func([]string, bool) {})
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
	w.SawPod(key, pod) // it is ready when the machine is stopped
	w.SawNode(restarted(t, w, nil, fresh))
	ready := func() bool { v, _ := w.Node("node"); return v.Status.NetworkReady }
	require.True(t, ready(), "there is no plugin")
	plugin := &appsv1.DaemonSet{
		Spec: appsv1.DaemonSetSpec{
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"k8s-app": "aws-node"}}},
		},
	}
	w.SawDaemonSet(types.NamespacedName{Name: "aws-node"}, plugin)
	require.False(t, ready(), "it was ready before the stop, by whatever clock")
	pod.Status.Conditions[0].Status = "False"
	w.SawPod(key, pod)
	require.False(t, ready())
	pod.Status.Conditions[0].Status, pod.Status.Conditions[0].LastTransitionTime = "True", metav1.NewTime(started.Add(-time.Hour))
	w.SawPod(key, pod)
	require.True(t, ready(), "it has become ready since, by a clock that is behind")
	pod.DeletionTimestamp = &metav1.Time{Time: started}
	w.SawPod(key, pod)
	require.False(t, ready(), "its pod is on its way out")
	w.SawPod(key, nil)
	require.False(t, ready(), "its pod is not there")
}

// TestAnOlderNodeIsNoNews is what keeps a pass from acting on a state from before its own
// writes.
func TestAnOlderNodeIsNoNews(t *testing.T) {
	t.Parallel()
	var woken int
	w := New(domain, platform, func([]string, bool) { woken++ })
	n := machine()
	n.ResourceVersion = "7"
	w.SawNode(n)
	require.Equal(t, 1, woken)
	old := n.DeepCopy()
	old.ResourceVersion, old.Labels[domain.StateLabel()] = "6", "standby"
	w.SawNode(old)
	v, _ := w.Node("node")
	require.Equal(t, cloud.StateRunning, v.Status.State)
	heartbeat := n.DeepCopy()
	heartbeat.ResourceVersion = "9"
	heartbeat.Status.Conditions = []corev1.NodeCondition{at(corev1.NodeMemoryPressure, "False", time.Hour, 0)}
	w.SawNode(heartbeat)
	woken = 0
	heartbeat = heartbeat.DeepCopy()
	heartbeat.ResourceVersion = "10"
	heartbeat.Status.Conditions = []corev1.NodeCondition{at(corev1.NodeMemoryPressure, "False", 2*time.Hour, 0)}
	w.SawNode(heartbeat)
	require.Zero(t, woken, "a heartbeat starts no pass")
	// One that was deleted does not come back by an older event, its successor does.
	w.DropNode("node", "u")
	w.SawNode(n)
	_, ok := w.Node("node")
	require.False(t, ok)
	successor := n.DeepCopy()
	successor.UID, successor.ResourceVersion = "v", "11"
	w.SawNode(successor)
	_, ok = w.Node("node")
	require.True(t, ok)
}

// TestAMachineIsNamedByItsProviderID joins no Node of another cloud.
func TestAMachineIsNamedByItsProviderID(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"aws:///eu-west-1a/i-1": {"eu-west-1a", "i-1"}, "aws:////i-1": {"", "i-1"}, "gce:///a/b": {}, "": {}, "aws:///i-1": {}, "aws:///a/b/c": {}, "i-1": {},
	} {
		zone, id := platform.Machine(text)
		require.Equal(t, want, [2]string{zone, id}, text)
	}
}
