package operator

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	cloudkube "github.com/seed-9e1ffd66/trueup/cloud/kube"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/pools"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/internal/capacity"
)

// poolState is a pool as its last pass has seen it. A pass fills a new one and publishes
// it in operator.states; from then on it does not change, so the loops that start machines
// and handle Nodes read it without a lock. Only kept is shared with the next pass.
type poolState struct {
	op   *operator
	pool *v1alpha1.NodePool
	// machines is the pool without what is of this program. Its Executor is nil for a pool that
	// has never had a machine. Its Plan is the last one, or what it would be if no pod waited.
	machines pools.Pool
	// recipe is what machines are launched from. It has no class while the class is
	// missing or not resolved; machines that exist are handled without it.
	recipe recipe
	kept   *poolMemory
	region string // of the next launch
}

// poolMemory is what is kept of a pool from one pass to the next, by the UID of the pool. What
// must survive is in the status of the pool, such as launches and repairs.
type poolMemory struct {
	cloud.SharedMemory

	journal journal
	looked  atomic.Bool // a pass has shown what the pool has

	mu sync.Mutex // of what follows
	// recalled is set once the SharedMemory has what the status records.
	recalled  bool
	regions   map[string]string // by instance: the region whose list has it
	announced map[string]bool   // Events of which a process sends one, such as "created"
}

// setRegions keeps which region each machine is in.
func (l *poolMemory) setRegions(regions map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.regions = regions
}

// once reports whether it is called with the text for the first time.
func (l *poolMemory) once(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.announced[text] {
		return false
	}
	if l.announced == nil {
		l.announced = map[string]bool{}
	}
	l.announced[text] = true
	return true
}

func (s *poolState) name() string { return s.pool.Name }

// recall has the first pass go on from what an earlier process has recorded in the status.
func (l *poolMemory) recall(status *v1alpha1.NodePoolStatus) {
	l.mu.Lock()
	first := !l.recalled
	l.recalled = true
	l.mu.Unlock()
	if !first {
		return
	}
	var recorded cloud.Recorded
	if r := status.Repairs; r != nil {
		recorded.Repaired, recorded.Repairs = r.Since.Time, int(r.Count)
	}
	for _, m := range status.Machines {
		if m.State != string(cloud.StateTerminating) && m.CloudState != string(cloud.InstanceShuttingDown) {
			recorded.Machines = append(recorded.Machines, m.ID)
		}
	}
	l.Recall(recorded)
}

// region returns the region of a machine, empty if no list has had it.
func (l *poolMemory) region(id string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.regions[id]
}

// newState returns the state of a pool at the beginning of a pass.
func (o *operator) newState(p *v1alpha1.NodePool) *poolState {
	memory := o.memoryOf(p)
	s := &poolState{op: o, pool: p, kept: memory, machines: pools.Pool{
		Spec: o.poolOf(p), Nodes: nodesOf(p), Memory: &memory.SharedMemory, DaemonSets: o.cluster.DaemonSets(),
		DefaultRequests: cloudkube.Resources(corev1.ResourceList(p.Spec.ScaleUp.DefaultPodResources.Requests)),
		Shorten:         short, Weight: p.Spec.Weight,
	}}
	s.machines.OnStart, s.machines.Drifted = s.started, s.drifted
	return s
}

// useClass states how machines are made from a class, which has been resolved.
func (s *poolState) useClass(class *v1alpha1.AWSNodeClass) {
	s.recipe.class = class
	s.machines.InstanceType = class.Spec.InstanceType
	s.machines.Capacity = func(daemons int) demand.Resources {
		return capacity.Of(class.Spec.InstanceType, daemons, class.Spec.Kubelet.MaxPods)
	}
	s.machines.Machine = func(t cloud.Template) demand.Node { return s.op.siteOf(s.pool, class, t.Zone) }
}

// drifted reports whether a machine was made from something else than the recipe.
func (s *poolState) drifted(i cloud.Instance) bool { return s.recipe.drifted(s.machines.Spec.Scope, i) }

// startable has the pools that may start machines as the loop that starts them has them.
func (o *operator) startable() map[string]*pools.Pool {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := map[string]*pools.Pool{}
	for name, s := range o.states {
		if s.pool.DeletionTimestamp == nil {
			out[name] = &s.machines
		}
	}
	return out
}

// started reports which machines were started for pods.
func (s *poolState) started(ctx context.Context, results []cloud.Result, err error) {
	s.recordResults(ctx, results)
	if err != nil && ctx.Err() == nil {
		s.op.logger.WarnContext(ctx, "machine starts incomplete", slog.String("pool", s.name()), slog.Any("error", err))
	}
}

// want returns what pods need of a pool beyond its standby machines, and how many of
// these are kept for buffers.
func (o *operator) want(s *poolState) cloud.Want {
	kept, _ := o.buffers.Standby(&s.machines)
	return cloud.Want{Launch: o.demand.Launches(s.name()), Standby: kept}
}

// holdSurplus keeps all standby machines while it is not known which of them the buffers take.
func (o *operator) holdSurplus(s *poolState) {
	if _, known := o.buffers.Standby(&s.machines); !known {
		s.machines.Spec.SurplusTTL = 0
	}
}

// memoryOf returns the memory of a pool. A pool of the same name that was created again has
// a new one.
func (o *operator) memoryOf(p *v1alpha1.NodePool) *poolMemory {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.memories[p.UID]
	if l == nil {
		l = &poolMemory{journal: o.newJournal()}
		o.memories[p.UID] = l
	}
	return l
}

// forget drops what is kept of a pool that is gone.
func (o *operator) forget(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.states[name]; s != nil {
		delete(o.memories, s.pool.UID)
		delete(o.states, name)
		o.buffers.Wake()
	}
	o.metrics.forget(name)
}
