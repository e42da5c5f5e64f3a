package pods_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/pods"
)

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func pod(name string, phase corev1.PodPhase, isReady bool) *corev1.Pod {
	status := corev1.ConditionFalse
	if isReady {
		status = corev1.ConditionTrue
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "deployment", Ports: []corev1.ContainerPort{{ContainerPort: 8080}},
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("0.25"), corev1.ResourceMemory: resource.MustParse("512Mi"),
			}},
		}}},
		Status: corev1.PodStatus{
			Phase: phase,
			PodIP: "10.0.0.7",
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionTrue},
				{Type: corev1.ContainersReady, Status: status},
			},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "deployment"}},
		},
	}
}

func TestAPodIsReportedByItsPhaseAndReadiness(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		phase   corev1.PodPhase
		isReady bool
		want    pods.Status
	}{
		{corev1.PodRunning, true, pods.Running},
		{corev1.PodRunning, false, pods.Pending},
		{corev1.PodPending, false, pods.Pending},
		{corev1.PodPending, true, pods.Pending},
		{corev1.PodUnknown, true, pods.Pending},
		{"", false, pods.Pending},
		{corev1.PodSucceeded, true, 0},
		{corev1.PodFailed, true, 0},
	} {
		var h pods.History
		p := pod("a", test.phase, test.isReady)
		got := h.Instances([]*corev1.Pod{p}, start)
		if test.want == 0 {
			require.Empty(t, got, test.phase)
			continue
		}
		require.Equal(t, []pods.Instance{{Name: "a", Address: "10.0.0.7:8080", CPUMillicores: 250, MemoryMiB: 512, Status: test.want}}, got)

		p.Status.PodIP = ""
		require.Empty(t, h.Instances([]*corev1.Pod{p}, start), "without an address")
	}
}

func TestAPodThatIsBeingDeletedGetsNothingNew(t *testing.T) {
	t.Parallel()
	var h pods.History
	p := pod("a", corev1.PodRunning, true)
	p.DeletionTimestamp = &metav1.Time{Time: start}
	require.Equal(t, pods.Pending, h.Instances([]*corev1.Pod{p}, start)[0].Status)
}

func TestAnAddressOfIPv6IsInBrackets(t *testing.T) {
	t.Parallel()
	var h pods.History
	p := pod("a", corev1.PodRunning, true)
	p.Status.PodIP = "fd00::7"
	require.Equal(t, "[fd00::7]:8080", h.Instances([]*corev1.Pod{p}, start)[0].Address)
}

// TestAPodIsTheSumOfItsContainers at the first port that one states, and fails for the first that crashes.
func TestAPodIsTheSumOfItsContainers(t *testing.T) {
	t.Parallel()
	l := newLooper(t)
	for range 3 {
		l.crash(5*time.Second, time.Second)
	}
	own := l.Spec.Containers[0]
	first, last := own, own
	first.Name, first.Ports = "first", nil
	last.Name, last.Ports = "last", []corev1.ContainerPort{{ContainerPort: 9090}}
	l.Spec.Containers = []corev1.Container{first, own, last}
	prepare, beside := l.Status.ContainerStatuses[0], l.Status.ContainerStatuses[0]
	prepare.Name, prepare.RestartCount = "prepare", 1
	beside.Name, beside.RestartCount = "last", 4
	l.Status.InitContainerStatuses = []corev1.ContainerStatus{prepare}
	l.Status.ContainerStatuses = append(l.Status.ContainerStatuses, beside)
	got := l.is(pods.Failed)
	require.Equal(t, "10.0.0.7:8080", got.Address)
	require.EqualValues(t, 750, got.CPUMillicores)
	require.EqualValues(t, 3*512, got.MemoryMiB)
	require.EqualValues(t, 1+3+4, got.Restarts)
	require.Contains(t, got.Reason, "container deployment was restarted 3 times")

	l.Spec.Containers = l.Spec.Containers[:1]
	require.Equal(t, "10.0.0.7:0", l.is(pods.Failed).Address, "it states no port")
}

