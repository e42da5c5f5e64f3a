package operator

import (
	"context"
	"errors"
	"maps"
	"slices"
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

// poolMemory is the state that is kept of a pool from one pass to the next, by the UID of
// the pool. Losing it is safe: a new process lists the cloud first, and takes longer over
// what needs two observations. What must survive is in the status of the pool, such as
// launches and repairs.
type poolMemory struct {
	mu     sync.Mutex // of everything below except journal, which has its own
	memory cloud.Memory
	// recalled is set once memory has what the status records.
	recalled bool
	// passing is set while a pass runs. The pass works on a copy of memory and replaces
	// it at its end; late has the results of starts in the meantime, which are applied to
	// the replacement again.
	passing bool
	late    []cloud.Result
	// instances is the last list of the cloud, begun at listed, corrected by asked.
	instances []cloud.Instance
	regions   map[string]string // by instance: the region whose list has it
	listed    time.Time
	// asked has what the cloud has accepted of each machine: an older list does not show it.
	asked     map[string]asked
	journal   journal
	announced map[string]bool // Events of which a process sends one, such as "created"
}

// asked is the state that a machine goes to since a call that the cloud accepted. It is
// dropped with the first list that was begun after the call.
type asked struct {
	state cloud.InstanceState
	at    time.Time
}

// note keeps what the cloud has accepted. The caller holds mu.
func (l *poolMemory) note(results []cloud.Result, now time.Time) {
	states := map[cloud.Verb]cloud.InstanceState{
		cloud.Start:     cloud.InstancePending,
		cloud.Stop:      cloud.InstanceStopping,
		cloud.ForceStop: cloud.InstanceStopping,
		cloud.Terminate: cloud.InstanceShuttingDown,
	}
	for _, r := range results {
		if state := states[r.Action.Verb]; state != "" && (r.Err == nil || r.Accepted) {
			if l.asked == nil {
				l.asked = map[string]asked{}
			}
			l.asked[r.Action.Machine] = asked{state, now}
		}
	}
}

// take keeps a list of the cloud, with what the cloud has accepted since it was made, and which region
// each machine is in.
func (l *poolMemory) take(instances []cloud.Instance, regions map[string]string, listed time.Time) []cloud.Instance {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.asked, func(_ string, a asked) bool { return a.at.Before(listed) })
	for i := range instances {
		if a, ok := l.asked[instances[i].ID]; ok && !instances[i].State.Ending() {
			instances[i].State = a.state
		}
	}
	l.instances, l.regions, l.listed = instances, regions, listed
	return instances
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
	defer l.mu.Unlock()
	if !l.recalled && recorded != nil {
		l.memory.Repaired, l.memory.Repairs = recorded.Since.Time, int(recorded.Count)
	}
	l.recalled = true
	l.passing, l.late = true, nil
	return l.memory
}

// end stores the memory of a pass, and adds the results that came in during the pass.
func (l *poolMemory) end(memory cloud.Memory, results []cloud.Result, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note(results, now)
	l.memory = memory.Learn(l.late, now)
	l.passing, l.late = false, nil
}

// learn takes in the results of starts outside of a pass.
func (l *poolMemory) learn(results []cloud.Result, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note(results, now)
	l.memory = l.memory.Learn(results, now)
	if l.passing {
		l.late = append(l.late, results...)
	}
}

// list returns the last list of the cloud and when it was begun, as the last
// pass read it: passes alone ask the cloud.
func (l *poolMemory) list() ([]cloud.Instance, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.instances, l.listed
}

// instance returns a machine of the last list.
func (l *poolMemory) instance(id string) (cloud.Instance, bool) {
	instances, _ := l.list()
	i := slices.IndexFunc(instances, func(i cloud.Instance) bool { return i.ID == id })
	if i < 0 {
		return cloud.Instance{}, false
	}
	return instances[i], true
}

// region returns the region of a machine, empty if no list has had it.
func (l *poolMemory) region(id string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.regions[id]
}

// blocked reports whether the cloud had no capacity there a short while ago.
func (s *poolState) blocked(p cloud.Placement, now time.Time) bool {
	s.kept.mu.Lock()
	defer s.kept.mu.Unlock()
	return s.kept.memory.IsBlocked(p, now)
}

// room returns how many more machines the pool may launch now, and what limits that.
func (s *poolState) room(now time.Time) (room int, limit string) {
	s.kept.mu.Lock()
	defer s.kept.mu.Unlock()
	plan := s.foreseen
	plan.Memory = s.kept.memory
	room, limit = plan.Room(s.spec, now)
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
	instances, _ := s.kept.list()
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
	s.kept.learn(results, s.op.now())
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
		l = &poolMemory{}
		l.journal.write = o.status.Update
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
