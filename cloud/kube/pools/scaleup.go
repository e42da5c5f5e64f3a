package pools

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
)

// ScaleUp starts standby machines for pods that the scheduler cannot place. It has a loop of its
// own: what else happens to a pool, a drain or a call that the cloud throttles, delays no start. It
// decides on what the watches have shown, and asks the cloud for nothing but the starts.
//
// What standby machines cannot serve is in [ScaleUp.Launches], for the pass of a pool: only a pass
// launches, because it has the list of the cloud that bounds the pool's size.
//
// A process that has just started knows no reservation. It finds what another one has started by
// the Nodes and the lists of the cloud. A ScaleUp is safe for concurrent use, and must not be
// copied. Its callbacks must not block, and must not call it.
type ScaleUp struct {
	// Cluster has the pods and the Nodes. Its changed function calls [ScaleUp.Wake]. Required.
	Cluster *nodes.Cluster
	// Pools returns the pools that may start machines, by name: not those that are being deleted.
	// Required.
	Pools func() map[string]*Pool
	// Look asks for a pass of a pool, because its machines were started, or what it has to launch
	// has changed. Required.
	Look func(pool string)
	// Patience is how long pods wait for a machine that was started for them, before they look
	// for another. Default 1m.
	Patience time.Duration
	// Avoid is how long a machine is passed over that could not be started. Default 30s.
	Avoid time.Duration
	// Retry is when pods are looked at again although nothing has changed. Default 10s.
	Retry time.Duration
	// OnDecision, if set, is called with how long a decision for all pods has taken.
	OnDecision func(took time.Duration)
	// OnUnplaced, if set, is called with a pod that starts no machine, and why, for an Event: once
	// with each reason while the pod waits.
	OnUnplaced func(pod *demand.Pod, why string)
	// Trace measures the time from a pod that waits to the pod on a machine.
	Trace Trace

	now func() time.Time // of tests

	once sync.Once
	wake chan struct{}

	mu sync.Mutex
	// reservations keep a started machine for the pods that it was started for, until they
	// are bound. Without them the next decision would start another machine.
	reservations []demand.Reservation
	assigned     map[string]Assignment // by the UID of the pod
	// inFlight has machines whose start is being asked for. Those with a time were started,
	// and their Nodes do not say so yet: pods wait for them until then.
	inFlight map[string]time.Time
	avoid    map[string]time.Time      // machines that could not be started, until then
	launches map[string]map[string]int // by pool and template: what standby machines do not give
	unplaced reasons
	moved    time.Time // when machines were drained last whose pods fitted elsewhere

	moving sync.Mutex // held by the pass that may drain such machines
}

// An Assignment is a pod and the Node of the machine that was started for it.
type Assignment struct {
	Pod *demand.Pod
	// Node is the name of the Node.
	Node string
	// At is when that was decided, by the clock of this process.
	At time.Time
}

func (s *ScaleUp) patience() time.Duration { return cmp.Or(s.Patience, time.Minute) }

func (s *ScaleUp) time() time.Time {
	if s.now != nil {
		return s.now()
	}
	return time.Now()
}

func (s *ScaleUp) woken() chan struct{} {
	s.once.Do(func() {
		s.wake = make(chan struct{}, 1)
	})
	return s.wake
}

// Wake asks for a look at the pods: after a change of a pod, a Node or a pool. It never blocks.
func (s *ScaleUp) Wake() {
	select {
	case s.woken() <- struct{}{}:
	default:
	}
}

// Start looks at the pods once, and whenever something has changed, until ctx ends. It returns nil
// once no start of a machine is under way. The Cluster should have seen all Nodes and pods by then:
// a pod would get another machine beside one that was started for it.
func (s *ScaleUp) Start(ctx context.Context) error {
	var starts sync.WaitGroup
	defer starts.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.woken():
		case <-timer.C:
		}
		if s.look(ctx, &starts) {
			timer.Reset(cmp.Or(s.Retry, 10*time.Second))
		} else {
			timer.Stop()
		}
	}
}

// look decides what pods need, and starts it in the background. It reports whether pods wait.
func (s *ScaleUp) look(ctx context.Context, starts *sync.WaitGroup) bool {
	pools := s.Pools()
	result, waiting := s.decide(pools)
	for _, need := range result.Pools {
		if len(need.Start) > 0 {
			starts.Go(func() { s.start(ctx, pools[need.Pool], need) })
		}
	}
	return waiting
}

// Decide makes one decision and starts nothing, for a preview. The machines that it would start
// count as reserved and in flight from then on.
func (s *ScaleUp) Decide() demand.Result {
	result, _ := s.decide(s.Pools())
	return result
}

