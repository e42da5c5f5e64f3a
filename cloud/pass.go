package cloud

import (
	"context"
	"errors"
	"slices"
)

// maxRounds bounds the plans of one pass: each round after the first avoids zones that
// turned out to have no capacity.
const maxRounds = 8

// Pass makes a plan and carries it out. If the cloud has no capacity for a start or a
// launch, another machine or template is tried in the same pass: want is called again
// with a memory of the blocked placements.
//
// It returns the first plan with the memory of the last, and all results. The error
// joins the errors of the actions.
func (e *Executor) Pass(ctx context.Context, pool Pool, seen Observed, want func(Memory) Want) (Plan, []Result, error) {
	if err := errors.Join(e.validate(), pool.Validate()); err != nil {
		return Plan{Memory: seen.Memory}, nil, err
	}
	plan := pool.Plan(seen, want(seen.Memory), e.now())
	results, err := e.Execute(ctx, pool, plan.Actions)
	plan.Memory = plan.Memory.Learn(results, e.now())
	all, last := results, results
	for range maxRounds {
		if !slices.ContainsFunc(last, func(r Result) bool { return errors.Is(r.Err, ErrNoCapacity) }) || ctx.Err() != nil {
			break
		}
		seen = seen.after(last)
		seen.Memory = plan.Memory
		next := pool.Plan(seen, want(seen.Memory), e.now())
		again := slices.DeleteFunc(next.Actions, func(a Action) bool { return a.Verb != Start && (a.Verb != Launch || a.Recorded) })
		if len(again) == 0 {
			break
		}
		var failed error
		last, failed = e.Execute(ctx, pool, again)
		plan.Memory = plan.Memory.Learn(last, e.now())
		all, err = append(all, last...), errors.Join(err, failed)
	}
	return plan, all, err
}

// after returns the observed state right after these results: started machines run, and
// launches are recorded.
func (o Observed) after(results []Result) Observed {
	o.Nodes = slices.Clone(o.Nodes)
	o.Instances = slices.Clone(o.Instances)
	o.Launches = slices.Clone(o.Launches)
	for _, r := range results {
		switch {
		case r.Action.Verb == Start && r.Err == nil:
			for i := range o.Nodes {
				if o.Nodes[i].ID == r.Action.Machine {
					o.Nodes[i].State = StateRunning
				}
			}
			for i := range o.Instances {
				if o.Instances[i].ID == r.Action.Machine {
					o.Instances[i].State = InstancePending
				}
			}
		case r.Action.Verb == Launch:
			o.LastOrdinal = max(o.LastOrdinal, r.Action.Ordinal)
			o.Launches = slices.DeleteFunc(o.Launches, func(l LaunchIntent) bool { return l.Operation == r.Action.Operation })
			if r.Launch != nil {
				o.Launches = append(o.Launches, *r.Launch)
			}
		}
	}
	return o
}
