package nodes //nolint:testpackage // marks are seen from inside

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/reconcile/simtest"
)

func TestAKubeletIsHeardOfUnlessTheClusterSaysThatItIsSilent(t *testing.T) {
	t.Parallel()
	was := []corev1.NodeCondition{at(corev1.NodeReady, "True", -time.Minute, -time.Minute)}
	for status, up := range map[corev1.ConditionStatus]bool{"True": true, "False": true, "Unknown": false} {
		n := restarted(t, New(domain, platform, nil), was, []corev1.NodeCondition{at(corev1.NodeReady, status, time.Second, time.Second)})
		require.Equal(t, up, read(n).Up, status)
	}
	require.False(t, read(restarted(t, New(domain, platform, nil), was, nil)).Up, "it has said so before the stop")
}

func TestAMarkThatChangesNoStateKeepsTheSignalsOfTheStop(t *testing.T) {
	t.Parallel()
	m := &Marks{Cluster: New(domain, platform, nil), Pool: Pool{Domain: domain, Name: "web"}, now: func() time.Time { return started }}
	n := machine(at(corev1.NodeReady, "True", -time.Minute, -time.Minute))
	require.NoError(t, m.apply(n, cloud.Mark{From: cloud.StateRunning, To: cloud.StateStandby}))
	n.Status.Conditions = []corev1.NodeCondition{at(corev1.NodeReady, "True", time.Second, time.Second)} // it was started meanwhile
	require.NoError(t, m.apply(n, cloud.Mark{From: cloud.StateStandby, To: cloud.StateStandby}))
	require.True(t, read(n).Status.Ready, "which is news")
}

func TestANodeIsReadySinceThisProcessSawItBecomeSo(t *testing.T) {
	t.Parallel()
	w := New(domain, platform, func([]string, bool) {})
	see := func(version string, status corev1.ConditionStatus) time.Time {
		n := machine(at(corev1.NodeReady, status, time.Second, time.Second))
		n.ResourceVersion = version
		w.SawNode(n)
		v, ok := w.Node("node")
		require.True(t, ok)
		return v.Ready
	}
	require.Zero(t, see("1", "True"), "it may have been so for long")
	require.Zero(t, see("2", "True"), "it still is")
	require.Zero(t, see("3", "False"))
	ready := see("4", "True")
	require.WithinDuration(t, time.Now(), ready, time.Minute)
	require.Equal(t, ready, see("5", "True"))
	require.Zero(t, see("6", "Unknown"))
}

func TestAStandbyNodeThatWasOpenedIsClosedAgain(t *testing.T) {
	t.Parallel()
	p := &nodeStep{domain: domain}
	for state, closed := range map[cloud.State]bool{cloud.StateStandby: true, cloud.StateRunning: false, cloud.StateWarmup: false} {
		n := machine()
		n.Labels[domain.StateLabel()], n.Spec.Unschedulable, n.Spec.Taints = string(state), false, nil
		p.keepClosed(n)
		require.Equal(t, closed, n.Spec.Unschedulable, state)
		require.Equal(t, closed, hasTaint(n.Spec.Taints, domain.StandbyTaint()), state)
		again := n.DeepCopy()
		p.keepClosed(again)
		require.Equal(t, n, again, "a second time nothing changes")
	}
}

func TestAStartPutsItsOwnTaintBack(t *testing.T) {
	t.Parallel()
	m := &Marks{Cluster: New(domain, platform, nil), Pool: Pool{Domain: domain, Name: "web"}, now: func() time.Time { return started }}
	n := machine()
	n.Labels[domain.StateLabel()], n.Spec.Taints = "standby", nil
	require.NoError(t, m.apply(n, cloud.Mark{From: cloud.StateStandby, To: cloud.StateRunning}))
	require.NotEmpty(t, m.Pool.removable())
	for _, taint := range m.Pool.removable() {
		require.True(t, hasTaint(n.Spec.Taints, taint), taint.Key)
	}
	require.False(t, n.Spec.Unschedulable)
}

