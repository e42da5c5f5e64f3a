package operator

import (
	"context"
	"errors"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	cloudkube "github.com/seed-9e1ffd66/trueup/cloud/kube"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/internal/capacity"
)

// poolState is a pool as its last pass has seen it. A pass fills a new one and publishes
// it in operator.states; from then on it does not change, so the loops that start machines
// and handle Nodes read it without a lock. Only kept is shared with the next pass.
type poolState struct {
	op   *operator
	pool *v1alpha1.NodePool
	spec cloud.Pool
	// recipe is what machines are launched from. It has no class while the class is
	// missing or not resolved; machines that exist are handled without it.
	recipe recipe
	// executor is nil for a pool that has never had a machine.
	executor    *cloud.Executor
	sets        []*appsv1.DaemonSet
	allocatable demand.Resources // of a Node of the pool; zero while none has reported it
	kept        *poolMemory
	region      string     // of the next launch
	foreseen    cloud.Plan // the last one, or what it would be if no pod waited
}

// poolMemory is what is kept of a pool from one pass to the next, by the UID of the pool. What
// must survive is in the status of the pool, such as launches and repairs.
type poolMemory struct {
	cloud.SharedMemory

	journal journal

	mu sync.Mutex // of what follows
	// recalled is set once the SharedMemory has what the status records.
	recalled  bool
	regions   map[string]string // by instance: the region whose list has it
	announced map[string]bool   // Events of which a process sends one, such as "created"
}

// take keeps a list of the cloud, and which region each machine is in.
func (l *poolMemory) take(instances []cloud.Instance, regions map[string]string, listed time.Time) []cloud.Instance {
	l.mu.Lock()
	l.regions = regions
	l.mu.Unlock()
	return l.Take(instances, listed)
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
func (s *poolState) uid() string  { return string(s.pool.UID) }

// begin returns the memory for a pass. The first one goes on from what an earlier process
// has recorded.
func (l *poolMemory) begin(recorded *v1alpha1.Repairs) cloud.Memory {
	l.mu.Lock()
	first := !l.recalled
	l.recalled = true
	l.mu.Unlock()
	if first && recorded != nil {
		l.Recall(recorded.Since.Time, int(recorded.Count))
	}
	return l.Begin()
}

// region returns the region of a machine, empty if no list has had it.
func (l *poolMemory) region(id string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.regions[id]
}

// room returns how many more machines the pool may launch now, and what limits that.
func (s *poolState) room(now time.Time) (room int, limit string) {
	room, limit = s.kept.Room(s.foreseen, s.spec, now)
	return room, short(limit)
}

// errNotAsked is why the plan of a start has no list: a standby machine is known from its
// Node.
var errNotAsked = errors.New("the cloud is not asked before a start")

// start starts standby machines, without a list of the cloud: the state on the Node is
// only ever standby once the cloud has said that the machine is stopped.
func (s *poolState) start(ctx context.Context, want cloud.Want) ([]cloud.Result, error) {
	now := s.op.now()
	seen := cloud.Observed{ListError: errNotAsked, Memory: cloud.Memory{}}
	instances, _ := s.kept.List()
	seen.Instances = instances
	for _, v := range s.op.cluster.Machines(s.name(), s.uid(), nil) {
		seen.Nodes = append(seen.Nodes, v.Status)
	}
	plan := s.spec.Plan(seen, cloud.Want{Start: want.Start}, now)
	for i := range plan.Actions {
		s.op.metrics.trace.called(s.name(), plan.Actions[i].Machine, now)
	}
	results, err := s.executor.Execute(ctx, s.spec, plan.Actions)
	for _, r := range results {
		if r.Accepted {
			s.op.metrics.trace.accepted(r.Action.Machine, s.op.now())
		}
	}
	s.kept.Learn(results, s.op.now())
	return results, err
}

// instanceType returns the type of a machine, from its Node or else from the class. It is
// empty if neither states it.
func (s *poolState) instanceType(v *nodes.View) string {
	if t := v.Site.Labels[corev1.LabelInstanceTypeStable]; t != "" {
		return t
	}
	if s.recipe.class != nil {
		return s.recipe.class.Spec.InstanceType
	}
	return ""
}

// capacity returns what pods may use of a machine that has not reported it: what another
// Node of the pool reports, or else the resources of the type.
func (s *poolState) capacity(daemons int) demand.Resources {
	if s.allocatable.Pods > 0 {
		return s.allocatable
	}
	if s.recipe.class == nil {
		return demand.Resources{}
	}
	return capacity.Of(s.recipe.class.Spec.InstanceType, daemons, s.recipe.class.Spec.Kubelet.MaxPods)
}

// fresh is a machine that is launched into a zone, as the scheduler will see it.
func (s *poolState) fresh(zone string) demand.Node {
	node := s.op.siteOf(s.pool, s.recipe.class, zone)
	node.Pods = cloudkube.Daemons(&node, s.sets...)
	node.Allocatable = s.capacity(len(node.Pods))
	return node
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
		o.buffers.forget(s.pool.UID)
	}
	o.metrics.forget(name)
}