// looper is a pod whose container is restarted.
type looper struct {
	t *testing.T
	*corev1.Pod
	pods.History
	now time.Time
}

func newLooper(t *testing.T) *looper {
	t.Helper()
	l := &looper{t: t, Pod: pod("a", corev1.PodRunning, false), now: start}
	l.is(pods.Pending)
	return l
}

// crash restarts the container, which then waits for the next attempt.
func (l *looper) crash(after, ran time.Duration) {
	l.now = l.now.Add(after)
	c := &l.Status.ContainerStatuses[0]
	c.RestartCount++
	c.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "sesame"}
	c.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
		Reason: "Error", ExitCode: 7, Message: "sesame", StartedAt: metav1.Time{Time: l.now.Add(-ran)}, FinishedAt: metav1.Time{Time: l.now},
	}
}

func (l *looper) runs(isReady bool) {
	l.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	l.Status.Conditions = pod("a", corev1.PodRunning, isReady).Status.Conditions
}

func (l *looper) is(want pods.Status) pods.Instance {
	l.t.Helper()
	got := l.Instances([]*corev1.Pod{l.Pod}, l.now)
	require.Len(l.t, got, 1)
	require.Equal(l.t, want, got[0].Status)
	return got[0]
}

func TestThreeRestartsInFiveMinutesAreAFailure(t *testing.T) {
	t.Parallel()
	l := newLooper(t)
	l.crash(time.Minute, time.Second)
	l.is(pods.Pending)
	l.crash(2*time.Minute, time.Second)
	l.is(pods.Pending)
	l.crash(3*time.Minute, time.Second) // exactly five minutes after the first
	got := l.is(pods.Failed)
	require.Equal(t, "container deployment was restarted 3 times: Error, exit code 7", got.Reason)
	require.EqualValues(t, 3, got.Restarts)
	l.Status.ContainerStatuses[0].LastTerminationState.Terminated.Signal = 9
	require.Contains(t, l.is(pods.Failed).Reason, "signal 9")
}

func TestRestartsFurtherApartAreNone(t *testing.T) {
	t.Parallel()
	l := newLooper(t)
	for range 20 {
		l.crash(2*time.Minute+31*time.Second, time.Second)
		l.is(pods.Pending)
		l.runs(false)
	}
}

func TestAFailureLastsWhileTheNextAttemptIsDue(t *testing.T) {
	t.Parallel()
	l := newLooper(t)
	for range 3 {
		l.crash(10*time.Second, time.Second)
	}
	for range 30 { // the kubelet waits five minutes between attempts in the end
		l.now = l.now.Add(30 * time.Second)
		l.is(pods.Failed)
	}
	l.crash(0, time.Second)
	l.is(pods.Failed)
	l.runs(true)
	l.is(pods.Running)
	l.runs(false)
	l.is(pods.Failed) // it was ready for a moment
	for range 11 {
		l.now = l.now.Add(30 * time.Second)
		if l.now.Sub(l.Status.ContainerStatuses[0].LastTerminationState.Terminated.FinishedAt.Time) <= 5*time.Minute {
			l.is(pods.Failed)
		}
	}
	l.is(pods.Pending) // it runs without being ready, and without crashing
}

func TestSeveralRestartsBetweenTwoLooksCount(t *testing.T) {
	t.Parallel()
	l := newLooper(t)
	for range 3 {
		l.crash(5*time.Second, time.Second)
	}
	l.is(pods.Failed)
}

func TestRestartsOfLongAgoSayNothing(t *testing.T) {
	t.Parallel()
	l := newLooper(t)
	l.crash(time.Second, time.Second)
	l.is(pods.Pending)
	for range 5 {
		l.crash(time.Hour, time.Hour)
	}
	l.is(pods.Pending)
}