// TestMarks are the effects of each mark on a Node. The names are literal: they are a contract.
func TestMarks(t *testing.T) {
	t.Parallel()
	now := started.Add(time.Hour)
	pool := Pool{
		Domain: domain, Name: "web", UID: "pool",
		Labels: map[string]string{"team": "a"}, StartupTaints: []corev1.Taint{{Key: "slow", Effect: "NoExecute"}},
	}
	m := &Marks{Cluster: New(domain, platform, nil), Pool: pool, now: func() time.Time { return now }}
	n := machine()
	n.Spec.Taints = []corev1.Taint{{Key: "kept", Effect: "NoSchedule"}, domain.StandbyTaint()}
	n.Annotations["stratos.sh/intent"] = "{}"
	require.NoError(t, m.apply(n, cloud.Mark{Instance: cloud.Instance{ID: "i-1"}, From: cloud.StateStandby, To: cloud.StateRunning}))
	starts := []corev1.Taint{{Key: "slow", Effect: "NoExecute"}, {Key: "stratos.sh/not-ready", Value: "true", Effect: "NoSchedule"}}
	require.Empty(t, cmp.Diff(append([]corev1.Taint{{Key: "kept", Effect: "NoSchedule"}}, starts...), n.Spec.Taints))
	require.False(t, n.Spec.Unschedulable)
	require.Empty(t, cmp.Diff(map[string]string{
		"team":                   "a",
		"stratos.sh/pool":        "web",
		"stratos.sh/state":       "running",
		"stratos.sh/state-since": "1767326645",
		"stratos.sh/instance-id": "i-1",
	}, n.Labels))
	require.Empty(t, cmp.Diff(map[string]string{
		"stratos.sh/pool-uid": "pool", "stratos.sh/last-started": formatTime(now), "stratos.sh/scale-up-started": formatTime(now),
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
	require.Equal(t, cloud.Intent{Verb: cloud.Stop, Reason: "why", Since: now}, parseIntent(n.Annotations["stratos.sh/intent"]))

	n.Annotations["stratos.sh/scale-down-candidate-since"] = formatTime(now)
	require.NoError(t, m.apply(n, cloud.Mark{Instance: cloud.Instance{ID: "i-1"}, From: cloud.StateTerminating, To: cloud.StateStandby}))
	require.Empty(t, cmp.Diff([]corev1.Taint{
		{Key: "kept", Effect: "NoSchedule"},
		{Key: "slow", Effect: "NoExecute"},
		{Key: "stratos.sh/not-ready", Value: "true", Effect: "NoSchedule"},
		domain.StandbyTaint(),
	}, n.Spec.Taints))
	for _, gone := range []string{"stratos.sh/scale-down-candidate-since", "stratos.sh/scale-up-started", "stratos.sh/intent"} {
		require.NotContains(t, n.Annotations, gone)
	}
	require.NotContains(t, n.Annotations, "stratos.sh/warmup-completed")
	again := n.DeepCopy()
	patch, err := patchOf(again, func(n *corev1.Node) error {
		return m.apply(n, cloud.Mark{Instance: cloud.Instance{ID: "i-1"}, From: cloud.StateStandby, To: cloud.StateStandby})
	})
	require.NoError(t, err)
	require.Nil(t, patch, "nothing has changed")
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
			n.Labels[domain.StateLabel()] = "standby"
			m := &Marks{Cluster: New(domain, platform, nil), Pool: Pool{Domain: domain, Name: "web"}, now: func() time.Time { return now }}
			require.NoError(
				t,
				m.apply(n, cloud.Mark{Instance: cloud.Instance{ID: "i-1", LaunchTime: c.launched}, From: cloud.StateStandby, To: cloud.StateRunning}),
			)
			require.Equal(t, formatTime(c.want), n.Annotations[domain.lastStarted()])
			require.Equal(t, formatTime(now), n.Annotations[domain.scaleUpStarted()])
		})
	}
}

// TestANodeOnItsWayOutIsClosedAgain has Nodes that a person has uncordoned.
func TestANodeOnItsWayOutIsClosedAgain(t *testing.T) {
	t.Parallel()
	for state, closed := range map[cloud.State]bool{
		cloud.StateStandby: true, cloud.StateTerminating: true, cloud.StateRunning: false, cloud.StateWarmup: false,
	} {
		n := machine()
		n.Labels[domain.StateLabel()] = string(state)
		(&nodeStep{domain: domain}).keepClosed(n)
		require.Equal(t, closed, n.Spec.Unschedulable, state)
		require.Equal(t, state == cloud.StateStandby, hasTaint(n.Spec.Taints, domain.StandbyTaint()), state)
	}
}

