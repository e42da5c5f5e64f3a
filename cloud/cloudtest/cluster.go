package cloudtest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// A Cluster is what stands beside a [Fake] in a simulation: machines that run
// boot, join as Nodes, attest their warm-up, stop themselves, and run pods. It
// implements [cloud.Nodes] and [cloud.Journal].
//
// Nothing happens in it by itself: each Step brings it up to the present time.
// The methods are safe for concurrent use.
type Cluster struct {
	// Fake is the cloud of its machines. Required.
	Fake *Fake
	// Scope is that of the pool. Required.
	Scope cloud.Scope
	// Boot is the time from a running machine to a ready Node. Default 15s.
	Boot time.Duration
	// Warmup is the time from there to the end of the first warm-up. Default 60s.
	Warmup time.Duration
	// ControllerStop keeps machines from stopping themselves after the warm-up.
	ControllerStop bool
	// Machine is what a machine has room for. Default 4 cores, 16 GiB, 20 pods.
	Machine cloud.Resources
	// Overhead is what the DaemonSets take of each machine.
	Overhead cloud.Resources
	// Habit returns how a machine behaves. Nil means that all are well.
	Habit func(id string) Habit
	// Fault is asked before each write, by the name of the method. Nil means no
	// faults.
	Fault func(Call) Fault

	mu           sync.Mutex
	nodes        map[string]*node // by instance id
	pods         map[string]*pod
	reservations []cloud.Reservation
	journal      []cloud.LaunchIntent
	ordinal      int64
	writes       int
	wrong        []string
	powered      map[string]time.Time // when each machine was seen to run first, since its last stop
	warmed       map[string]bool      // whether its first boot is over
	attested     map[string]cloud.Attestation
}

// A Habit is how one machine differs from a good one.
type Habit struct {
	NeverJoins   bool // runs, and never becomes a Node
	NeverStops   bool // never ends its warm-up
	NeverAttests bool // ends its warm-up without an attestation
	NeverReady   bool // is not ready after its warm-up
}

type node struct {
	cloud.NodeStatus
	closed bool
}

type pod struct {
	*cloud.Pod
	node   string // instance id; empty while pending
	until  time.Time
	pinned bool // no disruption is allowed
}

// AddPod adds a pending pod that runs for a time, or for ever if that is 0. Its
// Name is unique, and its UID if it has none. Without requests it takes one core.
// The eviction of a pinned pod is refused.
func (c *Cluster) AddPod(spec cloud.Pod, runs time.Duration, pinned bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	spec.UID = cmp.Or(spec.UID, spec.Name)
	if spec.Requests.CPU == 0 && spec.Requests.Memory == 0 {
		spec.Requests.CPU = 1000
	}
	p := &pod{Pod: &spec, pinned: pinned}
	if runs > 0 {
		p.until = time.Now().Add(runs)
	}
	if c.pods == nil {
		c.pods = map[string]*pod{}
	}
	c.pods[spec.Name] = p
}

// RemovePod removes a pod. One that is not there is ignored.
func (c *Cluster) RemovePod(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pods, name)
}

// Pending returns the pods that run nowhere, in the order of their names.
func (c *Cluster) Pending() []cloud.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []cloud.Pod
	for _, name := range slices.Sorted(maps.Keys(c.pods)) {
		if p := c.pods[name]; p.node == "" {
			out = append(out, *p.Pod)
		}
	}
	return out
}

// Attested reports whether the machine attested its warm-up.
func (c *Cluster) Attested(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.attested[id] != ""
}

// Writes returns how many writes the cluster has accepted.
func (c *Cluster) Writes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writes
}

// Wrong returns what should never have happened: a machine that was stopped
// under its pods, a standby machine that was not stopped, a Node that was opened
// while its machine was off.
func (c *Cluster) Wrong() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.wrong)
}

