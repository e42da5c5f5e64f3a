package operator

import (
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
)

// trace follows pods from the moment at which the scheduler finds no place for them to
// their place on a machine that was started for them.
type trace struct {
	metrics *metrics

	mu   sync.Mutex
	pods map[string]time.Time // by UID: since when they wait
	// news is when the first pod came that no decision has seen, zero if there is none.
	news     time.Time
	machines map[string]*machineTrace
	nodes    map[string]string // from the name of a Node to its machine
}

// machineTrace is the start of one machine. Each time is set once, as the machine gets
// there; the metric of a stage is the difference of two.
type machineTrace struct {
	pool                              string
	reason                            time.Time // of the decision to start it
	called, accepted, up, ready, open time.Time
	pods                              int  // that it is started for
	used                              bool // that a pod is on it
}

func newTrace(m *metrics) *trace {
	return &trace{metrics: m, pods: map[string]time.Time{}, machines: map[string]*machineTrace{}, nodes: map[string]string{}}
}

// waits notes that the scheduler finds no place for a pod.
func (t *trace) waits(uid string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.pods[uid]; !known {
		t.pods[uid] = at
		if t.news.IsZero() {
			t.news = at
		}
	}
}

// deciding begins a decision, and returns when its reason came: the first new pod, or now.
func (t *trace) deciding(now time.Time) (reason time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	reason = t.news
	if reason.IsZero() {
		reason = now
	}
	t.news = time.Time{}
	return reason
}

// decided records that a machine will be started for a pod. Which of many pods it is may
// change from one decision to the next; only the time of this decision's reason counts.
func (t *trace) decided(uid, machine string, reason time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, waits := t.pods[uid]; !waits {
		return
	}
	m := t.machines[machine]
	if m == nil || !m.called.IsZero() {
		m = &machineTrace{reason: reason}
		t.machines[machine] = m
	}
	m.pods++
}

// called notes that the cloud is asked to start a machine, which ends the decision for its
// pods, and accepted that it does.
func (t *trace) called(pool, machine string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.machines[machine]
	if m == nil {
		m = &machineTrace{}
		t.machines[machine] = m
	}
	m.pool, m.called = pool, at
	for range m.pods {
		t.metrics.scaleUpStage.WithLabelValues(pool, stages[0]).Observe(max(at.Sub(m.reason), 0).Seconds())
	}
}

func (t *trace) accepted(machine string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.machines[machine]; m != nil {
		m.accepted = at
	}
}

// node notes what a Node says of its machine.
func (t *trace) node(v *nodes.View) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.nodes[v.Status.Name] = v.Status.ID
	m := t.machines[v.Status.ID]
	if m == nil || m.accepted.IsZero() || v.Status.State != cloud.StateRunning {
		return
	}
	now := time.Now()
	if m.up.IsZero() && v.Up {
		m.up = now
	}
	if m.ready.IsZero() && v.Status.Ready {
		m.ready = now
	}
}

// opened notes that pods may come to a machine.
func (t *trace) opened(machine string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.machines[machine]; m != nil && m.open.IsZero() {
		m.open = time.Now()
	}
}

func (t *trace) dropNode(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.machines, t.nodes[name])
	delete(t.nodes, name)
}

// bound notes that a pod is on a Node, and counts its time if its machine was started for
// it. The first pod on a machine accounts for the stages.
func (t *trace) bound(uid, node string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	since, waited := t.pods[uid]
	delete(t.pods, uid)
	if !waited {
		return
	}
	m := t.machines[t.nodes[node]]
	if m == nil || m.accepted.IsZero() {
		return
	}
	t.metrics.scaleUp.WithLabelValues(m.pool).Observe(at.Sub(since).Seconds())
	if m.used {
		return
	}
	m.used = true
	points := []time.Time{m.called, m.accepted, m.up, m.ready, m.open, at}
	for i := len(points) - 2; i > 0; i-- { // a stage that was not seen took no time
		if points[i].IsZero() || points[i].After(points[i+1]) {
			points[i] = points[i+1]
		}
	}
	for i, stage := range stages[1:] {
		t.metrics.scaleUpStage.WithLabelValues(m.pool, stage).Observe(max(points[i+1].Sub(points[i]), 0).Seconds())
	}
}

// dropPod forgets a deleted pod.
func (t *trace) dropPod(uid string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pods, uid)
}
