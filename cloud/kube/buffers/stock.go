package buffers

import (
	"maps"
	"slices"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/pools"
)

// input is the cluster as the buffers are planned on.
func (c *Controller) input(asks []ask, all map[string]*pools.Pool) input {
	in := input{Buffers: asks, Ready: map[string]bool{}}
	if len(asks) == 0 {
		return in
	}
	now, starting, others := time.Now(), c.ScaleUp.InFlight(), byNodes(asks)
	standby, used := map[string][]nodes.View{}, map[string]int{}
	joined := map[string]bool{}
	c.ScaleUp.Cluster.Read(func(s nodes.Snapshot) {
		in.Namespaces = s.Namespaces()
		for v := range s.Nodes() {
			pool := all[v.Pool]
			owned := pool != nil && pool.Owns(&v)
			if owned {
				used[v.Pool]++
				joined[v.Status.ID] = true
			}
			switch {
			case v.Deleting:
			case owned && v.Status.State == cloud.StateWarmup:
				standby[v.Pool] = append(standby[v.Pool], v)
			case owned && v.Status.State == cloud.StateStandby:
				if good(pool, &v) && !starting[v.Status.ID] {
					in.Ready[v.Status.ID] = true
					standby[v.Pool] = append(standby[v.Pool], v)
				}
			case others && (v.Pool == "" || v.Status.State == cloud.StateRunning):
				site := v.Site
				site.Pods = s.PodsOn(v.Status.Name)
				in.Nodes = append(in.Nodes, &site)
			}
		}
	})
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p := all[name]
		has := stock{Supply: p.Supply(standby[name], now)}
		if p.Closed != "" {
			in.Pools = append(in.Pools, has)
			continue
		}
		// Those on standby before those that warm up.
		slices.SortStableFunc(has.Standby, func(a, b *demand.Node) int {
			switch {
			case in.Ready[a.Machine] == in.Ready[b.Machine]:
				return 0
			case in.Ready[a.Machine]:
				return -1
			}
			return 1
		})
		// Those that warm up are stock, and those that will join count as launches.
		has.MaxLaunches, has.Coming = max(0, p.Spec.Size-used[name]-lost(p, joined)), 0
		for _, t := range p.Spec.Templates {
			has.Every = append(has.Every, p.Launched(t))
		}
		in.Pools = append(in.Pools, has)
	}
	return in
}

// lost is how many machines take room of the pool and have no Node, without which no pod starts them.
func lost(p *pools.Pool, joined map[string]bool) (n int) {
	for _, m := range p.Plan.Machines {
		if !joined[m.ID] && !m.Coming && m.Instance != cloud.InstanceTerminated {
			n++
		}
	}
	return n
}

// good reports whether a standby machine counts for what the pool keeps.
func good(p *pools.Pool, v *nodes.View) bool {
	if i, ok := p.Memory.Instance(v.Status.ID); ok && p.Drifted != nil && p.Drifted(i) {
		return false
	}
	return v.Status.Attestation == cloud.AttestedReady || v.Status.Attestation == cloud.AttestedPartly && p.Spec.BestEffortImages
}
