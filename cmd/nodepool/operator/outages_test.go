package operator_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	nodepool "github.com/seed-9e1ffd66/trueup/cmd/nodepool/operator"
	"github.com/seed-9e1ffd66/trueup/internal/test/ec2test"
)

// TestTwoClustersShareNoMachine is D18: one account, pools of one name.
func TestTwoClustersShareNoMachine(t *testing.T) {
	if testing.Short() {
		t.Skip("long: two clusters")
	}
	account := ec2test.Start(t, ec2test.Options{})
	type side struct {
		*bench
		operator *running
	}
	var sides []side
	for _, name := range []string{"blue", "green"} {
		c := newCellAt(t, name, account.URL, quickBoot)
		sides = append(sides, side{c.bench(t, "twin"), c.start(t, nil)})
	}
	blue, green := sides[0], sides[1]
	for _, s := range sides {
		s.class()
		s.pool("poolSize: 3, minStandby: 2")
	}
	for _, s := range sides {
		s.standby(2)
		require.Len(t, s.ids(), 2)
	}
	green.pods(names("pod", 1), "cpu: 1", "")
	green.eventually("it runs", func() bool { return green.bound() == 1 && green.counts() == [3]int32{2, 1, 3} })
	before := green.ids()
	all := blue.ids()

	// A machine that is late, a pool that shrinks, one that is deleted and created again.
	blue.habit(func(booted) habit { return habit{neverStops: true} })
	blue.pool("poolSize: 3, minStandby: 3, preWarm: {timeout: 30s, timeoutAction: terminate}")
	blue.eventReported("NodePool", blue.name, "WarmupFailed")
	all = append(all, blue.ids()...)
	blue.habit(nil)
	blue.pool("poolSize: 1, minStandby: 1")
	blue.eventually("it is smaller", func() bool { return blue.counts() == [3]int32{1, 0, 1} })
	all = append(all, blue.ids()...)
	blue.delete()
	blue.eventually("it is gone", func() bool { return blue.read() == nil })
	require.Empty(t, blue.ids())
	blue.pool("poolSize: 2, minStandby: 2")
	blue.standby(2)
	all = append(all, blue.ids()...)

	require.Equal(t, before, green.ids())
	require.Equal(t, [3]int32{2, 1, 3}, green.counts())
	require.Equal(t, 1, green.bound())
	require.Equal(t, types.InstanceStateNameRunning, green.state(green.in("running")[0].Labels["stratos.sh/instance-id"]))
	for _, action := range []string{"StartInstances", "StopInstances", "TerminateInstances", "CreateTags"} {
		for _, ids := range blue.operator.wire.machines(action) {
			for _, id := range ids {
				require.NotContains(t, before, id, "%s of blue", action)
			}
		}
		for _, ids := range green.operator.wire.machines(action) {
			for _, id := range ids {
				require.NotContains(t, all, id, "%s of green", action)
			}
		}
	}
}

// TestALeaderThatCrashesStartsNothingTwice is D19: a replica without the Lease does
// nothing, and the one that takes over in mid scale-up starts no machine again.
func TestALeaderThatCrashesStartsNothingTwice(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a Lease runs out")
	}
	c := newCell(t)
	var crashed atomic.Bool
	replica := func(o *nodepool.Operator) { o.Alone = false }
	first := &running{wire: &wire{}, net: &applytest.Transport{Fault: func(applytest.Request) applytest.Fault {
		return applytest.Fault{Crash: crashed.Load()}
	}}}
	first.wire.fault = func(action string, _ url.Values) wireFault {
		// EC2 does it, and the replica records nothing of it.
		if action == "StartInstances" {
			crashed.Store(true)
		}
		return wireFault{}
	}
	c.startWith(t, first, replica)
	b := c.bench(t, "lead")
	b.class()
	b.pool("poolSize: 6, minStandby: 3")
	b.standby(3)
	second := c.start(t, replica)
	b.eventually("the second one has read the Lease", func() bool {
		return slices.ContainsFunc(second.net.Requests(), func(r applytest.Request) bool { return r.Resource == "leases" })
	})
	b.pods(names("pod", 2), "cpu: 3", "")
	b.eventually("the leader is gone", crashed.Load)
	require.Zero(
		t,
		second.wire.count("DescribeInstances", "RunInstances", "StartInstances", "StopInstances", "TerminateInstances", "CreateTags"),
	)
	for _, r := range second.net.Writes() {
		require.Equal(t, "leases", r.Resource, "%s without the Lease", r)
	}
	b.eventually("the pods run", func() bool { return b.bound() == 2 && b.counts() == [3]int32{3, 2, 5} })
	started := append(first.started(b), second.started(b)...)
	slices.Sort(started)
	require.Len(t, started, 2)
	require.Len(t, slices.Compact(started), 2, "no machine is started twice")
	require.Len(t, b.instances(), 5)
}

