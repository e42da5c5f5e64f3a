package cloud

import (
	"context"
	"errors"
	"fmt"
)

// start starts standby machines, and opens the Nodes of machines whose start the cloud
// has accepted.
func (x *execution) start(ctx context.Context, group []*Result) {
	set(group, x.provider.StartInstances(ctx, ids(group)))
	for _, r := range alive(group) {
		r.Accepted = true
	}
	x.mark(ctx, group, nil)
}

func (x *execution) open(ctx context.Context, group []*Result) {
	x.mark(ctx, group, x.expect(ctx, group, InstancePending, InstanceRunning))
}

// giveUp opens the Nodes again. A machine that is ready again is read first: a
// terminate may be under way that no list shows.
func (x *execution) giveUp(ctx context.Context, group []*Result) {
	var recovered []*Result
	for _, r := range group {
		if r.Action.Reason == reasonReady {
			recovered = append(recovered, r)
		}
	}
	if len(recovered) > 0 {
		x.expect(ctx, recovered, InstancePending, InstanceRunning)
	}
	x.mark(ctx, group, nil)
}

func (x *execution) shelve(ctx context.Context, group []*Result) {
	x.mark(ctx, group, x.expect(ctx, group, InstanceStopped))
}

// adopt records a Node that has joined: first its name on the machine, by which that is found
// without the Node. Nothing is done with a machine before its Node has a state.
func (x *execution) adopt(ctx context.Context, group []*Result) {
	x.each(ctx, group, func(ctx context.Context, r *Result) error {
		a := r.Action
		if err := x.executor.Provider.UpdateInstanceTags(ctx, a.Machine, x.pool.Scope.StateTags(a.To, a.Node)); err != nil {
			return err
		}
		return x.executor.Nodes.Mark(ctx, Mark{Instance: Instance{ID: a.Machine}, Node: a.Node, From: a.From, To: a.To})
	})
}

func (x *execution) retag(ctx context.Context, group []*Result) {
	x.each(ctx, group, func(ctx context.Context, r *Result) error {
		return x.executor.Provider.UpdateInstanceTags(ctx, r.Action.Machine, x.pool.Scope.StateTags(r.Action.To, r.Action.Node))
	})
}

func (x *execution) setEmpty(ctx context.Context, group []*Result) {
	x.each(ctx, group, func(ctx context.Context, r *Result) error {
		return x.executor.Nodes.SetEmpty(ctx, r.Action.Node, r.Action.Verb == MarkEmpty)
	})
}

// drain closes the Node, and evicts its pods. A Node that was empty when it was closed
// is checked again first: a pod may have come at the last moment.
func (x *execution) drain(ctx context.Context, group []*Result) {
	var closing []*Result
	for _, r := range group {
		if r.Action.From != r.Action.To {
			closing = append(closing, r)
		}
	}
	x.mark(ctx, closing, nil)
	x.each(ctx, group, func(ctx context.Context, r *Result) error {
		if r.Action.Intent.Reason == reasonEmpty {
			return nil
		}
		_, err := x.executor.Nodes.Drain(ctx, r.Action.Node)
		return err
	})
}

func (x *execution) stop(ctx context.Context, group []*Result) {
	force := group[0].Action.Verb == ForceStop
	if !force {
		group = x.check(ctx, group)
	}
	if len(group) == 0 {
		return
	}
	set(group, x.provider.StopInstances(ctx, ids(group), force))
}

// terminate reads the machines once more, the last check that the pool owns them. A
// machine with a Node is marked first: another process that starts it fails then.
func (x *execution) terminate(ctx context.Context, group []*Result) {
	found := x.expect(ctx, group, InstancePending, InstanceRunning, InstanceStopping, InstanceStopped, InstanceUnknown)
	for _, r := range alive(group) {
		if now := found[r.Action.Machine].State; now != r.Action.Seen {
			r.Err = fmt.Errorf(
				"it was %s in the list: %w",
				r.Action.Seen,
				&InvalidStateError{ID: r.Action.Machine, State: now, Operation: "terminate"},
			)
		}
	}
	x.each(ctx, group, func(ctx context.Context, r *Result) error {
		a := r.Action
		if a.Node == "" || a.From == a.To {
			return nil
		}
		return x.executor.Nodes.Mark(ctx, Mark{Instance: found[a.Machine], Node: a.Node, From: a.From, To: a.To, Intent: a.Intent})
	})
	group = x.check(ctx, group)
	if len(group) == 0 {
		return
	}
	set(group, x.provider.TerminateInstances(ctx, ids(group)))
	for _, r := range group {
		if errors.Is(r.Err, ErrNotFound) {
			r.Err = nil
		}
	}
}

// forget removes Nodes whose machines no longer exist in the cloud.
func (x *execution) forget(ctx context.Context, group []*Result) {
	found := x.look(ctx, group)
	x.each(ctx, group, func(ctx context.Context, r *Result) error {
		if i, ok := found[r.Action.Machine]; ok && i.State != InstanceTerminated {
			return fmt.Errorf("the cloud still has it, %s: %w", i.State, ErrInvalidState)
		}
		if r.Action.Node == "" {
			return nil
		}
		return x.executor.Nodes.Remove(ctx, r.Action.Node, r.Action.Machine)
	})
}

// confirm records machines that were found by the tag of their launch.
func (x *execution) confirm(ctx context.Context, group []*Result) {
	for _, r := range group {
		a := r.Action
		intent := LaunchIntent{
			Operation: a.Operation,
			Ordinal:   a.Ordinal,
			Attempt:   a.Attempt,
			Template:  a.Template,
			Count:     a.Count,
			IDs:       a.IDs,
			Since:     x.executor.now(),
		}
		r.Err = x.executor.Journal.Record(ctx, intent)
	}
}

// abandon erases launches. Machines that are only missing from the lists are read once
// more.
func (x *execution) abandon(ctx context.Context, group []*Result) {
	for _, r := range group {
		for _, id := range r.Action.IDs {
			i, err := x.executor.Provider.GetInstance(ctx, id)
			switch {
			case errors.Is(err, ErrNotFound):
			case err != nil:
				r.Err = err
			case !i.State.Ending():
				r.Err = fmt.Errorf("the cloud still has machine %s, %s: %w", id, i.State, ErrInvalidState)
			}
		}
		if r.Err == nil {
			r.Err = x.executor.Journal.Erase(ctx, r.Action.Operation)
		}
	}
}