func TestAnAgentThatWasRestartedKnowsACrashLoopByItsLooks(t *testing.T) {
	t.Parallel()
	l := newLooper(t)
	for range 3 {
		l.crash(5*time.Second, time.Second)
	}
	l.History = pods.History{}
	l.is(pods.Failed)

	for what, change := range map[string]func(c *corev1.ContainerStatus){
		"few restarts": func(c *corev1.ContainerStatus) { c.RestartCount = 2 },
		"a long run": func(c *corev1.ContainerStatus) {
			c.LastTerminationState.Terminated.StartedAt = metav1.Time{Time: start.Add(-time.Hour)}
		},
		"it runs": func(c *corev1.ContainerStatus) {
			c.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		},
		"pulls":       func(c *corev1.ContainerStatus) { c.State.Waiting.Reason = "ImagePullBackOff" },
		"never ended": func(c *corev1.ContainerStatus) { c.LastTerminationState.Terminated = nil },
	} {
		var h pods.History
		p := l.DeepCopy()
		change(&p.Status.ContainerStatuses[0])
		require.Equal(t, pods.Pending, h.Instances([]*corev1.Pod{p}, l.now)[0].Status, what)
	}
}

func TestAnInitContainerCrashesToo(t *testing.T) {
	t.Parallel()
	l := newLooper(t)
	l.Status.Phase = corev1.PodPending
	for range 3 {
		l.crash(5*time.Second, time.Second)
	}
	l.Status.InitContainerStatuses, l.Status.ContainerStatuses = l.Status.ContainerStatuses, nil
	l.Status.InitContainerStatuses[0].Name = "prepare"
	require.Contains(t, l.is(pods.Failed).Reason, "container prepare was")
}

func TestAReasonHoldsNothingThatTheContainerWrote(t *testing.T) {
	t.Parallel()
	l := newLooper(t)
	for range 3 {
		l.crash(5*time.Second, time.Second)
	}
	require.NotContains(t, l.is(pods.Failed).Reason, "sesame")
	l.Status.ContainerStatuses[0].LastTerminationState.Terminated = nil
	require.Contains(t, l.is(pods.Failed).Reason, "the end is unknown")
	l.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 7}
	l.Status.ContainerStatuses[0].State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 9}
	require.Contains(t, l.is(pods.Failed).Reason, "exit code 9", "the end of now, not of before")
}

func TestAPodThatIsGoneIsForgotten(t *testing.T) {
	t.Parallel()
	l := newLooper(t)
	l.crash(time.Second, time.Second)
	l.crash(time.Second, time.Second)
	l.is(pods.Pending)
	require.Empty(t, l.Instances(nil, l.now))
	l.crash(time.Second, time.Second)
	l.Status.ContainerStatuses[0].State.Waiting = nil
	l.is(pods.Pending) // as if seen for the first time
}

func TestTheSumIsOfNameAddressAndStatusAlone(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	instances := []pods.Instance{
		{Name: "a", Address: "10.0.0.1:80", Status: pods.Running},
		{Name: "b", Address: "10.0.0.2:80", Status: pods.Pending},
		{Name: "b", Address: "10.0.0.3:80", Status: pods.Pending},
		{Name: "c", Address: "10.0.0.3:80", Status: pods.Failed},
	}
	sum := pods.SumOf(instances)
	for range 50 {
		shuffled := slices.Clone(instances)
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		before := slices.Clone(shuffled)
		require.Equal(t, sum, pods.SumOf(shuffled))
		require.Equal(t, before, shuffled, "the list is only read")
	}
	seen := map[pods.Sum]string{sum: "itself"}
	for what, other := range map[string][]pods.Instance{
		"none":           {},
		"one less":       instances[1:],
		"twice":          append(slices.Clone(instances), instances[0]),
		"another name":   changed(instances, func(i *pods.Instance) { i.Name = "aa" }),
		"another place":  changed(instances, func(i *pods.Instance) { i.Address = "10.0.0.1:81" }),
		"another status": changed(instances, func(i *pods.Instance) { i.Status = pods.Failed }),
		"joined":         changed(instances, func(i *pods.Instance) { i.Name, i.Address = "a1", "0.0.0.1:80" }),
	} {
		require.Empty(t, seen[pods.SumOf(other)], what)
		seen[pods.SumOf(other)] = what
	}
	require.Equal(t, sum, pods.SumOf(changed(instances, func(i *pods.Instance) { i.Restarts, i.Reason, i.CPUMillicores = 9, "x", 9 })))
}

