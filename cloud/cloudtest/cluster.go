package cloudtest

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

// A Cluster simulates the cluster of a [Fake]'s machines: they boot, join as Nodes,
// attest their warm-up, stop themselves, and run pods. It implements [cloud.Nodes] and
// [cloud.Journal].
//
// It changes only in Step, which brings it up to the present time.
// The methods are safe for concurrent use.
type Cluster struct {
	// Fake is the cloud of its machines. Required.
	Fake *Fake
	// Scope is the scope of the pool. Required.
	Scope cloud.Scope
	// Boot is the time from a running machine to a ready Node. Default 15s.
	Boot time.Duration
	// Warmup is the time from a ready Node to the end of the first warm-up. Default
	// 60s.
	Warmup time.Duration
	// ControllerStop keeps machines from stopping themselves after the warm-up.
	ControllerStop bool
	// Machine is the capacity of a machine. Default 4 cores, 16 GiB, 20 pods.
	Machine demand.Resources
	// Overhead is the part of each machine that DaemonSets use.
	Overhead demand.Resources
	// Habit returns how a machine behaves. Nil means that all are healthy.
	Habit func(id string) Habit
	// Clock returns how far the clock of a machine is ahead of the others. Nil means
	// that all clocks agree.
	Clock func(id string) time.Duration
	// CloudController taints the Nodes of machines that are off, and removes the
	// taint when they are ready, as a cloud-controller-manager does.
	CloudController bool
	// Passing reports which taints a start is expected to remove. Nil means
	// [demand.Taint.Passing].
	Passing func(demand.Taint) bool
	// Fault returns the fault of each write, by the name of the method. Nil means no
	// faults.
	Fault func(Call) Fault

	mu           sync.Mutex
	nodes        map[string]*node // by instance id
	pods         map[string]*pod
	reservations []demand.Reservation
	journal      []cloud.LaunchIntent
	ordinal      int64
	writes       int
	wrong        []string
	powered      map[string]time.Time // when each machine was seen to run first, since its last stop
	warmed       map[string]bool      // whether its first boot is over
	attested     map[string]cloud.Attestation
	unregistered map[string]bool // whose Node was deleted since the last boot
}

// A Habit is how one machine differs from a healthy one.
type Habit struct {
	NeverJoins   bool // runs, and never becomes a Node
	NeverStops   bool // never ends its warm-up
	NeverAttests bool // ends its warm-up without an attestation
	NeverReady   bool // is not ready after its warm-up
}

// node is the Node of a machine, with what the cluster knows beside its status.
type node struct {
	cloud.NodeStatus
	closed bool
	taints []demand.Taint
	report time.Time // last of its kubelet, by the clock of the machine
	silent time.Time // it is not ready until then
}

// LoseReadiness makes a machine's Node not ready for a time, as a restart of its
// kubelet or a lost connection does. Its pods keep running.
func (c *Cluster) LoseReadiness(id string, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.nodes[id]; n != nil {
		n.silent = time.Now().Add(d)
	}
}

// DeleteNode deletes a machine's Node, as a person does by mistake. Its pods go. The kubelet
// goes on, and registers again at its next start only; until then it reports to a Node that
// others create.
func (c *Cluster) DeleteNode(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes[id] == nil {
		return
	}
	delete(c.nodes, id)
	for _, p := range c.pods {
		if p.node == id {
			p.node = ""
		}
	}
	if c.unregistered == nil {
		c.unregistered = map[string]bool{}
	}
	c.unregistered[id] = true
}

// HasNode reports whether a machine has a Node.
func (c *Cluster) HasNode(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[id] != nil
}

// Heard returns the time of the last report of a machine's kubelet, by the clock of the
// machine; zero if there is none.
func (c *Cluster) Heard(id string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.nodes[id]; n != nil {
		return n.report
	}
	return time.Time{}
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

// Wrong returns the violations so far: a machine that was stopped under its pods, a
// standby machine that was not stopped, a Node that was opened while its machine was
// off.
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
	instances := c.Fake.instances(true)
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
		delete(c.unregistered, i.ID)
		if _, ran := c.powered[i.ID]; ran {
			c.warmed[i.ID] = true // user data runs at the first boot only
			delete(c.powered, i.ID)
		}
		if n != nil {
			n.Ready, n.NetworkReady = false, false
			if c.CloudController && i.State == cloud.InstanceStopped {
				n.taints = []demand.Taint{{Key: "node.cloudprovider.kubernetes.io/shutdown", Effect: demand.NoSchedule}}
			}
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
	if habit.NeverJoins || n == nil && c.unregistered[i.ID] || now.Before(since.Add(cmp.Or(c.Boot, 15*time.Second))) {
		return
	}
	if n == nil {
		n = &node{NodeStatus: cloud.NodeStatus{Name: "node-" + i.ID, ID: i.ID}}
		c.nodes[i.ID] = n
	}
	warm := c.warmed[i.ID]
	c.report(n, now, (!warm || !habit.NeverReady) && !now.Before(n.silent))
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

// heartbeat is how often a kubelet reports an unchanged state.
const heartbeat = 5 * time.Minute

// report applies a report of a machine's kubelet to its Node.
func (c *Cluster) report(n *node, now time.Time, ready bool) {
	clock := now
	if c.Clock != nil {
		clock = clock.Add(c.Clock(n.ID))
	}
	if ready != n.Ready || !clock.Before(n.report.Add(heartbeat)) {
		n.report = clock
	}
	n.Ready, n.NetworkReady = ready, ready
	if ready {
		n.Starting, n.taints = false, nil
	}
	for _, p := range c.pods {
		p.early = p.early && (p.node != n.ID || !ready || n.State != cloud.StateRunning)
	}
}