// TestADeletedPoolLeavesNoMachine is D20: right after a restart, those without a Node
// included, and not before the cloud says so.
func TestADeletedPoolLeavesNoMachine(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a Kubernetes of its own")
	}
	c := newCell(t)
	r := c.start(t, nil)
	b := c.bench(t, "gone")
	b.class()
	b.pool("poolSize: 7, minStandby: 3")
	b.standby(3)
	b.pods(names("pod", 2), "cpu: 3", "")
	b.eventually("two run", func() bool { return b.bound() == 2 && b.counts() == [3]int32{3, 2, 5} })
	known := b.ids()
	var joined atomic.Pointer[string]
	b.habit(func(m booted) habit {
		if slices.Contains(known, m.id) {
			return habit{}
		}
		joined.CompareAndSwap(nil, &m.id)
		return habit{neverAttests: true, neverJoins: *joined.Load() != m.id}
	})
	b.pool("poolSize: 7, minStandby: 5")
	b.eventually("one warms up, one never joins", func() bool { return len(b.in("warmup")) == 1 && len(b.instances()) == 7 })
	r.stop()
	all := b.ids()
	require.Len(t, b.nodes(), 6)

	b.delete()
	down := &wire{fault: func(string, url.Values) wireFault {
		return wireFault{Code: "Unavailable", Status: http.StatusServiceUnavailable}
	}}
	r = c.startWith(t, &running{net: &applytest.Transport{}, wire: down}, nil)
	b.eventReported("NodePool", b.name, "CleanupFailed")
	require.NotNil(t, b.read(), "with EC2 down it stays")
	require.Equal(t, all, b.ids())
	require.Zero(t, r.wire.count("RunInstances", "TerminateInstances"))

	r.wire.set(nil)
	b.eventually("it is gone", func() bool { return b.read() == nil })
	for _, id := range all {
		require.Equal(t, types.InstanceStateNameTerminated, b.state(id))
	}
	b.eventually("the Nodes are gone", func() bool { return len(b.nodes()) == 0 })
	evicted := map[string]bool{}
	for _, request := range r.net.Requests() {
		if request.Subresource == "eviction" && request.Status == http.StatusCreated {
			evicted[request.Name] = true
		}
	}
	require.Equal(t, map[string]bool{"pod-00": true, "pod-01": true}, evicted)
	require.Zero(t, r.wire.count("RunInstances", "StartInstances"))
}

