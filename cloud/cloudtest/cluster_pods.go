package cloudtest

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

// pod is one pod of the cluster, bound or pending.
type pod struct {
	*demand.Pod
	node   string    // instance id; empty while pending
	until  time.Time // its end; zero: none
	pinned bool      // no disruption is allowed
	early  bool      // bound before its machine was started for pods, and not running since
}

// AddPod adds a pending pod that runs for a time, or for ever if that is 0. Its
// Name is unique, and its UID if it has none. Without requests it takes one core.
// The eviction of a pinned pod is refused. A pod that tolerates every taint may be bound to
// a machine that is off, and stays there.
func (c *Cluster) AddPod(spec demand.Pod, runs time.Duration, pinned bool) {
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

// RemovePod removes a pod, if it exists.
func (c *Cluster) RemovePod(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pods, name)
}

// Pending returns the pods without a machine, in the order of their names.
func (c *Cluster) Pending() []demand.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []demand.Pod
	for _, name := range slices.Sorted(maps.Keys(c.pods)) {
		if p := c.pods[name]; p.node == "" {
			out = append(out, *p.Pod)
		}
	}
	return out
}

// Stranded returns the pods that are bound to a machine that is off, in the order of their
// names.
func (c *Cluster) Stranded() []demand.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []demand.Pod
	for _, name := range slices.Sorted(maps.Keys(c.pods)) {
		p := c.pods[name]
		if _, on := c.powered[p.node]; p.node != "" && !on {
			out = append(out, *p.Pod)
		}
	}
	return out
}

// kill returns the pods of a powered-off machine to pending. If the pool stopped the
// machine, that is a violation. A pod that was bound to a machine before its start does not
// run yet: it waits for the start, and goes with the machine.
func (c *Cluster) kill(i cloud.Instance, n *node) {
	for _, p := range c.pods {
		if p.node != i.ID || p.early && n != nil && !i.State.Ending() {
			continue
		}
		p.node = ""
		if n != nil && !p.early {
			c.blame("%s: machine %s is %s under pod %s", time.Now().Format(time.TimeOnly), i.ID, i.State, p.Name)
		}
	}
}

// Lose gives up the pods of a machine before it is powered off: a spot interruption, or
// a drain that may end by force.
func (c *Cluster) Lose(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pods {
		if p.node == id {
			p.node = ""
		}
	}
}

// toleratesAll reports whether no taint keeps the pod off a Node.
func toleratesAll(p *demand.Pod) bool {
	return slices.Contains(p.Tolerations, demand.Toleration{Exists: true})
}

// bind puts pending pods on open, ready Nodes with room, the fullest first. A pod that
// tolerates every taint goes to a closed Node if there is one: a scheduler that spreads pods
// prefers the emptiest.
func (c *Cluster) bind() {
	var open, closed []*node
	for _, n := range c.nodes {
		switch {
		case n.Ready && !n.closed && n.State == cloud.StateRunning:
			open = append(open, n)
		case n.State == cloud.StateStandby || n.State == cloud.StateWarmup:
			closed = append(closed, n)
		}
	}
	on := c.on()
	slices.SortFunc(closed, func(a, b *node) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(open, func(a, b *node) int { return cmp.Or(len(on[b.ID])-len(on[a.ID]), cmp.Compare(a.ID, b.ID)) })
	for _, name := range slices.Sorted(maps.Keys(c.pods)) {
		p := c.pods[name]
		if p.node != "" {
			continue
		}
		nodes := open
		if toleratesAll(p.Pod) {
			nodes = slices.Concat(closed, open)
		}
		for _, n := range nodes {
			if c.fits(p.Pod, on[n.ID]) {
				p.node, p.early = n.ID, n.State != cloud.StateRunning
				on[n.ID] = append(on[n.ID], p.Pod)
				break
			}
		}
	}
}

// fits reports whether a pod has room beside others.
func (c *Cluster) fits(p *demand.Pod, others []*demand.Pod) bool {
	room := c.machine()
	room.CPU -= c.Overhead.CPU + p.Requests.CPU
	room.Memory -= c.Overhead.Memory + p.Requests.Memory
	for _, o := range others {
		room.CPU -= o.Requests.CPU
		room.Memory -= o.Requests.Memory
	}
	return room.CPU >= 0 && room.Memory >= 0 && int64(len(others)) < room.Pods
}

func (c *Cluster) machine() demand.Resources {
	if c.Machine.CPU == 0 {
		return demand.Resources{CPU: 4000, Memory: 16 << 30, Pods: 20}
	}
	return c.Machine
}

// on returns the pods of each machine, in the order of their names.
func (c *Cluster) on() map[string][]*demand.Pod {
	on := map[string][]*demand.Pod{}
	for _, name := range slices.Sorted(maps.Keys(c.pods)) {
		if p := c.pods[name]; p.node != "" {
			on[p.node] = append(on[p.node], p.Pod)
		}
	}
	return on
}