func (c *Cluster) blame(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// Step brings the cluster up to the present: machines boot and stop, pods end and
// are bound.
func (c *Cluster) Step() {
	instances := c.Fake.Instances()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes == nil {
		c.nodes, c.powered, c.warmed, c.attested = map[string]*node{}, map[string]time.Time{}, map[string]bool{}, map[string]cloud.Attestation{}
	}
	now := time.Now()
	for name, p := range c.pods {
		if !p.until.IsZero() && !now.Before(p.until) {
			delete(c.pods, name)
		}
	}
	for _, i := range instances {
		if c.Scope.Owns(i) {
			c.step(i, now)
		}
	}
	c.bind()
}

func (c *Cluster) step(i cloud.Instance, now time.Time) {
	n := c.nodes[i.ID]
	if i.State != cloud.InstanceRunning {
		if _, ran := c.powered[i.ID]; ran {
			c.warmed[i.ID] = true // user data runs at the first boot only
			delete(c.powered, i.ID)
		}
		if n != nil {
			n.Ready, n.NetworkReady = false, false
		}
		if i.State != cloud.InstancePending {
			c.kill(i, n)
		}
		return
	}
	since, ok := c.powered[i.ID]
	if !ok {
		since = now
		c.powered[i.ID] = now
	}
	habit := Habit{}
	if c.Habit != nil {
		habit = c.Habit(i.ID)
	}
	if habit.NeverJoins || now.Before(since.Add(cmp.Or(c.Boot, 15*time.Second))) {
		return
	}
	if n == nil {
		n = &node{NodeStatus: cloud.NodeStatus{Name: "node-" + i.ID, ID: i.ID}}
		c.nodes[i.ID] = n
	}
	warm := c.warmed[i.ID]
	n.Ready = !warm || !habit.NeverReady
	n.NetworkReady = n.Ready
	if warm || habit.NeverStops || now.Before(since.Add(cmp.Or(c.Boot, 15*time.Second)+cmp.Or(c.Warmup, time.Minute))) {
		return
	}
	c.warmed[i.ID] = true
	if !habit.NeverAttests {
		n.Attestation = cloud.AttestedReady
		c.attested[i.ID] = n.Attestation
	}
	if !c.ControllerStop {
		_ = c.Fake.Shutdown(i.ID) // it runs, so it can
	}
}

// kill returns the pods of a machine that went off to pending, and blames that if
// the pool did it.
func (c *Cluster) kill(i cloud.Instance, n *node) {
	for _, p := range c.pods {
		if p.node != i.ID {
			continue
		}
		p.node = ""
		if n != nil {
			c.blame("%s: machine %s is %s under pod %s", time.Now().Format(time.TimeOnly), i.ID, i.State, p.Name)
		}
	}
}

// Lose declares the pods on a machine lost before it goes off: a spot
// interruption, or a drain that may end by force.
func (c *Cluster) Lose(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pods {
		if p.node == id {
			p.node = ""
		}
	}
}

// bind puts pending pods on open, ready Nodes with room, the fullest first.
func (c *Cluster) bind() {
	var open []*node
	for _, n := range c.nodes {
		if n.Ready && !n.closed && n.State == cloud.StateRunning {
			open = append(open, n)
		}
	}
	on := c.on()
	slices.SortFunc(open, func(a, b *node) int { return cmp.Or(len(on[b.ID])-len(on[a.ID]), cmp.Compare(a.ID, b.ID)) })
	for _, name := range slices.Sorted(maps.Keys(c.pods)) {
		p := c.pods[name]
		if p.node != "" {
			continue
		}
		for _, n := range open {
			if c.fits(p.Pod, on[n.ID]) {
				p.node = n.ID
				on[n.ID] = append(on[n.ID], p.Pod)
				break
			}
		}
	}
}

// fits reports whether a pod has room beside others.
func (c *Cluster) fits(p *cloud.Pod, others []*cloud.Pod) bool {
	room := c.machine()
	room.CPU -= c.Overhead.CPU + p.Requests.CPU
	room.Memory -= c.Overhead.Memory + p.Requests.Memory
	for _, o := range others {
		room.CPU -= o.Requests.CPU
		room.Memory -= o.Requests.Memory
	}
	return room.CPU >= 0 && room.Memory >= 0 && int64(len(others)) < room.Pods
}

func (c *Cluster) machine() cloud.Resources {
	if c.Machine.CPU == 0 {
		return cloud.Resources{CPU: 4000, Memory: 16 << 30, Pods: 20}
	}
	return c.Machine
}

// on returns the pods of each machine, in the order of their names.
func (c *Cluster) on() map[string][]*cloud.Pod {
	on := map[string][]*cloud.Pod{}
	for _, name := range slices.Sorted(maps.Keys(c.pods)) {
		if p := c.pods[name]; p.node != "" {
			on[p.node] = append(on[p.node], p.Pod)
		}
	}
	return on
}