// TestAnOutageOfTheServerLosesNoPod is D21.
func TestAnOutageOfTheServerLosesNoPod(t *testing.T) {
	if testing.Short() {
		t.Skip("long: an outage of the API server")
	}
	c := newCell(t)
	r := c.start(t, nil)
	b := c.bench(t, "outage")
	b.class()
	b.pool("poolSize: 1, minStandby: 1, maxNodeRuntime: 1m")
	b.standby(1)
	b.budget() // the minute begins with the pods
	b.pods(names("pod", 3), "cpu: 1", "")
	b.eventually("they run", func() bool { return b.bound() == 3 })
	evictions := func(status int) int {
		n := 0
		for _, request := range r.net.Requests() {
			if request.Subresource == "eviction" && request.Status == status {
				n++
			}
		}
		return n
	}
	b.eventually("the budget forbids evictions", func() bool { return evictions(http.StatusTooManyRequests) > 0 })
	stops := r.wire.count("StopInstances")
	c.cluster.StopServer()
	before := len(r.net.Requests())
	deadline := time.After(time.Minute)
	for tick := time.NewTicker(50 * time.Millisecond); len(r.net.Requests()) < before+40; {
		select {
		case <-deadline:
			require.Fail(t, "the operator does not try")
		case <-tick.C:
		}
	}
	require.Equal(t, stops, r.wire.count("StopInstances"), "pods are on it")
	require.NoError(t, c.cluster.StartServer(t.Context()))
	require.Equal(t, 3, b.bound())
	var left atomic.Int64
	left.Store(-1)
	r.wire.set(func(action string, _ url.Values) wireFault {
		if action == "StopInstances" {
			for left.Load() < 0 && t.Context().Err() == nil {
				if pods, err := c.kube.CoreV1().Pods(b.name).List(t.Context(), metav1.ListOptions{}); err == nil {
					left.CompareAndSwap(-1, int64(len(pods.Items)))
				}
			}
		}
		return wireFault{}
	})
	// The machine may be stopped before kubectl has ended.
	_, err := c.cluster.Kubectl(t.Context(), "delete", "pdb", "-n", b.name, "none")
	require.NoError(t, err)
	b.eventually("it is recycled", func() bool { return len(b.in("standby")) == 1 })
	require.Zero(t, left.Load(), "pods on it when it was stopped")
	require.Equal(t, 3, evictions(http.StatusCreated))
	require.Equal(t, 1, r.wire.count("StopInstances")-stops)
}

// TestDrainsDelayNoStart is D27: ten pools wait for evictions that do not come to an end,
// more than there are workers, and a pod gets its machine all the same.
func TestDrainsDelayNoStart(t *testing.T) {
	if testing.Short() {
		t.Skip("long: drains of a minute")
	}
	c := newCell(t)
	const drains = 10
	var mu sync.Mutex
	hanging := map[string]bool{}
	release := make(chan struct{})
	net := &applytest.Transport{Fault: func(request applytest.Request) applytest.Fault {
		if request.Subresource == "eviction" {
			mu.Lock()
			hanging[request.Namespace] = true
			mu.Unlock()
			<-release
		}
		return applytest.Fault{}
	}}
	r := c.startWith(t, &running{net: net, wire: &wire{}}, nil)
	t.Cleanup(sync.OnceFunc(func() { close(release) }))
	fresh := c.bench(t, "fresh")
	fresh.class()
	fresh.pool("poolSize: 1, minStandby: 1")
	var benches []*bench
	for _, name := range names("drain", drains) {
		b := c.bench(t, name)
		benches = append(benches, b)
		b.class()
		b.pool("poolSize: 1, minStandby: 1")
		b.budget()
	}
	for _, b := range benches {
		b.standby(1)
		b.pods(names("pod", 1), "cpu: 1", "")
	}
	for _, b := range benches {
		b.eventually("it runs", func() bool { return b.bound() == 1 })
	}
	fresh.standby(1)
	for _, b := range benches {
		b.delete()
	}
	workers := 8
	fresh.eventually("no worker is free", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(hanging) >= workers
	})
	var asked atomic.Int64
	own := fresh.ids()
	r.wire.set(func(action string, form url.Values) wireFault {
		if action == "StartInstances" && slices.Equal(machinesOf(form), own) {
			asked.CompareAndSwap(0, time.Now().UnixNano())
		}
		return wireFault{}
	})
	fresh.pods(names("pod", 1), "cpu: 1", "")
	fresh.eventually("it runs", func() bool { return fresh.bound() == 1 })
	require.Equal(t, own, r.started(fresh))
	for _, b := range benches {
		require.Equal(t, 1, b.bound(), "the drains have not ended")
	}
	created := fresh.pod("pod-00").CreationTimestamp.Time // whole seconds
	fmt.Printf("figure nodepool_start_during_ten_drains_s %.1f s\n", time.Unix(0, asked.Load()).Sub(created).Seconds())
}

