package nodepool

import (
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// trace follows pods from the moment at which the scheduler finds no place for them to
// their place on a machine that was started for them.
type trace struct {
	metrics *metrics

	mu       sync.Mutex
	pods     map[string]*podTrace // by UID
	machines map[string]*machineTrace
	nodes    map[string]string // from the name of a Node to its machine
}

type podTrace struct {
	waiting time.Time
	machine string // that was started for it
}

type machineTrace struct {
	pool                              string
	called, accepted, up, ready, open time.Time
}

func newTrace(m *metrics) *trace {
	return &trace{metrics: m, pods: map[string]*podTrace{}, machines: map[string]*machineTrace{}, nodes: map[string]string{}}
}

// waits notes that the scheduler finds no place for a pod.
func (t *trace) waits(uid string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pods[uid] == nil {
		t.pods[uid] = &podTrace{waiting: at}
	}
}

// decided notes that a machine is started for a pod.
func (t *trace) decided(uid, machine string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.pods[uid]; p != nil {
		p.machine = machine
	}
}

// called notes that the cloud is asked to start a machine, accepted that it does.
func (t *trace) called(machine string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.machines[machine] = &machineTrace{called: at}
}

func (t *trace) accepted(pool, machine string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.machines[machine]; m != nil {
		m.accepted, m.pool = at, pool
	}
}

// node notes what a Node says of its machine.
func (t *trace) node(v *nodeView) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.nodes[v.status.Name] = v.status.ID
	m := t.machines[v.status.ID]
	if m == nil || m.accepted.IsZero() || v.status.State != cloud.StateRunning {
		return
	}
	now := time.Now()
	if m.up.IsZero() && !v.up.IsZero() {
		m.up = now
	}
	if m.ready.IsZero() && v.status.Ready {
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
	p := t.pods[uid]
	delete(t.pods, uid)
	if p == nil {
		return
	}
	m := t.machines[t.nodes[node]]
	if m == nil || m.accepted.IsZero() {
		return
	}
	t.metrics.scaleUp.WithLabelValues(m.pool).Observe(at.Sub(p.waiting).Seconds())
	if p.machine != t.nodes[node] {
		return
	}
	points := []time.Time{p.waiting, m.called, m.accepted, m.up, m.ready, m.open, at}
	for i := len(points) - 2; i > 0; i-- { // what was not seen took no time
		if points[i].IsZero() || points[i].After(points[i+1]) {
			points[i] = points[i+1]
		}
	}
	for i, stage := range stages {
		t.metrics.scaleUpStage.WithLabelValues(m.pool, stage).Observe(max(points[i+1].Sub(points[i]), 0).Seconds())
	}
}

// dropPod forgets a pod that is gone.
func (t *trace) dropPod(uid string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pods, uid)
}