func changed(instances []pods.Instance, change func(*pods.Instance)) []pods.Instance {
	other := slices.Clone(instances)
	change(&other[0])
	return other
}

func TestTheOrderOfThePodsDoesNotMatter(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		var list []*corev1.Pod
		for i := range 1 + random.IntN(6) {
			p := pod(
				fmt.Sprint("pod-", i),
				[]corev1.PodPhase{corev1.PodRunning, corev1.PodPending, corev1.PodFailed}[random.IntN(3)],
				random.IntN(2) == 0,
			)
			p.Status.PodIP = fmt.Sprint("10.0.0.", random.IntN(3))
			list = append(list, p)
		}
		var one, two pods.History
		want := one.Instances(list, start)
		slices.Reverse(list)
		require.Equal(t, want, two.Instances(list, start))
		require.True(t, slices.IsSortedFunc(want, func(a, b pods.Instance) int { return strings.Compare(a.Name, b.Name) }))
	}
}

func TestAnUpdateStatesEachInstance(t *testing.T) {
	t.Parallel()
	got := pods.Update("web", []pods.Instance{
		{
			Name:          "a",
			Address:       "10.0.0.7:8080",
			CPUMillicores: 250,
			MemoryMiB:     512,
			Status:        pods.Failed,
			Reason:        "container web was restarted 3 times",
			Restarts:      3,
		},
	})
	require.True(t, proto.Equal(&ctrlv1.ReportDeploymentStatusRequest_Update{
		K8SName: "web", Instances: []*ctrlv1.ReportDeploymentStatusRequest_Update_Instance{{
			K8SName: "a", Address: "10.0.0.7:8080", CpuMillicores: 250, MemoryMib: 512, Status: pods.Failed,
			Reason: "container web was restarted 3 times", Restarts: 3,
		}},
	}, got), got)
	for _, message := range []proto.Message{got, got.GetInstances()[0]} {
		fields := message.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			require.True(t, message.ProtoReflect().Has(fields.Get(i)), "%s is not reported", fields.Get(i).FullName())
		}
	}
}

func TestAReasonIsOneLineOfAtMostOneKibibyte(t *testing.T) {
	t.Parallel()
	reason := func(text string) string {
		return pods.Update("web", []pods.Instance{{Name: "a", Reason: text}}).GetInstances()[0].GetReason()
	}
	require.Equal(t, "Error  exit \u00e9", reason("Error\r\nexit \u00e9"))
	for n := range 4 { // a cut never splits a character
		long := reason(strings.Repeat("x", 1021+n) + "\u20ac\u20ac")
		require.LessOrEqual(t, len(long), 1024)
		require.Greater(t, len(long), 1020)
		require.True(t, utf8.ValidString(long))
	}
}

func TestASentinelIsPausedHealthyOrUnhealthy(t *testing.T) {
	t.Parallel()
	require.Equal(t, ctrlv1.Health_HEALTH_PAUSED, pods.Health(0, 0))
	require.Equal(t, ctrlv1.Health_HEALTH_PAUSED, pods.Health(0, 2), "they are about to go")
	require.Equal(t, ctrlv1.Health_HEALTH_HEALTHY, pods.Health(3, 1))
	require.Equal(t, ctrlv1.Health_HEALTH_UNHEALTHY, pods.Health(1, 0))
}
