package pools

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
)

// Launches returns how many machines of each template pods need of a pool beyond its standby
// machines, for [cloud.Want].
func (s *ScaleUp) Launches(pool string) map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.launches[pool]
}

// Reserved returns the machines that pods are on their way to, for [cloud.Observed].
func (s *ScaleUp) Reserved() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]bool{}
	for _, r := range s.reservations {
		out[r.Machine] = true
	}
	return out
}

// InFlight returns the machines that are being started, and whose Nodes do not say so yet.
func (s *ScaleUp) InFlight() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]bool, len(s.inFlight))
	for id := range s.inFlight {
		out[id] = true
	}
	return out
}

// Assignments returns the pods that machines of a pool were started for, in the order of
// "namespace/name".
func (s *ScaleUp) Assignments(pool string) []Assignment {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Assignment
	for _, a := range s.assigned {
		if v, ok := s.Cluster.Node(a.Node); ok && v.Pool == pool {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b Assignment) int {
		return strings.Compare(a.Pod.Namespace+"/"+a.Pod.Name, b.Pod.Namespace+"/"+b.Pod.Name)
	})
	return out
}

// Starting reports whether pods may still count on a machine that was started: it is not
// ready and its time is not over, or it waits for its startup taints to go.
func (s *ScaleUp) Starting(pool *Pool, v *nodes.View) bool { return s.starting(pool, v, s.time()) }

func (s *ScaleUp) starting(pool *Pool, v *nodes.View, now time.Time) bool {
	if v.Status.State != cloud.StateRunning {
		return false
	}
	if v.Status.Ready {
		return slices.ContainsFunc(v.Site.Taints, pool.Nodes.Passing) &&
			now.Before(v.Status.LastStarted.Add(nodes.StartupTimeout+s.patience()))
	}
	return now.Before(v.ScaleUpStarted.Add(s.patience()))
}

// input is the cluster as the demand is decided on, and the names of the Nodes of
// machines.
func (s *ScaleUp) input(pools map[string]*Pool, now time.Time) (in demand.Input, names map[string]string) {
	names = map[string]string{}
	s.Cluster.Read(func(c nodes.Snapshot) {
		in.Pods = c.Waiting()
		s.unrecorded(c, pools, now)
		s.settle(c, in.Pods, pools, now)
		if len(in.Pods) > 0 {
			s.supplies(c, &in, names, pools, now)
		}
	})
	return in, names
}

// unrecorded keeps the machines that start and whose Nodes say standby: another process
// has started them, or their Nodes could not be written. Pods wait for them for a while,
// and a pass of the pool opens them.
func (s *ScaleUp) unrecorded(c nodes.Snapshot, pools map[string]*Pool, now time.Time) {
	for id, until := range s.inFlight {
		if until.IsZero() {
			continue
		}
		v, _ := c.OfMachine(id)
		if late := !now.Before(until); late || v.Status.State != cloud.StateStandby {
			delete(s.inFlight, id)
			if late {
				s.passOver(id, now)
			}
		}
	}
	for _, pool := range pools {
		instances, listed := pool.Memory.List()
		for _, i := range instances {
			v, _ := c.OfMachine(i.ID)
			if !i.State.Powered() || v.Status.State != cloud.StateStandby || !listed.After(v.Status.Since) {
				continue
			}
			if _, ok := s.inFlight[i.ID]; !ok && s.avoid[i.ID].IsZero() {
				set(&s.inFlight, i.ID, now.Add(s.patience()))
			}
		}
	}
}

// settle drops the reservations whose pods or machines are gone.
func (s *ScaleUp) settle(c nodes.Snapshot, pods []*demand.Pod, pools map[string]*Pool, now time.Time) {
	waits := make(map[string]bool, len(pods))
	for _, p := range pods {
		waits[p.UID] = true
	}
	holds := func(id string) bool {
		if _, ok := s.inFlight[id]; ok {
			return true
		}
		v, ok := c.OfMachine(id)
		pool := pools[v.Pool]
		return ok && pool != nil && (s.starting(pool, &v, now) || v.Status.State == cloud.StateRunning && v.Status.Ready)
	}
	s.reservations = demand.Settle(s.reservations, func(uid string) bool { return waits[uid] }, holds, now)
}

// supplies adds the Nodes, the machines that start, and what the pools can add.
func (s *ScaleUp) supplies(c nodes.Snapshot, in *demand.Input, names map[string]string, pools map[string]*Pool, now time.Time) {
	reserved := map[string][]string{}
	for _, r := range s.reservations {
		reserved[r.Machine] = r.Pods
	}
	in.Namespaces = c.Namespaces()
	standby, members := map[string][]nodes.View{}, map[string][]string{}
	for v := range c.Nodes() {
		id := v.Status.ID
		names[id] = v.Status.Name
		pool := pools[v.Pool]
		_, inFlight := s.inFlight[id]
		owned := pool != nil && pool.Owns(&v)
		if owned {
			members[v.Pool] = append(members[v.Pool], v.Status.Name)
		}
		node := v.Site
		c.Limit(&node)
		switch {
		case v.Deleting:
		case owned && (inFlight || s.starting(pool, &v, now)):
			node = pool.started(&v)
			c.Limit(&node, members[v.Pool]...)
			in.Starting = append(in.Starting, demand.Starting{Pool: v.Pool, Node: &node, Reserved: reserved[id]})
		case len(reserved[id]) > 0 && v.Status.State == cloud.StateRunning:
			// It is ready, and the scheduler has yet to bind the pods that it was started for.
			node.Pods = c.PodsOn(v.Status.Name)
			in.Starting = append(in.Starting, demand.Starting{Pool: v.Pool, Node: &node, Reserved: reserved[id]})
		case v.Status.State == cloud.StateStandby:
			if owned && s.avoid[id].IsZero() && !pool.blocked(&v, now) {
				standby[v.Pool] = append(standby[v.Pool], v)
			}
		case v.Pool != "" && v.Status.State != cloud.StateRunning:
			// Warming up, or on its way out.
		default:
			node.Pods = c.PodsOn(v.Status.Name)
			in.Nodes = append(in.Nodes, &node)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		supply := pools[name].Supply(standby[name], now)
		for _, n := range supply.Standby {
			c.Limit(n, members[name]...)
		}
		for i := range supply.Templates {
			c.Limit(&supply.Templates[i].Node, members[name]...)
		}
		in.Supplies = append(in.Supplies, supply)
	}
}