// TestAMachineIsStartingUntilItsNodeWasReady is the record of a start: it goes once the Node
// is ready, and is there for the next process.
func TestAMachineIsStartingUntilItsNodeWasReady(t *testing.T) {
	t.Parallel()
	n := restarted(t, New(domain, platform, nil), nil, []corev1.NodeCondition{at(corev1.NodeReady, "False", time.Second, time.Second)})
	pass := &nodeStep{domain: domain, view: read(n)}
	pass.started(n)
	require.True(t, read(n).Status.Starting, "it is not ready yet")
	n.Status.Conditions = []corev1.NodeCondition{at(corev1.NodeReady, "True", time.Second, time.Second)}
	pass.view = read(n)
	pass.started(n)
	require.False(t, read(n).Status.Starting)
	n.Status.Conditions = []corev1.NodeCondition{at(corev1.NodeReady, "Unknown", time.Second, time.Minute)}
	v := read(n)
	require.False(t, v.Status.Ready)
	require.False(t, v.Status.Starting, "it has lost its readiness")
}

// TestTaintsOfTheClusterGoWithAStart is what the demand sees of a standby machine.
func TestTaintsOfTheClusterGoWithAStart(t *testing.T) {
	t.Parallel()
	pool := Pool{
		Domain: domain, Taints: []corev1.Taint{{Key: "node.kubernetes.io/mine", Effect: "NoSchedule"}},
		StartupTaints: []corev1.Taint{{Key: "slow", Effect: "NoExecute"}},
	}
	for key, want := range map[string]bool{
		"node.cloudprovider.kubernetes.io/shutdown": true, "node.cloudprovider.kubernetes.io/uninitialized": true,
		"node.kubernetes.io/not-ready": true, "node.kubernetes.io/unreachable": true, "node.kubernetes.io/unschedulable": true,
		"node.kubernetes.io/network-unavailable": true, "node.kubernetes.io/memory-pressure": true,
		"node.kubernetes.io/out-of-service": false, "node.kubernetes.io/mine": false, "dedicated": false,
		domain.StandbyTaint().Key: true, domain.NotReadyTaint().Key: true,
	} {
		require.Equal(t, want, pool.Passing(demand.Taint{Key: key, Effect: demand.NoSchedule}), key)
	}
	require.True(t, pool.Passing(demand.Taint{Key: "slow", Effect: demand.NoExecute}))
}

// TestAPassLeavesANodeThatHasLeftThePool has a Node that another client has taken out of the pool
// since it was viewed.
func TestAPassLeavesANodeThatHasLeftThePool(t *testing.T) {
	t.Parallel()
	pool := Pool{Domain: domain, Name: "web", Labels: map[string]string{"team": "a"}}
	for name, kept := range map[string]bool{"web": true, "": false, "other": false} {
		n := machine(at(corev1.NodeReady, "True", time.Second, time.Second))
		step := &nodeStep{pass: &Pass{}, domain: domain, pool: &pool, view: read(n), now: started}
		n.Annotations = nil
		n.Labels = map[string]string{domain.PoolLabel(): name}
		if name == "" {
			n.Labels = nil
		}
		before := n.DeepCopy()
		require.NoError(t, step.run(n))
		if kept {
			require.Equal(t, "a", n.Labels["team"])
		} else {
			require.Equal(t, before, n, name)
			require.False(t, step.result.Open)
		}
	}
}

