package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// accepted is a desired state that was certain to be whole.
type accepted struct {
	state    *starbase.DesiredState
	rendered Rendered
	set      *apply.Set
	invalid  map[starbase.Identity]error // why objects are left out of the set
}

// desired holds the last accepted state, in memory only.
type desired struct {
	mu        sync.Mutex
	current   *accepted
	answered  bool  // Starbase has answered since the start
	confirmed bool  // Starbase has named the current state since the last take
	fresh     bool  // the epoch changed with the current state, and no later answer confirmed it
	outdated  bool  // another state has come, and is not accepted yet
	failed    error // why the last question has brought no state; nil if it has
}

// accept takes a new state. The first body of another epoch than the one before is not
// yet a licence to delete.
func (d *desired) accept(next *accepted, otherEpoch bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fresh = otherEpoch
	d.current, d.answered, d.confirmed, d.outdated = next, true, !d.fresh, false
}

// confirm notes that the current state still is the one of Starbase.
func (d *desired) confirm() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answered, d.confirmed, d.fresh, d.outdated = true, true, false, false
}

// fail notes what the last question has come to.
func (d *desired) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = err
}

// why returns why there is no state.
func (d *desired) why() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

// received notes that another state has come. Nothing is deleted until it is accepted, or a later answer
// confirms the current one.
func (d *desired) received() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.outdated = true
}

// names reports whether a state still is the newest that has come: a pass that takes long may not delete
// what a newer one, whose acceptance is not saved yet, has again.
func (d *desired) names(a *accepted) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.current == a && !d.outdated
}

// has reports whether the current state has the version, and no pull is needed to confirm it.
func (d *desired) has(version string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.current != nil && d.current.state.Version == version && !d.fresh
}

// named is confirm for a stream that names a version. It reports whether that is the one of the current
// state. A stream confirms no state of another epoch: a later answer has to.
func (d *desired) named(version string) bool {
	if !d.has(version) {
		return false
	}
	d.confirm()
	return true
}

// take returns the current state, nil before the first, and whether Starbase has
// confirmed it since the last call: only then may anything be called absent.
func (d *desired) take() (current *accepted, confirmed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	confirmed, d.confirmed = d.confirmed, false
	return d.current, confirmed
}

func (d *desired) peek() (current *accepted, answered bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.current, d.answered
}

// reasonGeneration is why a body that goes back in its own epoch is refused.
const reasonGeneration starbase.Reason = "generation"

// puller asks Starbase for the desired state.
type puller struct {
	client  *client
	owner   apply.Owner
	cluster string
	rules   Rules
	desired *desired
	newest  *newest
	metrics *metrics
	logger  *slog.Logger
	changed func() // called after each answer that may be acted on
	report  func(epoch string, why problem)
}

// Reconcile implements reconcile.Reconciler: one question to Starbase.
func (p *puller) Reconcile(ctx context.Context) (reconcile.Result, error) {
	current, _ := p.desired.peek()
	version := ""
	if current != nil {
		version = current.state.Version
	}
	state, err := p.client.desiredState(ctx, version)
	switch {
	case errors.Is(err, errUnchanged):
		p.desired.confirm()
		p.report("", problem{})
		p.desired.fail(nil)
		p.changed()
		return reconcile.Result{}, nil
	case err == nil:
		err = p.accept(ctx, state)
		p.report(state.Epoch, acceptance(err))
	}
	p.desired.fail(err)
	if refused, ok := errors.AsType[*starbase.RefusedError](err); ok {
		p.metrics.rejected.WithLabelValues(string(refused.Reason)).Inc()
	}
	return reconcile.Result{}, err
}

func (p *puller) accept(ctx context.Context, state *starbase.DesiredState) error {
	p.desired.received()
	otherEpoch, err := p.newest.reach(ctx, state)
	if refused, ok := errors.AsType[*starbase.RefusedError](err); ok {
		if refused.Reason == reasonGeneration {
			p.client.reconnect() // two that differ may be behind one address: do not ask the older one for good
		}
		return p.client.of(desiredState, refused)
	}
	if err != nil {
		return err
	}
	rendered := Render(state, p.cluster, p.rules)
	set, err := newSet(p.owner, rendered.Objects)
	if set == nil {
		return err
	}
	next := &accepted{state: state, rendered: rendered, set: set}
	if err != nil { // valid all the same: the objects named in it are left out
		next.invalid = rendered.invalid(p.owner)
		p.logger.ErrorContext(ctx, "objects cannot be applied", slog.Any("error", err))
	}
	p.desired.accept(next, otherEpoch)
	p.logger.InfoContext(ctx, "desired state accepted", slog.String("version", state.Version), slog.Int64("generation", state.Generation),
		slog.Int("services", len(rendered.Services)), slog.Int("rejected", len(rendered.Rejected)), slog.Int("objects", set.Len()))
	p.changed()
	return nil
}
