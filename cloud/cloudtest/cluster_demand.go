package cloudtest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
)

// Observe lists the machines, and returns the observed state of the pool.
func (c *Cluster) Observe(ctx context.Context, provider cloud.Inventory, memory cloud.Memory) cloud.Observed {
	seen := cloud.Observed{Listed: time.Now(), Memory: memory, Reserved: map[string]bool{}}
	seen.Instances, seen.ListError = provider.ListInstances(ctx, c.Scope.Tags())
	c.mu.Lock()
	defer c.mu.Unlock()
	on := c.on()
	for _, id := range slices.Sorted(maps.Keys(c.nodes)) {
		n := c.nodes[id].NodeStatus
		n.Pods = len(on[id])
		for _, p := range c.pods {
			if p.node == id && toleratesAll(p.Pod) {
				n.Waiting++
			}
		}
		seen.Nodes = append(seen.Nodes, n)
	}
	for _, r := range c.reservations {
		seen.Reserved[r.Machine] = true
	}
	seen.Launches, seen.LastOrdinal = slices.Clone(c.journal), c.ordinal
	return seen
}

// Want returns the demand of the pending pods, by [demand.Place], without standby
// machines and templates in places without capacity. Machines that were started are
// reserved for their pods for twice the time of a boot.
func (c *Cluster) Want(pool cloud.Pool, seen cloud.Observed) func(cloud.Memory) cloud.Want {
	return func(memory cloud.Memory) cloud.Want {
		c.mu.Lock()
		defer c.mu.Unlock()
		now := time.Now()
		pending := c.anyPending()
		if !pending {
			c.reservations = nil
			if pool.ConsolidateAfter == 0 {
				return cloud.Want{}
			}
		}
		in, want := c.demand(pool, seen, memory, now), cloud.Want{}
		if pending {
			result := demand.Place(in)
			c.reservations = demand.Reserve(c.reservations, result, now.Add(c.patience()))
			if len(result.Pools) > 0 {
				want = result.Pools[0].Want()
			}
		}
		if pool.ConsolidateAfter > 0 {
			want.Vacate = vacate(in)
		}
		return want
	}
}

// vacate returns the machines whose pods fit on others. Pods that tolerate the taint of a stopped machine
// are not moved: it would be started for them.
func vacate(in demand.Input) (ids []string) {
	var occupied []demand.Occupied
	for _, n := range in.Nodes {
		if pods := n.Pods[1:]; !slices.ContainsFunc(pods, toleratesAll) { // the first is overhead
			occupied = append(occupied, demand.Occupied{Node: n, Pods: pods})
		}
	}
	for _, v := range demand.Vacate(in, occupied, 0) {
		ids = append(ids, v.Node.Machine)
	}
	return ids
}

func (c *Cluster) patience() time.Duration { return max(time.Minute, 2*cmp.Or(c.Boot, 15*time.Second)) }

func (c *Cluster) demand(pool cloud.Pool, seen cloud.Observed, memory cloud.Memory, now time.Time) demand.Input {
	place := map[string]cloud.Placement{}
	for _, i := range seen.Instances {
		place[i.ID] = cloud.Placement{InstanceType: i.InstanceType, Zone: i.AvailabilityZone}
	}
	starting := func(id string) bool {
		n := c.nodes[id]
		return n != nil && n.State == cloud.StateRunning && !n.Ready && now.Before(n.LastStarted.Add(c.patience()))
	}
	c.reservations = demand.Settle(c.reservations, c.waits, starting, now)
	reserved := map[string][]string{}
	for _, r := range c.reservations {
		reserved[r.Machine] = r.Pods
	}
	in := demand.Input{}
	for _, name := range slices.Sorted(maps.Keys(c.pods)) {
		if p := c.pods[name]; p.node == "" {
			in.Pods = append(in.Pods, p.Pod)
		}
	}
	on := c.on()
	seen.Memory = memory
	plan := pool.Plan(seen, cloud.Want{}, now)
	supply := demand.Supply{Pool: pool.Scope.Pool, Coming: plan.Counts.Coming}
	supply.MaxLaunches, supply.Limit = plan.Room(pool, now)
	var standby []cloud.NodeStatus
	for _, n := range seen.Nodes {
		switch {
		case n.State == cloud.StateRunning && n.Ready:
			in.Nodes = append(in.Nodes, c.shape(n.Name, n.ID, on[n.ID]))
		case starting(n.ID):
			in.Starting = append(in.Starting, demand.Starting{Pool: supply.Pool, Node: c.shape(n.Name, n.ID, on[n.ID]), Reserved: reserved[n.ID]})
		case n.State == cloud.StateStandby && !memory.IsBlocked(place[n.ID], now):
			standby = append(standby, n)
		}
	}
	// Machines that attested their warm-up are started first.
	slices.SortStableFunc(standby, func(a, b cloud.NodeStatus) int { return cmp.Compare(b.Attestation, a.Attestation) })
	for _, n := range standby {
		shape := c.shape(n.Name, n.ID, on[n.ID])
		if has := c.nodes[n.ID]; has != nil {
			shape.Taints = slices.DeleteFunc(slices.Clone(has.taints), c.passing)
		}
		supply.Standby = append(supply.Standby, shape)
	}
	for _, t := range pool.Templates {
		if !memory.IsBlocked(cloud.Placement{InstanceType: t.InstanceType, Zone: t.Zone}, now) {
			supply.Templates = append(supply.Templates, demand.NodeTemplate{Name: t.Name, Node: *c.shape("", "", nil)})
		}
	}
	in.Supplies = []demand.Supply{supply}
	return in
}

// shape is a machine as the scheduler sees it, with the pods of DaemonSets.
func (c *Cluster) shape(name, id string, pods []*demand.Pod) *demand.Node {
	room := c.machine()
	room.Pods++ // the pods of the DaemonSets
	overhead := &demand.Pod{Name: "daemons", Requests: c.Overhead}
	return &demand.Node{Name: name, Machine: id, Allocatable: room, Pods: append([]*demand.Pod{overhead}, pods...)}
}

func (c *Cluster) passing(t demand.Taint) bool {
	if c.Passing != nil {
		return c.Passing(t)
	}
	return t.Passing()
}

// waits reports whether a pod is pending.
func (c *Cluster) waits(uid string) bool {
	for _, p := range c.pods {
		if p.UID == uid {
			return p.node == ""
		}
	}
	return false
}

func (c *Cluster) anyPending() bool {
	for _, p := range c.pods {
		if p.node == "" {
			return true
		}
	}
	return false
}
