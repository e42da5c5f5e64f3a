package pools

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
)

// How long after a pass the next one is, if nothing happens.
const (
	afterStart = 5 * time.Second
	afterDrain = 5 * time.Second // from one round of evictions to the next
	afterError = time.Minute
)

// A Pass is one pass of a pool: [Pass.Observe], [Pass.Run], [Pass.Next]. Of a pool one pass runs at a
// time.
type Pass struct {
	// Pool is the pool, which Observe and Run change. Run needs its Executor. Required.
	Pool *Pool
	// ScaleUp starts the machines of the pool, and has the Cluster. Required.
	ScaleUp *ScaleUp
	// Launches returns the launches that are recorded, and the highest ordinal, as
	// [nodes.Journal.Intents] does. Required.
	Launches func() ([]cloud.LaunchIntent, int64)
	// Marks, if set, repairs the label of the pool on the Nodes of its machines. OnReclaim, if set,
	// is called with the Nodes that it has written, and its error, unless there is neither.
	Marks     *nodes.Marks
	OnReclaim func(ctx context.Context, names []string, err error)
	// Publish shows the Pool to [ScaleUp] and others: a copy, since it changes until the pass ends. It
	// is called before the actions, when Plan is what it would be if no pod waited, and after them.
	// Required.
	Publish func()
	// Transition is when the next pass is while machines change state. A machine that has become
	// ready is kept for its pods for twice that time. Default 5s.
	Transition time.Duration
	// Views are the Nodes of the pool, as Observe has read them. Results are the results of the
	// actions of Run, in their order.
	Views   []nodes.View
	Results []cloud.Result
}

func (p *Pass) transition() time.Duration { return cmp.Or(p.Transition, 5*time.Second) }

// Observe joins the machines of a list of the cloud, which was begun at listed, with their Nodes,
// what pods are on their way to, and what launches are recorded. An error of the list becomes that
// of the observation, and the list is ignored then.
func (p *Pass) Observe(ctx context.Context, instances []cloud.Instance, listed time.Time, err error) cloud.Observed {
	seen := cloud.Observed{Listed: listed, ListError: err}
	if err == nil {
		seen.Instances = p.Pool.Memory.Take(instances, listed)
	}
	ids, drifted := map[string]bool{}, map[string]bool{}
	var owned []string
	for _, i := range seen.Instances {
		ids[i.ID] = true
		drifted[i.ID] = p.Pool.Drifted != nil && p.Pool.Drifted(i)
		if p.Pool.Spec.Scope.Owns(i) {
			owned = append(owned, i.ID)
		}
	}
	if p.Marks != nil {
		names, err := p.Marks.Reclaim(ctx, owned...)
		if p.OnReclaim != nil && (len(names) > 0 || err != nil) {
			p.OnReclaim(ctx, names, err)
		}
	}
	p.Views = p.ScaleUp.Cluster.Machines(p.Pool.Nodes.Name, p.Pool.Nodes.UID, ids)
	seen.Reserved = p.ScaleUp.Reserved()
	for i := range p.Views {
		s := p.Views[i].Status
		s.Drifted = drifted[s.ID]
		seen.Nodes = append(seen.Nodes, s)
		if a := p.Views[i].Site.Allocatable; a.Pods > 0 && !s.Drifted {
			p.Pool.Allocatable = a
		}
		if p.settling(&p.Views[i]) {
			seen.Reserved[s.ID] = true
		}
	}
	seen.Launches, seen.LastOrdinal = p.Launches()
	return seen
}

// Run makes a plan and carries it out, as [cloud.Executor.Pass]. want returns what pods want of the
// pool, without Vacate. The error joins the errors of the actions.
func (p *Pass) Run(ctx context.Context, seen cloud.Observed, want func() cloud.Want) (err error) {
	seen.Memory = p.Pool.Memory.Begin()
	p.Pool.Plan = p.Pool.Spec.Plan(seen, cloud.Want{}, p.ScaleUp.time())
	p.Publish()
	vacate, late, consolidated := p.ScaleUp.consolidate(p.Pool)
	defer func() { consolidated(p.Results) }()
	p.Pool.Plan, p.Results, err = p.Pool.Executor.Pass(ctx, p.Pool.Spec, seen, func(cloud.Memory) cloud.Want {
		w := want()
		w.Vacate, w.VacateLater = vacate, late
		return w
	})
	p.Pool.Memory.End(p.Pool.Plan.Memory, p.Results, p.ScaleUp.time())
	p.Publish()
	if len(p.Results) > 0 {
		p.ScaleUp.Wake()
	}
	return err
}

// InTransition reports whether machines of the pool were changing state when they were last
// listed: the list should not be old then.
func (p *Pass) InTransition() bool {
	instances, _ := p.Pool.Memory.List()
	for _, i := range instances {
		switch i.State {
		case cloud.InstancePending, cloud.InstanceStopping, cloud.InstanceShuttingDown:
			return true
		case cloud.InstanceRunning, cloud.InstanceStopped:
			// One that warms up stops itself.
			if s := cloud.State(i.Tags[p.Pool.Spec.Scope.Key("state")]); s == cloud.StateWarmup || s == cloud.StateTerminating {
				return true
			}
		default:
		}
	}
	launches, _ := p.Launches()
	return len(launches) > 0 || p.Pool.Spec.Deleting
}

// Next returns how long after the pass the next one is, if nothing happens: an interval, or less if
// the pool is on its way somewhere, and a minute, or what the cloud asks for, if it could not be asked
// because of an error. exact is set if the plan needs the pass at that time.
func (p *Pass) Next(interval time.Duration, failed error) (after time.Duration, exact bool) {
	after = interval
	soon := func(d time.Duration) { after = min(after, d) }
	for _, r := range p.Results {
		switch r.Action.Verb {
		case cloud.Start, cloud.Launch:
			soon(afterStart)
		case cloud.Drain:
			soon(afterDrain)
		default:
			soon(p.transition())
		}
	}
	if p.InTransition() {
		soon(p.transition())
	}
	for i := range p.Views {
		if p.settling(&p.Views[i]) {
			soon(p.grace())
		}
	}
	if failed != nil {
		after = afterError
		if throttled, ok := errors.AsType[*cloud.RateLimitError](failed); ok {
			after = max(throttled.RetryAfter, time.Second)
		}
	}
	if at := p.Pool.Plan.Wake; !at.IsZero() {
		soon(max(at.Sub(p.ScaleUp.time()), 100*time.Millisecond))
		return after, true
	}
	return after, false
}

// settling reports whether a machine became ready so short a while ago that the pods which
// it was started for may not be on it yet.
func (p *Pass) settling(v *nodes.View) bool {
	return v.Status.State == cloud.StateRunning && v.Status.Ready && p.ScaleUp.time().Before(v.Ready.Add(p.grace()))
}

// grace is how long a machine that was started is given to get its pods, before it
// counts as empty.
func (p *Pass) grace() time.Duration { return 2 * p.transition() }
