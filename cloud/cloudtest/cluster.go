package cloudtest

import (
	"cmp"
	"context"
	"errors"
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
	// Slots is how many pods run on one machine. Default 4.
	Slots int
	// Habit says how a machine behaves. Nil means that all are well.
	Habit func(id string) Habit
	// Fault is asked before each write, by the name of the method. Nil means no
	// faults.
	Fault func(Call) Fault

	mu       sync.Mutex
	nodes    map[string]*node // by instance id
	pods     map[string]*pod
	journal  []cloud.LaunchIntent
	ordinal  int64
	writes   int
	wrong    []string
	powered  map[string]time.Time // when each machine was seen to run first, since its last stop
	warmed   map[string]bool      // whether its first boot is over
	attested map[string]cloud.Attestation
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
	closed  bool
	startAt time.Time
}

type pod struct {
	name    string
	node    string // instance id; empty while pending
	until   time.Time
	pinned  bool // no disruption is allowed
	created time.Time
	lost    bool
}

// AddPod adds a pending pod that runs for a time, or for ever if that is 0. The
// eviction of a pinned pod is refused.
func (c *Cluster) AddPod(name string, runs time.Duration, pinned bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &pod{name: name, pinned: pinned, created: time.Now()}
	if runs > 0 {
		p.until = p.created.Add(runs)
	}
	if c.pods == nil {
		c.pods = map[string]*pod{}
	}
	c.pods[name] = p
}

// RemovePod removes a pod. One that is not there is ignored.
func (c *Cluster) RemovePod(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pods, name)
}