// TestANodeThatWasDeletedIsMadeAgain has machines of clouds with zones and without, and one that
// the cloud was not asked about.
func TestANodeThatWasDeletedIsMadeAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		instance cloud.Instance
		labels   map[string]string // beside those of the pool; nil: it is not made
	}{
		"with a zone": {
			cloud.Instance{ID: "i-1", State: cloud.InstanceRunning, AvailabilityZone: "zone-a", InstanceType: "m5"},
			map[string]string{corev1.LabelTopologyZone: "zone-a", corev1.LabelInstanceTypeStable: "m5"},
		},
		"without":   {cloud.Instance{ID: "i-1", State: cloud.InstanceRunning}, map[string]string{}},
		"not asked": {cloud.Instance{ID: "i-1"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &simtest.Server{Kinds: []simtest.Kind{{Version: "v1", Resource: "nodes", Kind: "Node", Cluster: true, Status: true}}}
			client, err := dynamic.NewForConfig(&rest.Config{Host: "http://simtest", Transport: server})
			require.NoError(t, err)
			m := &Marks{
				Client: client, Cluster: New(domain, platform, func([]string, bool) {}),
				Pool: Pool{Domain: domain, Name: "web", UID: "u", Taints: []corev1.Taint{{Key: "dedicated", Effect: "NoSchedule"}}},
			}
			err = m.Mark(t.Context(), cloud.Mark{Instance: c.instance, Node: "node", To: cloud.StateWarmup})
			if c.labels == nil {
				require.True(t, apierrors.IsNotFound(err), err)
				return
			}
			require.NoError(t, err)
			v, ok := m.Cluster.OfMachine("i-1")
			require.True(t, ok, "a pass does not wait for the watch")
			require.Equal(t, "node", v.Status.Name)
			require.Equal(t, c.instance.AvailabilityZone, v.Zone)
			n := m.Cluster.node("node")
			require.Equal(t, m.Pool.Taints, n.Spec.Taints)
			require.True(t, n.Spec.Unschedulable)
			for _, label := range []string{corev1.LabelTopologyZone, corev1.LabelInstanceTypeStable} {
				value, has := n.Labels[label]
				want, wants := c.labels[label]
				require.Equal(t, wants, has, label)
				require.Equal(t, want, value, label)
			}
		})
	}
}

// server is one with Nodes and pods.
func server(t *testing.T) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(&rest.Config{Host: "http://simtest", Transport: &simtest.Server{Kinds: []simtest.Kind{
		{Version: "v1", Resource: "nodes", Kind: "Node", Cluster: true, Status: true},
		{Version: "v1", Resource: "pods", Kind: "Pod", Status: true},
	}}})
	require.NoError(t, err)
	return client
}

// TestASuccessorOfANodeIsNotRemoved has a Node that was made again under its name since it was seen.
func TestASuccessorOfANodeIsNotRemoved(t *testing.T) {
	t.Parallel()
	client := server(t)
	_, err := client.Resource(nodesResource).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "node"},
		"spec": map[string]any{"providerID": "aws:///eu-west-1a/i-1"},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	m := &Marks{Client: client, Cluster: New(domain, platform, func([]string, bool) {}), Pool: Pool{Domain: domain, Name: "web"}}
	m.Cluster.SawNode(machine()) // of another UID
	require.True(t, apierrors.IsConflict(m.Remove(t.Context(), "node", "i-1")))
	_, err = client.Resource(nodesResource).Get(t.Context(), "node", metav1.GetOptions{})
	require.NoError(t, err)

	m.Cluster.DropNode("node", "")
	require.NoError(t, m.Remove(t.Context(), "node", "i-2"), "it is of another machine")
	_, err = client.Resource(nodesResource).Get(t.Context(), "node", metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, m.Remove(t.Context(), "node", "i-1"))
	_, err = client.Resource(nodesResource).Get(t.Context(), "node", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err))
	require.NoError(t, m.Remove(t.Context(), "node", "i-1"), "nor is a missing one an error")
}

// TestAMarkIsDoneOnlyIfTheNodeIsAsItWasSeen has Nodes in other states than the mark begins with.
func TestAMarkIsDoneOnlyIfTheNodeIsAsItWasSeen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from, to cloud.State
		id       string
		done     bool
	}{
		"a start that a pass has seen already": {from: cloud.StateStandby, to: cloud.StateRunning, id: "i-1", done: true},
		"the end of a drain":                   {from: cloud.StateTerminating, to: cloud.StateRunning, id: "i-1"},
		"another machine":                      {from: cloud.StateStandby, to: cloud.StateRunning, id: "i-2"},
		"a stop of one on standby":             {from: cloud.StateStandby, to: cloud.StateTerminating, id: "i-1"},
	} {
		w := New(domain, platform, func([]string, bool) {})
		w.SawNode(machine()) // it runs
		m := &Marks{Client: server(t), Cluster: w, Pool: Pool{Domain: domain, Name: "web"}}
		err := m.Mark(t.Context(), cloud.Mark{Instance: cloud.Instance{ID: c.id}, Node: "node", From: c.from, To: c.to})
		if c.done {
			require.NoError(t, err, name)
		} else {
			require.ErrorIs(t, err, ErrChanged, name)
		}
	}
}

