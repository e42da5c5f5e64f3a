package cloud

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-9e1ffd66/trueup/internal/parallel"
)

// Nodes is the cluster: a pool records the states of its machines on their Nodes, and
// empties machines through it. Implementations are safe for concurrent use.
type Nodes interface {
	// Mark records a change of state on the machine's Node, in one write that
	// fails if the Node is in another state than mark.From. It closes the Node
	// for pods in every state but running. It creates the Node of a machine that
	// has lost it.
	Mark(ctx context.Context, mark Mark) error

	// Drain evicts the pods of a closed Node once, and returns how many are left.
	// A pod whose eviction is refused counts as left and is no error.
	Drain(ctx context.Context, node string) (left int, err error)

	// SetEmpty records or clears the mark of a candidate for scale-down.
	SetEmpty(ctx context.Context, node string, empty bool) error

	// Remove deletes the Node of a machine that no longer exists. A Node of that name
	// that belongs to another machine stays; a missing one is no error.
	Remove(ctx context.Context, node, id string) error
}

// A Mark is a change of a machine's state.
type Mark struct {
	Instance Instance // as the cloud reports it now, or its ID alone
	Node     string
	From, To State
	// Intent is recorded with terminating, and removed with any other state.
	Intent Intent
}

// A Journal stores launches that were begun. Its records survive a crash.
type Journal interface {
	// Record adds the intent, or replaces the one with the same Ordinal. It fails
	// if another process has written to the journal since this one read it.
	Record(ctx context.Context, intent LaunchIntent) error

	// Erase removes the intent. A missing one is no error. The journal keeps the
	// highest ordinal.
	Erase(ctx context.Context, operation string) error
}

// An Executor carries out plans. It decides nothing: it checks that each machine is
// still as the plan saw it, calls the cloud, and records the result. If it is killed at
// any point, the next plan continues from there.
//
// Two concurrent calls for one pool are ordered only by their writes: they never do one
// thing twice, but one of them may fail with a conflict.
type Executor struct {
	// Provider, Nodes and Journal are required.
	Provider Provider
	Nodes    Nodes
	Journal  Journal

	// Config returns the launch config of a template. Its Token is ignored, its Tags
	// are extended. Required for launches.
	Config func(template string) (LaunchConfig, error)

	// Check, if set, is called before a machine is stopped or terminated, except by force: the
	// last look at what uses it. An error keeps the machine, and becomes the Err of the Result.
	// It may be called from several goroutines at once.
	Check func(ctx context.Context, action Action) error

	// Parallel is how many calls run at a time where a provider has no batch
	// call, and how many Nodes are written at a time. Default 16.
	Parallel int
}

// validate returns an error for each field that is required and nil, joined.
func (e *Executor) validate() error {
	var errs []error
	for _, f := range []struct {
		name    string
		missing bool
	}{{"Provider", e.Provider == nil}, {"Nodes", e.Nodes == nil}, {"Journal", e.Journal == nil}} {
		if f.missing {
			errs = append(errs, fmt.Errorf("cloud: Executor.%s: is required", f.name))
		}
	}
	return errors.Join(errs...)
}

// A Result is the result of one action.
type Result struct {
	Action Action
	// Err is nil if the action was carried out completely.
	Err error
	// Accepted reports that the cloud has accepted a Start. With an Err the machine
	// starts nevertheless: only its record failed, and a later plan opens its Node.
	Accepted bool
	// Launch is the intent as it is recorded after a Launch, or may be recorded
	// after an error; nil if it is certainly not recorded.
	Launch *LaunchIntent
}

// Execute carries out the actions, those that pods wait for first, and returns their
// results. The error joins the errors of all actions; the results are valid with an
// error. An action that fails holds back no other.
func (e *Executor) Execute(ctx context.Context, pool Pool, actions []Action) ([]Result, error) {
	if err := errors.Join(e.validate(), pool.Validate()); err != nil {
		return nil, err
	}
	x := execution{executor: e, provider: Batched(e.Provider, e.Parallel), pool: pool, results: make([]Result, len(actions))}
	byVerb := map[Verb][]*Result{}
	for i, a := range actions {
		x.results[i].Action = a
		byVerb[a.Verb] = append(byVerb[a.Verb], &x.results[i])
	}
	for _, step := range []struct {
		verb Verb
		do   func(context.Context, []*Result)
	}{
		{Start, x.start},
		{Open, x.open},
		{GiveUp, x.giveUp},
		{Confirm, x.confirm},
		{Abandon, x.abandon},
		{Launch, x.launch},
		{Adopt, x.adopt},
		{Shelve, x.shelve},
		{MarkEmpty, x.setEmpty},
		{ClearEmpty, x.setEmpty},
		{Retag, x.retag},
		{Drain, x.drain},
		{Stop, x.stop},
		{ForceStop, x.stop},
		{Terminate, x.terminate},
		{Forget, x.forget},
	} {
		if group := byVerb[step.verb]; len(group) > 0 {
			step.do(ctx, group)
		}
	}
	var errs []error
	for _, r := range x.results {
		if r.Err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", r.Action.Verb, r.Action.subject(), r.Err))
		}
	}
	return x.results, errors.Join(errs...)
}

