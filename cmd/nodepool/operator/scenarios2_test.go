package operator_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
)

// TestScenarios2 runs the scenarios of demand, of foreign hands on machines, and of pools
// that get smaller.
func TestScenarios2(t *testing.T) {
	if testing.Short() {
		t.Skip("long: a Kubernetes of its own")
	}
	c := newCell(t)
	r := c.start(t, nil)
	faults := &faults{}
	r.wire.set(faults.of)
	t.Run("all", func(t *testing.T) {
		for name, scenario := range map[string]func(*stage){
			"zones":      tryAnotherZone,
			"hands":      foreignHands,
			"emptydir":   evictsEmptyDir,
			"impossible": impossiblePods,
			"fragments":  fragmentation,
			"both":       twoPoolsMatch,
			"stale":      staleNetwork,
			"shrink":     shrinks,
			"flap":       losesReadiness,
			"flapping":   flapsOneByOne,
			"unready":    staysUnready,
			"shutdown":   startsATaintedMachine,
			"full":       passesOverAFullPool,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				scenario(&stage{bench: c.bench(t, "t-"+name), operator: r, faults: faults})
			})
		}
	})
}

// stage is a bench with the operator that works on it.
type stage struct {
	*bench

	operator *running
	faults   *faults
}

// faults combines the faults of several scenarios on one connection to EC2.
type faults struct {
	mu  sync.Mutex
	all []func(action string, form url.Values) wireFault
}

func (f *faults) add(fault func(action string, form url.Values) wireFault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, fault)
}

func (f *faults) of(action string, form url.Values) wireFault {
	f.mu.Lock()
	all := slices.Clone(f.all)
	f.mu.Unlock()
	for _, fault := range all {
		if got := fault(action, form); got != (wireFault{}) {
			return got
		}
	}
	return wireFault{}
}

// machinesOf returns those that a call names.
func machinesOf(form url.Values) []string {
	var ids []string
	for key, values := range form {
		if strings.HasPrefix(key, "InstanceId.") || strings.HasPrefix(key, "ResourceId.") {
			ids = append(ids, values...)
		}
	}
	slices.Sort(ids)
	return ids
}

// machines returns the machines of each call of an action, in the order of the calls.
func (w *wire) machines(action string) [][]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all [][]string
	for _, form := range w.seen {
		if form.Get("Action") == action {
			all = append(all, machinesOf(form))
		}
	}
	return all
}

// ids returns the machines of the pool that are not terminated.
func (b *bench) ids() []string {
	b.Helper()
	var ids []string
	for _, i := range b.instances() {
		ids = append(ids, *i.InstanceId)
	}
	slices.Sort(ids)
	return ids
}

