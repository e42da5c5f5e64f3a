package replay

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

// machine is one machine, as the cloud and the cluster report it.
type machine struct {
	instance cloud.Instance
	// node is the zero value once the machine is terminated.
	node cloud.NodeStatus
	// site is the machine as the scheduler will see it.
	site *demand.Node
	pods []*pod // that are on it
	free demand.Resources
	// change numbers the transitions: an older one that is still on its way is void.
	change int
}

func (m *machine) open() bool { return m.node.State == cloud.StateRunning && m.node.Ready }

// state is its place in a sample.
func (m *machine) state() int {
	switch {
	case m.instance.State == cloud.InstanceStopped:
		return standby
	case m.instance.State == cloud.InstanceStopping:
		return stopping
	case m.node.State == cloud.StateWarmup:
		return warming
	case m.node.State == cloud.StateRunning && !m.node.Ready:
		return starting
	default:
		return running
	}
}

func (m *machine) fits(p *pod) bool {
	return p.Requests.CPU <= m.free.CPU && p.Requests.Memory <= m.free.Memory && m.free.Pods > 0
}

func (m *machine) take(p *pod, sign int64) {
	m.free.CPU -= sign * p.Requests.CPU
	m.free.Memory -= sign * p.Requests.Memory
	m.free.Pods -= sign
	if sign > 0 {
		m.pods = append(m.pods, p)
	} else {
		m.pods = slices.DeleteFunc(m.pods, func(o *pod) bool { return o == p })
	}
	m.node.Pods = len(m.pods)
}

// launch adds a machine that begins to warm up.
func (s *simulation) launch(operation string) *machine {
	s.made++
	id := fmt.Sprintf("i-%06d", s.made)
	m := &machine{
		instance: cloud.Instance{
			ID:               id,
			State:            cloud.InstanceRunning,
			LaunchTime:       s.now,
			InstanceType:     s.InstanceType,
			AvailabilityZone: "zone",
			Tags:             s.Pool.Scope.LaunchTags(operation, nil),
		},
		node: cloud.NodeStatus{Name: "node-" + id, ID: id},
		free: s.Capacity,
	}
	m.site = &demand.Node{Name: m.node.Name, Machine: id, Allocatable: s.Capacity}
	s.machines = append(s.machines, m)
	s.byID[id] = m
	s.mark(m, cloud.StateWarmup)
	s.later(s.Warmup, event{machine: m, becomes: cloud.InstanceStopped})
	return m
}

// mark records what the pool uses a machine for.
func (s *simulation) mark(m *machine, state cloud.State) {
	s.moved = true
	m.node.State, m.node.Since, m.node.Intent = state, s.now, cloud.Intent{}
	m.instance.Tags[s.Pool.Scope.Key("state")] = string(state)
	m.instance.Tags[s.Pool.Scope.Key("node")] = m.node.Name
}

// become carries out a transition of the cloud.
func (s *simulation) become(m *machine, state cloud.InstanceState) {
	s.moved = true
	m.instance.State = state
	switch state {
	case cloud.InstanceStopped:
		m.node.Ready, m.node.NetworkReady = false, false
		m.node.Attestation = cloud.AttestedReady
	case cloud.InstanceRunning:
		m.node.Ready, m.node.NetworkReady = true, true
	default:
	}
}

// carryOut does what an executor does with a cloud and a cluster in which nothing fails.
func (s *simulation) carryOut(a cloud.Action) error {
	m := s.byID[a.Machine]
	if m == nil && a.Verb != cloud.Launch {
		return fmt.Errorf("%s: there is no such machine", a)
	}
	s.moved = true
	switch a.Verb {
	case cloud.Launch:
		s.ordinal = a.Ordinal
		for range a.Count {
			s.launch(a.Operation)
			s.launched++
		}
	case cloud.Start:
		s.started++
		s.mark(m, cloud.StateRunning)
		m.instance.State, m.node.LastStarted = cloud.InstancePending, s.now
		s.later(s.Boot, event{machine: m, becomes: cloud.InstanceRunning})
		s.later(patience, event{}) // pods look for another machine
	case cloud.Shelve:
		s.mark(m, cloud.StateStandby)
		m.node.EmptySince, m.node.LastStarted = time.Time{}, time.Time{}
	case cloud.MarkEmpty:
		m.node.EmptySince = s.now
	case cloud.ClearEmpty:
		m.node.EmptySince = time.Time{}
	case cloud.Drain:
		if a.From != a.To {
			s.mark(m, a.To)
			m.node.Intent = a.Intent
		}
		s.evict(m)
	case cloud.GiveUp:
		s.mark(m, cloud.StateRunning)
	case cloud.Stop, cloud.ForceStop:
		m.instance.State = cloud.InstanceStopping
		m.node.Ready, m.node.NetworkReady = false, false
		s.later(s.Stop, event{machine: m, becomes: cloud.InstanceStopped})
	case cloud.Terminate:
		// It is listed as terminated once more: a machine that is only missing would count.
		s.evict(m)
		m.change++
		m.instance.State, m.node = cloud.InstanceTerminated, cloud.NodeStatus{}
	default:
		return fmt.Errorf("%s: not expected in a cloud without faults", a)
	}
	return nil
}

// evict lets the pods of a machine wait again, for the rest of their time.
func (s *simulation) evict(m *machine) {
	for _, p := range slices.Clone(m.pods) {
		m.take(p, -1)
		p.left = p.ends.Sub(s.now)
		p.run++
		s.wait(p, s.now)
		s.evicted++
	}
}
