package pools

import (
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
)

// A Stage is a part of the time from a pod that waits to the pod on a Node.
type Stage string

// The stages, in their order. The first pod on a machine accounts for all but the first of them.
const (
	StageDecision Stage = "decision" // until the cloud is asked; for each pod
	StageAPI      Stage = "api"      // until the cloud has accepted
	StageBoot     Stage = "boot"     // until the kubelet reports
	StageRegister Stage = "register" // until the Node is ready
	StageReady    Stage = "ready"    // until its startup taints are removed
	StageBind     Stage = "bind"     // until the scheduler has placed the pod
)

// A Trace follows pods from the moment at which the scheduler finds no place for them to
// their place on a machine that a [ScaleUp] has started for them. All times are by the clock of
// this process, except how long a pod has waited before it was seen. It is safe for concurrent use.
type Trace struct {
	// OnBound, if set, is called with the time of each such pod, from waiting to bound.
	OnBound func(pool string, took time.Duration)
	// OnStage, if set, is called with the time of each stage.
	OnStage func(pool string, stage Stage, took time.Duration)

	mu   sync.Mutex
	pods map[string]time.Time // by UID: since when they wait
	// news is when the first pod came that no decision has seen, zero if there is none.
	news     time.Time
	machines map[string]*machineTrace
	nodes    map[string]string // from the name of a Node to its machine
}

// machineTrace is the start of one machine. Each time is set once, as the machine gets
// there; a stage is the difference of two.
type machineTrace struct {
	pool                              string
	reason                            time.Time // of the decision to start it
	called, accepted, up, ready, open time.Time
	pods                              int  // that it is started for
	used                              bool // that a pod is on it
}

// SawPod takes in what [nodes.Cluster.SawPod] has returned.
func (t *Trace) SawPod(was, is nodes.PodView) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case is.UID == "":
		delete(t.pods, string(was.UID))
	case !is.Waiting.IsZero():
		at := now
		if now.Sub(is.Waiting) > 2*time.Second { // it has no fractions of a second
			at = is.Waiting
		}
		t.waits(string(is.UID), at)
	case is.Node != "" && was.Node == "":
		t.bound(string(is.UID), is.Node, now)
	}
}

// SawNode takes in what a Node says of its machine.
func (t *Trace) SawNode(v nodes.View) {
	t.mu.Lock()
	defer t.mu.Unlock()
	set(&t.nodes, v.Status.Name, v.Status.ID)
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

// DropNode forgets a deleted Node, and its machine.
func (t *Trace) DropNode(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.machines, t.nodes[name])
	delete(t.nodes, name)
}

// Opened notes that pods may come to a machine, as [nodes.PassResult] reports.
func (t *Trace) Opened(machine string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.machines[machine]; m != nil && m.open.IsZero() {
		m.open = time.Now()
	}
}

// waits notes that the scheduler finds no place for a pod.
func (t *Trace) waits(uid string, at time.Time) {
	if _, known := t.pods[uid]; known {
		return
	}
	set(&t.pods, uid, at)
	if t.news.IsZero() {
		t.news = at
	}
}

// deciding begins a decision, and returns when its reason came: the first new pod, or now.
func (t *Trace) deciding(now time.Time) (reason time.Time) {
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
func (t *Trace) decided(uid, machine string, reason time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, waits := t.pods[uid]; !waits {
		return
	}
	m := t.machines[machine]
	if m == nil || !m.called.IsZero() {
		m = &machineTrace{reason: reason}
		set(&t.machines, machine, m)
	}
	m.pods++
}

// called notes that the cloud is asked to start a machine, which ends the decision for its
// pods, and accepted that it does.
func (t *Trace) called(pool, machine string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.machines[machine]
	if m == nil {
		m = &machineTrace{}
		set(&t.machines, machine, m)
	}
	m.pool, m.called = pool, at
	for range m.pods {
		t.stage(pool, StageDecision, at.Sub(m.reason))
	}
}

func (t *Trace) accepted(machine string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.machines[machine]; m != nil {
		m.accepted = at
	}
}

// bound notes that a pod is on a Node, and counts its time if its machine was started for it.
func (t *Trace) bound(uid, node string, at time.Time) {
	since, waited := t.pods[uid]
	delete(t.pods, uid)
	if !waited {
		return
	}
	m := t.machines[t.nodes[node]]
	if m == nil || m.accepted.IsZero() {
		return
	}
	if t.OnBound != nil {
		t.OnBound(m.pool, at.Sub(since))
	}
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
	for i, stage := range []Stage{StageAPI, StageBoot, StageRegister, StageReady, StageBind} {
		t.stage(m.pool, stage, points[i+1].Sub(points[i]))
	}
}

func (t *Trace) stage(pool string, stage Stage, took time.Duration) {
	if t.OnStage != nil {
		t.OnStage(pool, stage, max(took, 0))
	}
}

// set sets an element of a map, which may be nil.
func set[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[key] = value
}