// TestAPoolAtRestWritesNothing is D28. Heartbeats of Nodes go on meanwhile.
func TestAPoolAtRestWritesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a long rest")
	}
	c := newCell(t)
	r := c.start(t, nil)
	b := c.bench(t, "rest")
	b.class()
	b.pool("poolSize: 4, minStandby: 2")
	b.standby(2)
	b.pods(names("pod", 1), "cpu: 1", "")
	b.eventually("one runs, two are on standby", func() bool { return b.bound() == 1 && b.counts() == [3]int32{2, 1, 3} })
	passes := func() int {
		return c.metric(t, r, `stratos_nodepool_reconciliation_duration_seconds_count{pool="rest"}`)
	}
	describes := func() int { return r.wire.count("DescribeInstances") }
	// It is at rest once it has looked at itself and has written nothing.
	for round, quiet := 0, false; !quiet; round++ {
		require.Less(t, round, 6, "it does not come to rest: %v", r.net.Writes())
		r.net.Reset()
		seen := passes()
		b.eventually("it has looked", func() bool { return passes() >= seen+2 })
		quiet = len(r.net.Writes()) == 0
	}
	version, nodes := b.read().ResourceVersion, b.nodes()
	r.net.Reset()
	began, first, calls := time.Now(), passes(), r.wire.count(
		"RunInstances",
		"StartInstances",
		"StopInstances",
		"TerminateInstances",
		"CreateTags",
	)
	listed := describes()
	beats := 0
	b.eventually("ten passes", func() bool {
		if beats++; beats%10 == 0 {
			for _, n := range b.in("running") {
				beat(b, n.Name)
			}
		}
		return passes() >= first+10
	})
	ticks := int(time.Since(began)/(4*time.Second)) + 1 // 5 s less a fifth
	require.LessOrEqual(t, passes()-first, ticks, "no pass but by the clock")
	require.LessOrEqual(t, describes()-listed, ticks)
	r.net.NoWrites(t)
	require.Equal(t, version, b.read().ResourceVersion)
	require.Equal(t, calls, r.wire.count("RunInstances", "StartInstances", "StopInstances", "TerminateInstances", "CreateTags"))
	require.Len(t, b.nodes(), len(nodes))
	require.Greater(t, beats, 100)
	fmt.Printf("figure nodepool_writes_at_rest %d writes\n", len(r.net.Writes()))
}

// TestSixPermissionsSuffice is D29: with literal ids in the class, a pool is filled,
// scaled up and down.
func TestSixPermissionsSuffice(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a Kubernetes of its own")
	}
	c := newCell(t)
	six := []string{"RunInstances", "TerminateInstances", "StartInstances", "StopInstances", "DescribeInstances", "CreateTags"}
	// The zones of subnets are asked for, and are not needed.
	known := append([]string{"DescribeSubnets"}, six...)
	w := &wire{fault: func(action string, _ url.Values) wireFault {
		if slices.Contains(six, action) {
			return wireFault{}
		}
		if !slices.Contains(known, action) {
			t.Errorf("%s was asked for", action)
		}
		return wireFault{Code: "UnauthorizedOperation", Status: http.StatusForbidden}
	}}
	r := c.startWith(t, &running{net: &applytest.Transport{}, wire: w}, nil)
	t.Run("all", func(t *testing.T) {
		for name, scenario := range map[string]func(*bench){"fill": fills, "up": scalesUp, "down": scalesDown} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				scenario(c.bench(t, "six-"+name))
			})
		}
	})
	b := c.bench(t, "six-end")
	b.class()
	b.pool("poolSize: 1, minStandby: 1")
	b.standby(1)
	b.delete()
	b.eventually("it is gone", func() bool { return b.read() == nil })
	for _, action := range six {
		require.Positive(t, r.wire.count(action), action)
	}
}

// beat does what a kubelet does every 5 minutes, or when something changes.
func beat(b *bench, node string) {
	b.Helper()
	at := metav1.NewTime(time.Now())
	b.patchConditions(
		node,
		corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: at},
		corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, LastHeartbeatTime: at},
	)
}
