package operator

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/demand"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
)

const (
	// patience is how long pods wait for a machine that was started for them, before they
	// look for another.
	patience = time.Minute
	// avoided is how long a machine is passed over that could not be started.
	avoided = 30 * time.Second
	// retryDemand is when pods are looked at again for which nothing could be done.
	retryDemand = 10 * time.Second
	// maxReasons is how many reasons of one pod are kept, to report none of them again.
	maxReasons = 16
)

// demandLoop starts machines for pods. It has a loop of its own: what else happens to a pool,
// a drain or a call that the cloud throttles, delays no start. It decides on what the
// watches have shown, and asks the cloud for nothing but the starts.
//
// What standby machines cannot serve is in launches, which the passes of the pools read:
// only a pass launches, because it has the list of the cloud that bounds the pool's size.
type demandLoop struct {
	op     *operator
	wake   chan struct{}
	report func(p *demand.Pod, reason, note string) // an Event

	mu sync.Mutex
	// reservations keep a started machine for the pods that it was started for, until they
	// are bound. Without them the next decision would start another machine.
	reservations []demand.Reservation
	assigned     map[string]v1alpha1.PodAssignment // by the UID of the pod
	// inFlight has machines whose start is being asked for. Those with a time were started,
	// and their Nodes do not say so yet: pods wait for them until then.
	inFlight map[string]time.Time
	avoid    map[string]time.Time      // machines that could not be started, until then
	launches map[string]map[string]int // by pool and template: what standby machines do not give
	unplaced map[string][]string       // why the pod of a UID fits nowhere, as its last Events state
}

func newDemand(o *operator) *demandLoop {
	return &demandLoop{
		op: o, wake: make(chan struct{}, 1), report: o.events.pod,
		assigned: map[string]v1alpha1.PodAssignment{}, inFlight: map[string]time.Time{},
		avoid: map[string]time.Time{}, launches: map[string]map[string]int{}, unplaced: map[string][]string{},
	}
}

// Wake asks for a look at the pods. It never blocks.
func (d *demandLoop) Wake() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// start looks at the pods whenever something has changed.
func (d *demandLoop) start(ctx context.Context) error {
	var starts sync.WaitGroup
	defer starts.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.wake:
		case <-timer.C:
		}
		if again := d.look(ctx, &starts); again > 0 {
			timer.Reset(again)
		} else {
			timer.Stop()
		}
	}
}

// look decides what pods need, and starts it in the background. It returns when it has to
// be called again although nothing changes; 0 is never.
func (d *demandLoop) look(ctx context.Context, starts *sync.WaitGroup) time.Duration {
	pools := d.op.open()
	result, waiting := d.decide(pools)
	for _, need := range result.Pools {
		pool := pools[need.Pool]
		if len(need.Start) > 0 {
			starts.Go(func() { d.startMachines(ctx, pool, need) })
		}
	}
	if !waiting {
		return 0
	}
	return retryDemand
}

// startMachines starts standby machines of one pool.
func (d *demandLoop) startMachines(ctx context.Context, pool *poolState, need demand.PoolDemand) {
	results, err := pool.start(ctx, need.Want())
	now := d.op.now()
	failed := false
	d.mu.Lock()
	for _, r := range results {
		id := r.Action.Machine
		if r.Accepted && r.Err != nil {
			d.inFlight[id] = now.Add(patience)
			continue
		}
		delete(d.inFlight, id)
		if r.Err != nil {
			failed = true
			d.release(id)
			if !errors.Is(r.Err, cloud.ErrNoCapacity) {
				d.avoid[id] = now.Add(avoided)
			}
		}
	}
	for _, n := range need.Start { // those that the plan did not want to start
		if _, asked := d.inFlight[n.Machine]; asked &&
			!slices.ContainsFunc(results, func(r cloud.Result) bool { return r.Action.Machine == n.Machine }) {
			delete(d.inFlight, n.Machine)
			d.release(n.Machine)
			d.avoid[n.Machine] = now.Add(avoided)
			failed = true
		}
	}
	d.mu.Unlock()
	pool.recordResults(ctx, results)
	if err != nil && ctx.Err() == nil {
		d.op.logger.WarnContext(ctx, "machine starts incomplete", slog.String("pool", pool.name()), slog.Any("error", err))
	}
	if failed {
		d.Wake() // another machine may do
	}
	d.op.pools.Add(poolKey(pool.name()))
}

// release lets the pods of a machine look for another one.
func (d *demandLoop) release(machine string) {
	d.reservations = slices.DeleteFunc(d.reservations, func(r demand.Reservation) bool { return r.Machine == machine })
}

// decide asks what the waiting pods need, and reserves the standby machines that are to
// be started. It reports whether pods wait.
func (d *demandLoop) decide(pools map[string]*poolState) (result demand.Result, waiting bool) {
	now := d.op.now()
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.avoid, func(_ string, until time.Time) bool { return !now.Before(until) })
	reason := d.op.metrics.trace.deciding(now)
	in, names := d.input(pools, now)
	before := d.launches
	d.launches = map[string]map[string]int{}
	if len(in.Pods) > 0 {
		began := time.Now()
		result = demand.Place(in)
		d.op.metrics.decided.Observe(time.Since(began).Seconds())
	}
	d.reservations = demand.Reserve(d.reservations, result, now.Add(patience))
	for _, need := range result.Pools {
		for _, n := range need.Start {
			d.inFlight[n.Machine] = time.Time{}
		}
		if want := need.Want(); len(want.Launch) > 0 {
			d.launches[need.Pool] = want.Launch
		}
	}
	for name, pool := range pools {
		if !maps.Equal(before[name], d.launches[name]) {
			d.op.pools.Add(poolKey(pool.name()))
		}
	}
	d.assign(result, names, reason, now)
	d.explain(in.Pods, result)
	return result, len(in.Pods) > 0
}