// Pending returns how many pods run nowhere.
func (c *Cluster) Pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, p := range c.pods {
		if p.node == "" {
			n++
		}
	}
	return n
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
		if n != nil && !p.lost {
			c.blame("%s: machine %s is %s under pod %s", time.Now().Format(time.TimeOnly), i.ID, i.State, p.name)
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

// bind puts pending pods on open, ready Nodes, the fullest first.
func (c *Cluster) bind() {
	var open []*node
	for _, n := range c.nodes {
		if n.Ready && !n.closed && n.State == cloud.StateRunning {
			open = append(open, n)
		}
	}
	used := c.used()
	slices.SortFunc(open, func(a, b *node) int { return cmp.Or(used[b.ID]-used[a.ID], cmp.Compare(a.ID, b.ID)) })
	for _, name := range slices.Sorted(maps.Keys(c.pods)) {
		p := c.pods[name]
		if p.node != "" {
			continue
		}
		for _, n := range open {
			if used[n.ID] < c.slots() {
				p.node = n.ID
				used[n.ID]++
				break
			}
		}
	}
}

func (c *Cluster) slots() int { return cmp.Or(c.Slots, 4) }

func (c *Cluster) used() map[string]int {
	used := map[string]int{}
	for _, p := range c.pods {
		if p.node != "" {
			used[p.node]++
		}
	}
	return used
}

// Observe lists the machines, and returns what a pool sees.
func (c *Cluster) Observe(ctx context.Context, provider cloud.Inventory, memory cloud.Memory) cloud.Observed {
	seen := cloud.Observed{Listed: time.Now(), Memory: memory}
	seen.Instances, seen.ListError = provider.ListInstances(ctx, c.Scope.Tags())
	c.mu.Lock()
	defer c.mu.Unlock()
	used := c.used()
	for _, id := range slices.Sorted(maps.Keys(c.nodes)) {
		n := c.nodes[id].NodeStatus
		n.Pods = used[id]
		seen.Nodes = append(seen.Nodes, n)
	}
	seen.Launches, seen.LastOrdinal = slices.Clone(c.journal), c.ordinal
	return seen
}

// Want returns what the pending pods need: standby machines in the order of
// their worth, leaving out places without capacity, and launches of the first
// template that is not blocked.
func (c *Cluster) Want(pool cloud.Pool, seen cloud.Observed) func(cloud.Memory) cloud.Want {
	pending := c.Pending()
	return func(memory cloud.Memory) cloud.Want {
		now := time.Now()
		var free int
		var standby []cloud.NodeStatus
		place := map[string]cloud.Placement{}
		for _, i := range seen.Instances {
			place[i.ID] = cloud.Placement{InstanceType: i.InstanceType, Zone: i.AvailabilityZone}
		}
		for _, n := range seen.Nodes {
			switch {
			case n.State == cloud.StateRunning:
				free += max(0, c.slots()-n.Pods)
			case n.State == cloud.StateStandby && !memory.IsBlocked(place[n.ID], now):
				standby = append(standby, n)
			}
		}
		slices.SortStableFunc(standby, func(a, b cloud.NodeStatus) int { return cmp.Compare(b.Attestation, a.Attestation) })
		need := (max(0, pending-free) + c.slots() - 1) / c.slots()
		var want cloud.Want
		for _, n := range standby[:min(need, len(standby))] {
			want.Start = append(want.Start, n.ID)
			need--
		}
		for _, t := range pool.Templates {
			if need > 0 && !memory.IsBlocked(cloud.Placement{InstanceType: t.InstanceType, Zone: t.Zone}, now) {
				want.Launch = map[string]int{t.Name: need}
				break
			}
		}
		return want
	}
}

// write asks the fault hook, outside the lock, and counts.
func (c *Cluster) write(ctx context.Context, method, id string, do func() error) error {
	var fault Fault
	if c.Fault != nil {
		fault = c.Fault(Call{Operation: method, IDs: []string{id}})
	}
	if err := cmp.Or(fault.Err, ctx.Err()); err != nil && !fault.Lost {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	err := do()
	if err == nil {
		c.writes++
	}
	if fault.Twice {
		err = do()
	}
	return cmp.Or(fault.Err, err)
}

var errConflict = errors.New("conflict: the object has been modified")

// Mark implements [cloud.Nodes].
func (c *Cluster) Mark(ctx context.Context, m cloud.Mark) error {
	truth, err := c.Fake.GetInstanceState(context.WithoutCancel(ctx), m.Instance.ID)
	return c.write(ctx, "Mark", m.Instance.ID, func() error {
		n := c.nodes[m.Instance.ID]
		if n == nil {
			n = &node{NodeStatus: cloud.NodeStatus{Name: m.Node, ID: m.Instance.ID}}
			n.Attestation = c.attested[m.Instance.ID]
			c.nodes[m.Instance.ID] = n
		} else if n.State != m.From {
			return fmt.Errorf("node %s is %q, not %q: %w", n.Name, n.State, m.From, errConflict)
		}
		switch {
		case err != nil:
		case m.To == cloud.StateStandby && truth != cloud.InstanceStopped:
			c.blame("machine %s is called standby while %s", m.Instance.ID, truth)
		case m.To == cloud.StateRunning && !truth.Powered() && !truth.Ending():
			c.blame("machine %s is opened while %s", m.Instance.ID, truth)
		}
		n.State, n.Since, n.Intent, n.closed = m.To, time.Now(), m.Intent, m.To != cloud.StateRunning
		switch m.To {
		case cloud.StateRunning:
			n.LastStarted = time.Now()
		case cloud.StateStandby:
			n.EmptySince, n.LastStarted = time.Time{}, time.Time{}
		}
		return nil
	})
}

// Drain implements [cloud.Nodes].
func (c *Cluster) Drain(ctx context.Context, name string) (int, error) {
	left := 0
	err := c.write(ctx, "Drain", name, func() error {
		left = 0
		for _, p := range c.pods {
			if n := c.nodes[p.node]; n != nil && n.Name == name {
				if p.pinned {
					left++
				} else {
					p.node = ""
				}
			}
		}
		return nil
	})
	return left, err
}

// SetEmpty implements [cloud.Nodes].
func (c *Cluster) SetEmpty(ctx context.Context, name string, empty bool) error {
	return c.write(ctx, "SetEmpty", name, func() error {
		for _, n := range c.nodes {
			if n.Name == name {
				n.EmptySince = time.Time{}
				if empty {
					n.EmptySince = time.Now()
				}
			}
		}
		return nil
	})
}

// Remove implements [cloud.Nodes].
func (c *Cluster) Remove(ctx context.Context, name, id string) error {
	return c.write(ctx, "Remove", id, func() error {
		if n := c.nodes[id]; n != nil && n.Name == name {
			delete(c.nodes, id)
		}
		return nil
	})
}

// Record implements [cloud.Journal].
func (c *Cluster) Record(ctx context.Context, intent cloud.LaunchIntent) error {
	return c.write(ctx, "Record", intent.Operation, func() error {
		c.ordinal = max(c.ordinal, intent.Ordinal)
		c.journal = slices.DeleteFunc(c.journal, func(l cloud.LaunchIntent) bool { return l.Ordinal == intent.Ordinal })
		c.journal = append(c.journal, intent)
		return nil
	})
}

// Erase implements [cloud.Journal].
func (c *Cluster) Erase(ctx context.Context, operation string) error {
	return c.write(ctx, "Erase", operation, func() error {
		c.journal = slices.DeleteFunc(c.journal, func(l cloud.LaunchIntent) bool { return l.Operation == operation })
		return nil
	})
}

// Outdate makes every Node drifted that there is now, as a change of the template
// does.
func (c *Cluster) Outdate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		n.Drifted = true
	}
}