// execution is one call of Execute.
type execution struct {
	executor *Executor
	provider BatchProvider // the Provider of the Executor
	pool     Pool
	results  []Result
}

// alive returns the results that have no error yet.
func alive(group []*Result) []*Result {
	var out []*Result
	for _, r := range group {
		if r.Err == nil {
			out = append(out, r)
		}
	}
	return out
}

func ids(group []*Result) []string {
	out := make([]string, len(group))
	for i, r := range group {
		out[i] = r.Action.Machine
	}
	return out
}

// each calls do for each result that has no error yet, some at a time, and waits.
func (x *execution) each(ctx context.Context, group []*Result, do func(context.Context, *Result) error) {
	group = alive(group)
	limit := x.executor.Parallel
	if limit <= 0 {
		limit = 16
	}
	parallel.Each(len(group), limit, func(i int) { group[i].Err = do(ctx, group[i]) })
}

// check asks the caller once more for each machine, and returns those that may end.
func (x *execution) check(ctx context.Context, group []*Result) []*Result {
	if x.executor.Check != nil {
		x.each(ctx, group, func(ctx context.Context, r *Result) error { return x.executor.Check(ctx, r.Action) })
	}
	return alive(group)
}

// set stores the errors of a batch call.
func set(group []*Result, failed map[string]error) {
	for _, r := range group {
		r.Err = failed[r.Action.Machine]
	}
}

// look reads the machines from the cloud, not from a list, and sets an error on each
// that cannot be read. A machine that the cloud does not know is missing in the result.
func (x *execution) look(ctx context.Context, group []*Result) map[string]Instance {
	found, err := x.provider.GetInstances(ctx, ids(group))
	for _, r := range group {
		if _, read := found[r.Action.Machine]; err != nil && !read {
			r.Err = err
		}
	}
	return found
}

// expect reads the machines and sets an error on each that the pool does not own or
// that is in none of the states.
func (x *execution) expect(ctx context.Context, group []*Result, states ...InstanceState) map[string]Instance {
	found := x.look(ctx, group)
	for _, r := range alive(group) {
		i, ok := found[r.Action.Machine]
		switch {
		case !ok:
			r.Err = ErrNotFound
		case !x.pool.Scope.Owns(i):
			r.Err = ErrNotOwned
		case !slices.Contains(states, i.State):
			r.Err = &InvalidStateError{ID: i.ID, State: i.State, Operation: string(r.Action.Verb)}
		}
	}
	return found
}

// mark records the change of state of each machine on its Node, and then on its
// tags.
func (x *execution) mark(ctx context.Context, group []*Result, found map[string]Instance) {
	x.each(ctx, group, func(ctx context.Context, r *Result) error {
		a := r.Action
		if err := CheckTransition(a.Machine, a.From, a.To); err != nil {
			return err
		}
		i, ok := found[a.Machine]
		if !ok {
			i = Instance{ID: a.Machine}
		}
		return x.executor.Nodes.Mark(ctx, Mark{Instance: i, Node: a.Node, From: a.From, To: a.To, Intent: a.Intent})
	})
	x.tag(ctx, group)
}

// tag writes the state that each action leads to on the machine's tags.
func (x *execution) tag(ctx context.Context, group []*Result) {
	group = alive(group)
	byState := map[State][]*Result{}
	for _, r := range group {
		byState[r.Action.To] = append(byState[r.Action.To], r)
	}
	for _, state := range slices.Sorted(maps.Keys(byState)) {
		group := byState[state]
		set(group, x.provider.UpdateInstancesTags(ctx, ids(group), x.pool.Scope.StateTags(state, "")))
	}
}

func (a Action) subject() string {
	if a.Machine != "" {
		return a.Machine
	}
	return a.Operation
}

// now is the time that intents are recorded with.
func (e *Executor) now() time.Time { return time.Now() }