// assign notes which pods machines were started for.
func (d *demandLoop) assign(result demand.Result, names map[string]string, reason, now time.Time) {
	kept := map[string]v1alpha1.PodAssignment{}
	for _, r := range d.reservations {
		for _, uid := range r.Pods {
			if a, ok := d.assigned[uid]; ok && a.NodeName == names[r.Machine] {
				kept[uid] = a
			}
		}
	}
	for _, p := range result.Placements {
		if p.On == demand.OnStandby {
			kept[p.Pod.UID] = v1alpha1.PodAssignment{
				PodName: p.Pod.Name, PodNamespace: p.Pod.Namespace, PodUID: p.Pod.UID, NodeName: p.Node.Name, AssignedAt: timeNow(now),
			}
			d.op.metrics.trace.decided(p.Pod.UID, p.Node.Machine, reason)
		}
	}
	d.assigned = kept
}

// explain reports why a pod fits nowhere, each reason once while it waits: the reasons
// alternate when pools come and go.
func (d *demandLoop) explain(pods []*demand.Pod, result demand.Result) {
	waiting := make(map[string]bool, len(pods))
	for _, p := range pods {
		waiting[p.UID] = true
	}
	maps.DeleteFunc(d.unplaced, func(uid string, _ []string) bool { return !waiting[uid] })
	say := func(p *demand.Pod, why string) {
		said := d.unplaced[p.UID]
		if d.op.dry || slices.Contains(said, why) {
			return
		}
		d.unplaced[p.UID] = append(said[max(0, len(said)-maxReasons+1):], why)
		d.report(p, reasonNoMachine, why)
	}
	for _, u := range result.Unplaced {
		reasons := make([]string, 0, len(u.Reasons))
		for _, r := range u.Reasons {
			reasons = append(reasons, "pool "+r.Pool+": "+r.Message)
		}
		if len(reasons) > 0 {
			say(u.Pod, strings.Join(reasons, "; "))
		}
	}
	for _, p := range result.Unmodelled {
		say(p, "no machine is started for it: "+p.Unmodelled[0])
	}
}

// input is the cluster as the demand is decided on, and the names of the Nodes of
// machines.
func (d *demandLoop) input(pools map[string]*poolState, now time.Time) (in demand.Input, names map[string]string) {
	names = map[string]string{}
	d.op.cluster.Read(func(c nodes.Snapshot) {
		in.Pods = c.Waiting()
		d.unrecorded(c, pools, now)
		d.settle(c, in.Pods, pools, now)
		if len(in.Pods) > 0 {
			d.supplies(c, &in, names, pools, now)
		}
	})
	return in, names
}

// settle drops the reservations whose pods or machines are gone.
func (d *demandLoop) settle(c nodes.Snapshot, pods []*demand.Pod, pools map[string]*poolState, now time.Time) {
	waits := make(map[string]bool, len(pods))
	for _, p := range pods {
		waits[p.UID] = true
	}
	holds := func(id string) bool {
		if _, ok := d.inFlight[id]; ok {
			return true
		}
		v, ok := c.OfMachine(id)
		pool := pools[v.Pool]
		return ok && pool != nil && (pool.starting(&v, now) || v.Status.State == cloud.StateRunning && v.Status.Ready)
	}
	d.reservations = demand.Settle(d.reservations, func(uid string) bool { return waits[uid] }, holds, now)
}

// supplies adds the Nodes, the machines that start, and what the pools can add.
func (d *demandLoop) supplies(c nodes.Snapshot, in *demand.Input, names map[string]string, pools map[string]*poolState, now time.Time) {
	reserved := map[string][]string{}
	for _, r := range d.reservations {
		reserved[r.Machine] = r.Pods
	}
	in.Namespaces = c.Namespaces()
	standby, members := map[string][]nodes.View{}, map[string][]string{}
	for v := range c.Nodes() {
		id := v.Status.ID
		names[id] = v.Status.Name
		pool := pools[v.Pool]
		_, inFlight := d.inFlight[id]
		owned := pool != nil && v.Owned(v.Pool, pool.uid())
		if owned {
			members[v.Pool] = append(members[v.Pool], v.Status.Name)
		}
		site := v.Site
		c.Limit(&site)
		switch {
		case v.Deleting:
		case owned && (inFlight || pool.starting(&v, now)):
			site = pool.site(&v)
			c.Limit(&site, members[v.Pool]...)
			in.Starting = append(in.Starting, demand.Starting{Pool: v.Pool, Node: &site, Reserved: reserved[id]})
		case len(reserved[id]) > 0 && v.Status.State == cloud.StateRunning:
			// It is ready, and the scheduler has yet to bind the pods that it was started for.
			site.Pods = c.PodsOn(v.Status.Name)
			in.Starting = append(in.Starting, demand.Starting{Pool: v.Pool, Node: &site, Reserved: reserved[id]})
		case v.Status.State == cloud.StateStandby:
			if owned && d.avoid[id].IsZero() && !pool.kept.IsBlocked(cloud.Placement{InstanceType: pool.instanceType(&v), Zone: v.Zone}, now) {
				standby[v.Pool] = append(standby[v.Pool], v)
			}
		case v.Pool != "" && v.Status.State != cloud.StateRunning:
			// Warming up, or on its way out.
		default:
			site.Pods = c.PodsOn(v.Status.Name)
			in.Nodes = append(in.Nodes, &site)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		supply := pools[name].supply(standby[name], now)
		for _, n := range supply.Standby {
			c.Limit(n, members[name]...)
		}
		for i := range supply.Templates {
			c.Limit(&supply.Templates[i].Node, members[name]...)
		}
		in.Supplies = append(in.Supplies, supply)
	}
}