// started returns the machines of the pool that were asked to start, once for each call.
func (r *running) started(b *bench) []string {
	b.Helper()
	own := b.ids()
	var ids []string
	for _, call := range r.wire.machines("StartInstances") {
		for _, id := range call {
			if slices.Contains(own, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// pod returns a pod of the scenario, nil if it is deleted.
func (b *bench) pod(name string) *corev1.Pod {
	b.Helper()
	p, err := b.kube.CoreV1().Pods(b.name).Get(b.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(b, err)
	return p
}

// patchConditions writes conditions of a Node. What is zero in them stays.
func (b *bench) patchConditions(node string, conditions ...corev1.NodeCondition) {
	b.Helper()
	var all []map[string]any
	for _, c := range conditions {
		one := map[string]any{"type": c.Type, "status": c.Status}
		for key, at := range map[string]metav1.Time{"lastHeartbeatTime": c.LastHeartbeatTime, "lastTransitionTime": c.LastTransitionTime} {
			if !at.IsZero() {
				one[key] = at
			}
		}
		all = append(all, one)
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": all}})
	require.NoError(b, err)
	_, err = b.kube.CoreV1().Nodes().Patch(b.Context(), node, apitypes.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	require.NoError(b, err)
}

// metric returns the value of one of the operator, 0 if it has none.
func (c *cell) metric(t *testing.T, r *running, name string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.metrics+"/metrics", http.NoBody)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			require.NoError(t, err)
			return int(n)
		}
	}
	return 0
}

// budget forbids every eviction of pods of the scenario.
func (b *bench) budget() {
	b.Helper()
	b.apply(
		fmt.Sprintf(
			"{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: none, namespace: %s}, spec: {maxUnavailable: 0, selector: {matchLabels: {app: %s}}}}",
			b.name,
			b.name,
		),
	)
}

// tryAnotherZone is D16: a machine of another zone starts at once.
func tryAnotherZone(s *stage) {
	var mu sync.Mutex
	zones, tried, launched := map[string]string{}, []string{}, 0
	s.faults.add(func(action string, form url.Values) wireFault {
		mu.Lock()
		defer mu.Unlock()
		switch ids := machinesOf(form); {
		case action == "RunInstances" && of(form, s.name) && len(tried) > 0:
			launched++
			if len(tried) == 1 {
				tried = append(tried, "a launch")
			}
		case action == "StartInstances" && zones[ids[0]] != "":
			tried = append(tried, zones[ids[0]])
			if zones[ids[0]] == tried[0] {
				return wireFault{Code: "InsufficientInstanceCapacity", Status: 500}
			}
		}
		return wireFault{}
	})
	s.class()
	s.pool("poolSize: 4, minStandby: 4")
	s.standby(4)
	mu.Lock()
	for _, i := range s.instances() {
		zones[*i.InstanceId] = *i.Placement.AvailabilityZone
	}
	mu.Unlock()
	s.pods(names("pod", 1), "cpu: 1", "")
	s.eventually("it runs", func() bool { return s.bound() == 1 })
	mu.Lock()
	defer mu.Unlock()
	runs := slices.Compact(tried)
	require.Len(s, runs, 2, "first one zone, which has no capacity, and then the other one")
	require.NotEqual(s, runs[0], runs[1])
	require.LessOrEqual(s, len(tried), 4, "no second machine of that zone is tried: these are the attempts of the client")
	require.Equal(s, runs[1], s.in("running")[0].Labels[corev1.LabelTopologyZone])
	require.Len(s, s.in("standby"), 3)
}

// foreignHands is D17: machines that others terminate or stop.
func foreignHands(s *stage) {
	s.class()
	s.pool("poolSize: 3, minStandby: 1, scaleDown: {enabled: false}")
	s.standby(1)
	first := s.in("standby")[0]
	_, err := s.ec2.TerminateInstances(
		s.Context(),
		&ec2.TerminateInstancesInput{InstanceIds: []string{first.Labels[v1alpha1.LabelInstanceID]}},
	)
	require.NoError(s, err)
	s.eventually("its Node goes", func() bool {
		return !slices.ContainsFunc(s.nodes(), func(n corev1.Node) bool { return n.Name == first.Name })
	})
	s.standby(1)
	require.Len(s, s.instances(), 1)

	s.pods(names("pod", 1), "cpu: 1", "")
	s.eventually("it runs", func() bool { return s.bound() == 1 && s.counts() == [3]int32{1, 1, 2} })
	second := s.in("running")[0]
	_, err = s.ec2.StopInstances(s.Context(), &ec2.StopInstancesInput{InstanceIds: []string{second.Labels[v1alpha1.LabelInstanceID]}})
	require.NoError(s, err)
	s.eventually("its Node is on standby", func() bool { return s.counts() == [3]int32{2, 0, 2} })
	standby := s.in("standby")
	i := slices.IndexFunc(standby, func(n corev1.Node) bool { return n.Name == second.Name })
	require.GreaterOrEqual(s, i, 0)
	require.True(s, standby[i].Spec.Unschedulable)
	require.True(s, slices.ContainsFunc(standby[i].Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintStandby }))
	require.Empty(s, standby[i].Annotations[v1alpha1.AnnotationScaleUpStarted])
	require.Len(s, s.ids(), 2)
}

// evictsEmptyDir is D22.
func evictsEmptyDir(s *stage) {
	var left atomic.Int64
	var id atomic.Pointer[string]
	s.faults.add(func(action string, form url.Values) wireFault {
		if own := id.Load(); own != nil && action == "StopInstances" && slices.Contains(machinesOf(form), *own) {
			for left.Load() < 0 && s.Context().Err() == nil {
				if pods, err := s.kube.CoreV1().Pods(s.name).List(s.Context(), metav1.ListOptions{}); err == nil {
					left.CompareAndSwap(-1, int64(len(pods.Items)))
				}
			}
		}
		return wireFault{}
	})
	left.Store(-1)
	s.class()
	s.pool("poolSize: 1, minStandby: 1, maxNodeRuntime: 1m")
	s.standby(1)
	id.Store(&s.ids()[0]) // its minute begins with the pods
	s.pods(names("pod", 2), "cpu: 1", ", volumes: [{name: v, emptyDir: {}}]")
	s.eventually("they run", func() bool { return s.bound() == 2 })
	s.eventually("it is recycled", func() bool { return len(s.in("standby")) == 1 })
	require.Zero(s, left.Load(), "pods on it when it was stopped")
	evicted := 0
	for _, request := range s.operator.net.Requests() {
		if request.Subresource == "eviction" && request.Namespace == s.name && request.Status == 201 {
			evicted++
		}
	}
	require.Equal(s, 2, evicted)
	require.Nil(s, s.pod("pod-00"))
	require.Nil(s, s.pod("pod-01"))
}

// impossiblePods is D23: no machine is started for a pod that fits none, and an Event says
// why. The pod that comes last shows that the operator has looked at all of them.
func impossiblePods(s *stage) {
	s.class()
	s.pool("poolSize: 4, minStandby: 3")
	s.standby(3)
	s.pods([]string{"huge"}, "cpu: 100", "")
	s.eventReported("Pod", "huge", "NoMachineFits")
	s.apply(
		fmt.Sprintf(
			"{apiVersion: v1, kind: Pod, metadata: {name: arm, namespace: %s}, spec: {nodeSelector: {stratos.sh/pool: %s, kubernetes.io/arch: arm64}, containers: [{name: c, image: x, resources: {requests: {cpu: 1}}}]}}",
			s.name,
			s.name,
		),
	)
	s.eventReported("Pod", "arm", "NoMachineFits")
	require.Empty(s, s.operator.started(s.bench))
	s.pods([]string{"good"}, "cpu: 1", "")
	s.eventually("it runs", func() bool { return s.bound() == 1 && s.counts() == [3]int32{3, 1, 4} })
	require.Len(s, s.operator.started(s.bench), 1)
	// The reasons change when a pool of another scenario comes or goes.
	notes := s.noMachineFits("huge")
	require.Len(s, slices.Compact(slices.Sorted(slices.Values(notes))), len(notes), "the same is said once: %q", notes)
}

// fragmentation is D24: what pods need in sum would fit two machines. Those of the second
// pool do not become ready, so that it stays to be seen which pod each was started for.
func fragmentation(s *stage) {
	s.class()
	s.pool("poolSize: 6, minStandby: 3")
	s.standby(3)
	s.pods(names("pod", 3), "cpu: 2100m", "")
	s.eventually("they run", func() bool { return s.bound() == 3 && s.counts() == [3]int32{3, 3, 6} })
	require.Len(s, s.operator.started(s.bench), 3)

	slow := s.cell.bench(s.T, s.name+"-b")
	slow.habit(func(m booted) habit { return habit{neverReady: m.boot > 1} })
	slow.class()
	slow.pool("poolSize: 3, minStandby: 3")
	slow.standby(3)
	slow.pods(names("pod", 3), "cpu: 2100m", "")
	assigned := map[string]string{}
	slow.eventually("each has a machine", func() bool {
		assigned = map[string]string{}
		for _, a := range slow.read().Status.PodAssignments {
			assigned[a.PodName] = a.NodeName
		}
		return len(assigned) == 3
	})
	require.Len(s, slices.Compact(slices.Sorted(maps.Values(assigned))), 3, "one for each pod")
}

// twoPoolsMatch is D25.
func twoPoolsMatch(s *stage) {
	other := s.cell.bench(s.T, s.name+"-b")
	for _, b := range []*bench{s.bench, other} {
		b.class()
		b.pool("poolSize: 2, minStandby: 1, " + b.template(", labels: {team: both}"))
	}
	s.standby(1)
	other.standby(1)
	s.apply(
		fmt.Sprintf(
			"{apiVersion: v1, kind: Pod, metadata: {name: pod, namespace: %s}, spec: {nodeSelector: {team: both}, containers: [{name: c, image: x, resources: {requests: {cpu: 1}}}]}}",
			s.name,
		),
	)
	s.eventually("it runs", func() bool { return s.bound() == 1 })
	s.eventually("the pool is full again", func() bool {
		a, b := s.counts(), other.counts()
		return a[0] == 1 && b[0] == 1 && a[1]+b[1] == 1
	})
	require.Len(s, append(s.operator.started(s.bench), s.operator.started(other)...), 1)
	require.Len(s, append(s.ids(), other.ids()...), 3)
}

// staleNetwork is D26: what a Node said of its network before its stop is no news. A newer
// condition opens the Node.
func staleNetwork(s *stage) {
	s.habit(func(m booted) habit { return habit{neverNetwork: m.boot > 1} })
	s.class()
	s.pool("poolSize: 1, minStandby: 1, scaleDown: {enabled: false}")
	s.standby(1)
	s.pods([]string{"first"}, "cpu: 3", "")
	var first string
	s.eventually("a Node is ready and closed", func() bool {
		for _, n := range s.in("running") {
			ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
			})
			if ready {
				require.True(s, slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintNotReady }))
				require.True(s, slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
					return c.Type == corev1.NodeNetworkUnavailable && c.Status == corev1.ConditionFalse
				}), "the condition of the first boot")
				first = n.Name
			}
		}
		return first != ""
	})
	now := metav1.NewTime(time.Now().Add(time.Second)) // it has no fractions
	s.patchConditions(
		first,
		corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, LastHeartbeatTime: now, LastTransitionTime: now},
	)
	s.eventReported("Node", first, "StartupTaintsRemoved")
	s.eventually("it runs", func() bool { return s.bound() == 1 })
	require.NotContains(s, s.events("Node", first), "StartupTaintTimeout")
}

// shrinks is D30: standby machines go, the running one stays.
func shrinks(s *stage) {
	s.class()
	s.pool("poolSize: 5, minStandby: 4")
	s.standby(4)
	s.pods(names("pod", 1), "cpu: 1", "")
	s.eventually("one runs, four are on standby", func() bool { return s.bound() == 1 && s.counts() == [3]int32{4, 1, 5} })
	running := s.in("running")[0].Labels[v1alpha1.LabelInstanceID]
	s.pool("poolSize: 3, minStandby: 2")
	s.eventually("two are gone", func() bool { return s.counts() == [3]int32{2, 1, 3} && len(s.nodes()) == 3 })
	require.Len(s, s.instances(), 3)
	require.Equal(s, types.InstanceStateNameRunning, s.state(running))
	require.Equal(s, 1, s.bound())
}