// decide asks what the waiting pods need, and reserves the standby machines that are to
// be started. It reports whether pods wait.
func (s *ScaleUp) decide(pools map[string]*Pool) (result demand.Result, waiting bool) {
	now := s.time()
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.avoid, func(_ string, until time.Time) bool { return !now.Before(until) })
	reason := s.Trace.deciding(now)
	in, names := s.input(pools, now)
	before := s.launches
	s.launches = map[string]map[string]int{}
	if len(in.Pods) > 0 {
		began := time.Now()
		result = demand.Place(in)
		if s.OnDecision != nil {
			s.OnDecision(time.Since(began))
		}
	}
	s.reservations = demand.Reserve(s.reservations, result, now.Add(s.patience()))
	for _, need := range result.Pools {
		for _, n := range need.Start {
			set(&s.inFlight, n.Machine, time.Time{})
		}
		if want := need.Want(); len(want.Launch) > 0 {
			s.launches[need.Pool] = want.Launch
		}
	}
	for name := range pools {
		if !maps.Equal(before[name], s.launches[name]) {
			s.Look(name)
		}
	}
	s.assign(result, names, reason, now)
	if s.OnUnplaced != nil {
		s.unplaced.report(in.Pods, result, s.OnUnplaced)
	}
	return result, len(in.Pods) > 0
}

// start starts standby machines of one pool, and takes in what became of each.
func (s *ScaleUp) start(ctx context.Context, pool *Pool, need demand.PoolDemand) {
	results, err := s.execute(ctx, pool, need.Want())
	now := s.time()
	failed := false
	s.mu.Lock()
	for _, r := range results {
		id := r.Action.Machine
		switch {
		case r.Accepted && r.Err != nil:
			set(&s.inFlight, id, now.Add(s.patience()))
		case r.Err != nil:
			failed = true
			s.release(id, !errors.Is(r.Err, cloud.ErrNoCapacity), now)
		default:
			delete(s.inFlight, id)
		}
	}
	for _, n := range need.Start { // those that the plan did not want to start
		if _, asked := s.inFlight[n.Machine]; asked &&
			!slices.ContainsFunc(results, func(r cloud.Result) bool { return r.Action.Machine == n.Machine }) {
			failed = true
			s.release(n.Machine, true, now)
		}
	}
	s.mu.Unlock()
	if pool.OnStart != nil {
		pool.OnStart(ctx, results, err)
	}
	if failed {
		s.Wake() // another machine may do
	}
	s.Look(pool.Nodes.Name)
}

// errNotListed is why the plan of a start has no list: a standby machine is known from its Node.
var errNotListed = errors.New("the cloud is not asked before a start")

// execute starts standby machines, without a list of the cloud: the state on the Node is
// only ever standby once the cloud has said that the machine is stopped.
func (s *ScaleUp) execute(ctx context.Context, pool *Pool, want cloud.Want) ([]cloud.Result, error) {
	now := s.time()
	seen := cloud.Observed{ListError: errNotListed}
	seen.Instances, _ = pool.Memory.List()
	for _, v := range s.Cluster.Machines(pool.Nodes.Name, pool.Nodes.UID, nil) {
		seen.Nodes = append(seen.Nodes, v.Status)
	}
	plan := pool.Spec.Plan(seen, cloud.Want{Start: want.Start}, now)
	for i := range plan.Actions {
		s.Trace.called(pool.Nodes.Name, plan.Actions[i].Machine, now)
	}
	results, err := pool.Executor.Execute(ctx, pool.Spec, plan.Actions)
	for _, r := range results {
		if r.Accepted {
			s.Trace.accepted(r.Action.Machine, s.time())
		}
	}
	pool.Memory.Learn(results, s.time())
	return results, err
}

// release lets the pods of a machine that does not start look for another one.
func (s *ScaleUp) release(id string, avoid bool, now time.Time) {
	delete(s.inFlight, id)
	s.reservations = slices.DeleteFunc(s.reservations, func(r demand.Reservation) bool { return r.Machine == id })
	if avoid {
		s.passOver(id, now)
	}
}

// passOver has a machine passed over for a while.
func (s *ScaleUp) passOver(id string, now time.Time) {
	set(&s.avoid, id, now.Add(cmp.Or(s.Avoid, 30*time.Second)))
}

// assign notes which pods machines were started for.
func (s *ScaleUp) assign(result demand.Result, names map[string]string, reason, now time.Time) {
	kept := map[string]Assignment{}
	for _, r := range s.reservations {
		for _, uid := range r.Pods {
			if a, ok := s.assigned[uid]; ok && a.Node == names[r.Machine] {
				kept[uid] = a
			}
		}
	}
	for _, u := range result.Unplaced {
		delete(kept, u.Pod.UID) // others have taken its room
	}
	for _, p := range result.Placements {
		if p.On == demand.OnStandby {
			kept[p.Pod.UID] = Assignment{Pod: p.Pod, Node: p.Node.Name, At: now}
			s.Trace.decided(p.Pod.UID, p.Node.Machine, reason)
		}
	}
	s.assigned = kept
}