func TestAStartWithoutARecordIsAsOldAsItsState(t *testing.T) {
	t.Parallel()
	pool := Pool{Domain: domain, Name: "web"}
	n := machine(at(corev1.NodeReady, "True", time.Second, time.Second))
	delete(n.Annotations, domain.lastStarted())
	n.Spec.Taints = []corev1.Taint{domain.NotReadyTaint()}
	for after, trigger := range map[time.Duration]string{StartupTimeout - time.Second: "", StartupTimeout + time.Second: TimedOut} {
		step := &nodeStep{pass: &Pass{}, domain: domain, pool: &pool, view: read(n), now: started.Add(after)}
		require.NoError(t, step.run(n.DeepCopy()))
		if trigger == "" {
			require.Nil(t, step.result.Removed, "it has time left")
			require.Equal(t, started.Add(time.Second-1).Add(StartupTimeout), step.result.Wake.UTC())
		} else {
			require.Equal(t, trigger, step.result.Removed.Trigger)
		}
	}
	require.Equal(t, started.Add(time.Second-1), read(n).Status.Since.UTC(), "an observation from earlier in that second is older")
}

func TestAPoolChangesTheValueOfItsTaint(t *testing.T) {
	t.Parallel()
	pool := Pool{Domain: domain, Name: "web", Taints: []corev1.Taint{{Key: "team", Value: "b", Effect: "NoSchedule"}}}
	n := machine(at(corev1.NodeReady, "True", time.Second, time.Second))
	n.Spec.Taints = []corev1.Taint{{Key: "team", Value: "a", Effect: "NoSchedule"}, {Key: "team", Value: "a", Effect: "NoExecute"}}
	step := &nodeStep{pass: &Pass{}, domain: domain, pool: &pool, view: read(n), now: started}
	require.NoError(t, step.run(n))
	require.Equal(t, []corev1.Taint{
		{Key: "team", Value: "b", Effect: "NoSchedule"}, {Key: "team", Value: "a", Effect: "NoExecute"},
	}, n.Spec.Taints)
}

// TestAPodThatWasMadeAgainIsNotEvicted has a pod of the same name as one that was seen.
func TestAPodThatWasMadeAgainIsNotEvicted(t *testing.T) {
	t.Parallel()
	client := server(t)
	_, err := client.Resource(podsResource).Namespace("team").Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "pod"}, "spec": map[string]any{"nodeName": "node"},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	m := &Marks{Client: client, Cluster: New(domain, platform, func([]string, bool) {}), Pool: Pool{Domain: domain, Name: "web"}}
	m.Cluster.SawNode(machine())
	m.Cluster.SawPod(types.NamespacedName{Namespace: "team", Name: "pod"}, bound(func(p *corev1.Pod) { p.Namespace = "team" }))
	left, err := m.Drain(t.Context(), "node")
	require.NoError(t, err, "the next look knows more")
	require.Equal(t, 1, left)
	p, err := client.Resource(podsResource).Namespace("team").Get(t.Context(), "pod", metav1.GetOptions{})
	require.NoError(t, err)
	require.Nil(t, p.GetDeletionTimestamp())
}

func TestANodeThatWasDeletedNamesNoMachine(t *testing.T) {
	t.Parallel()
	w := New(domain, platform, func([]string, bool) {})
	w.SawNode(machine())
	w.DropNode("node", "u")
	successor := machine()
	successor.UID, successor.Spec.ProviderID = "v", "aws:///eu-west-1a/i-2"
	w.SawNode(successor)
	_, ok := w.OfMachine("i-1")
	require.False(t, ok)
	v, ok := w.OfMachine("i-2")
	require.True(t, ok)
	require.Equal(t, "v", v.UID)
}

// TestAPassOfANodeThatIsDeletedIsNotRepeatedAtOnce has a Node that the watch still has: only a
// back-off keeps its passes apart.
func TestAPassOfANodeThatIsDeletedIsNotRepeatedAtOnce(t *testing.T) {
	t.Parallel()
	looked := 0
	m := &Marks{
		Client: server(t), Cluster: New(domain, platform, func([]string, bool) {}), Pool: Pool{Domain: domain, Name: "web", UID: "u"},
		Look: func(nodes ...types.NamespacedName) { looked += len(nodes) },
	}
	n := machine()
	m.Cluster.SawNode(n)
	_, err := (&Pass{Marks: m, MaxRuntime: time.Nanosecond}).Run(t.Context(), view(n, domain, platform))
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	require.Zero(t, looked)
	require.True(t, apierrors.IsNotFound(m.SetEmpty(t.Context(), n.Name, true)))
	require.Equal(t, 1, looked, "others ask for a pass of it")
}

// TestANodeThatIsWrittenBeforeTheWatchHasShownItIsLookedAtLater has one that is deleted, say, before the watch is back.
func TestANodeThatIsWrittenBeforeTheWatchHasShownItIsLookedAtLater(t *testing.T) {
	t.Parallel()
	var unseen []string
	m := &Marks{
		Client: server(t), Cluster: New(domain, platform, func([]string, bool) {}), Pool: Pool{Domain: domain, Name: "web", UID: "u"},
		OnUnseen: func(n *corev1.Node) { unseen = append(unseen, n.Name+" "+n.ResourceVersion) },
	}
	n := machine()
	n.UID, n.ResourceVersion, n.TypeMeta = "", "", metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(n)
	require.NoError(t, err)
	_, err = m.Client.Resource(nodesResource).Create(t.Context(), &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, m.SetEmpty(t.Context(), "node", true))
	is, err := m.Client.Resource(nodesResource).Get(t.Context(), "node", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{"node " + is.GetResourceVersion()}, unseen)
	require.NoError(t, m.SetEmpty(t.Context(), "node", false))
	require.Len(t, unseen, 1, "it is known")
}

// TestANodeThatNamesAnotherPoolIsReclaimed has Nodes of machines that are those of the pool by their tags.
func TestANodeThatNamesAnotherPoolIsReclaimed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pool, uid, machine string
		joins              bool // it has no state yet
		want               bool // it is written
	}{
		"its own":                 {pool: "web", uid: "u", machine: "i-1"},
		"another":                 {pool: "other", uid: "u", machine: "i-1", want: true},
		"of another UID":          {pool: "web", uid: "old", machine: "i-1", want: true},
		"none: it is adopted":     {machine: "i-1", joins: true},
		"none any more":           {uid: "u", machine: "i-1", want: true},
		"another, and no state":   {pool: "other", uid: "u", machine: "i-1", joins: true, want: true},
		"of a machine of another": {pool: "other", uid: "u", machine: "i-2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := server(t)
			n := machine()
			n.UID, n.ResourceVersion, n.Labels[domain.PoolLabel()], n.Annotations[domain.poolUID()] = "", "", c.pool, c.uid
			n.Spec.ProviderID = "aws:///eu-west-1a/" + c.machine
			if c.pool == "" {
				delete(n.Labels, domain.PoolLabel())
			}
			if c.joins {
				delete(n.Labels, domain.StateLabel())
			}
			n.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(n)
			require.NoError(t, err)
			created, err := client.Resource(nodesResource).Create(t.Context(), &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
			require.NoError(t, err)
			m := &Marks{Client: client, Cluster: New(domain, platform, func([]string, bool) {}), Pool: Pool{Domain: domain, Name: "web", UID: "u"}}
			seen, err := nodeOf(created)
			require.NoError(t, err)
			m.Cluster.SawNode(seen)
			names, err := m.Reclaim(t.Context(), "i-1", "i-3")
			require.NoError(t, err)
			is, err := client.Resource(nodesResource).Get(t.Context(), "node", metav1.GetOptions{})
			require.NoError(t, err)
			if !c.want {
				require.Empty(t, names)
				require.Equal(t, created.GetResourceVersion(), is.GetResourceVersion())
				return
			}
			require.Equal(t, []string{"node"}, names)
			require.Equal(t, "web", is.GetLabels()[domain.PoolLabel()])
			require.Equal(t, "u", is.GetAnnotations()[domain.poolUID()])
			require.Equal(t, "i-1", is.GetLabels()[domain.instanceID()])
			require.Len(t, m.Cluster.Machines("web", "u", nil), 1, "this pass knows it")
		})
	}
}
