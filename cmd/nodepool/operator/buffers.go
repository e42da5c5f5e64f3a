package operator

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cmd/nodepool/internal/buffer"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

const (
	// replanBuffers is how often the buffers are looked at although nothing changes: a zone
	// may have capacity again.
	replanBuffers = 30 * time.Second
	// betweenPlans is how far apart two looks at the buffers are.
	betweenPlans = 200 * time.Millisecond
	// bufferWorkers is how many buffers are worked on at a time.
	bufferWorkers = 2
)

// buffers keeps standby machines for CapacityBuffers. It has a loop of its own: what it
// does delays no start for a pod that waits.
//
// The definition of CapacityBuffers need not be in the cluster. It is watched, and the
// buffers and what they refer to are while it is there.
type buffers struct {
	op          *operator
	definitions kube.Controller[*definition]
	objects     kube.Controller[*buffer.CapacityBuffer]
	statuses    kube.Status[*buffer.CapacityBuffer]
	wake        chan struct{}
	turned      chan struct{} // served has changed

	mu     sync.Mutex
	served bool // by the API server
	// asked has every buffer of the strategy, with the pods that it asks room for.
	asked map[types.NamespacedName]bufferAsk
	// outcomes are the outcomes of the last plan, for the asks that it was computed from.
	outcomes map[types.NamespacedName]bufferOutcome
	standby  map[string]map[string]int // by pool and template
	planned  map[types.UID]bool        // the pools of the last plan; nil before the first
	pooled   map[types.UID]bool        // the pools that were looked at
}

// bufferAsk is what a buffer asks for, or why it cannot be known.
type bufferAsk struct {
	buffer.Asked

	generation int64 // of the template
	err        error
}

// bufferOutcome is what the last plan gives a buffer, which becomes the buffer's status if
// the ask is still the same.
type bufferOutcome struct {
	ask bufferAsk
	buffer.Outcome
}

func newBuffers(o *operator) *buffers {
	b := &buffers{
		op: o, wake: make(chan struct{}, 1), turned: make(chan struct{}, 1),
		asked: map[types.NamespacedName]bufferAsk{}, outcomes: map[types.NamespacedName]bufferOutcome{}, pooled: map[types.UID]bool{},
	}
	b.definitions.Client, b.definitions.Logger = o.client, o.logger
	b.definitions.Kind = kube.Kind{Resource: definitionsResource, FieldSelector: "metadata.name=" + buffer.Definition}
	b.definitions.Reconcile = b.reconcileDefinition
	b.objects.Client, b.objects.Logger, b.objects.Workers = o.client, o.logger, bufferWorkers
	b.objects.Kind, b.objects.IgnoreStatus, b.objects.Reconcile = kube.Kind{Resource: buffer.Resource()}, true, b.reconcileBuffer
	b.objects.Referenced, b.objects.References = templateKinds(), templateOf
	b.objects.Backoff = o.pools.Backoff
	b.statuses = kube.Status[*buffer.CapacityBuffer]{
		Client:     o.client,
		Resource:   buffer.Resource(),
		Conditions: buffer.Conditions(),
		OnWrite:    b.objects.Wrote,
	}
	return b
}

// Wake asks for a look at the buffers. It never blocks.
func (b *buffers) Wake() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// reconcileDefinition takes in the definition, which is nil if there is none.
func (b *buffers) reconcileDefinition(ctx context.Context, _ types.NamespacedName, d *definition) (reconcile.Result, error) {
	serves := d.serves(buffer.Version)
	b.mu.Lock()
	turned := b.served != serves
	b.served = serves
	b.mu.Unlock()
	if d != nil && !slices.ContainsFunc(d.Spec.Versions, func(v definitionVersion) bool { return v.Name == buffer.Version && v.Served }) {
		b.op.logger.WarnContext(
			ctx,
			"capacity buffer definition not used: it does not serve the version",
			slog.String("version", buffer.Version),
		)
	}
	if turned {
		b.op.logger.InfoContext(ctx, "capacity buffer definition changed", slog.Bool("served", serves))
		select {
		case b.turned <- struct{}{}:
		default:
		}
	}
	return reconcile.Result{}, nil
}

// start works until ctx ends.
func (b *buffers) start(ctx context.Context) error {
	group := reconcile.Group{Members: []reconcile.Member{
		{Name: "capacity buffer definition changed", Starter: &b.definitions},
		{Name: "capacity buffers", Starter: reconcile.StarterFunc(b.serve)},
	}}
	return group.Start(ctx)
}

// serve works on the buffers while the API server has them.
func (b *buffers) serve(ctx context.Context) error {
	for {
		if !b.wait(ctx, true) {
			return nil
		}
		running, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() {
			group := reconcile.Group{
				Members: []reconcile.Member{{Name: "objects", Starter: &b.objects}, {Name: "plans", Starter: reconcile.StarterFunc(b.plans)}},
			}
			done <- group.Start(running)
		}()
		b.wait(ctx, false)
		stop()
		if err := <-done; err != nil || ctx.Err() != nil {
			return err
		}
		// Deleting the definition deletes all its objects.
		b.mu.Lock()
		clear(b.asked)
		clear(b.outcomes)
		b.planned = nil
		b.mu.Unlock()
		b.keep(nil)
	}
}

// wait waits until the API server has the buffers, or has not. It returns false when ctx
// ends.
func (b *buffers) wait(ctx context.Context, served bool) bool {
	for {
		b.mu.Lock()
		now := b.served
		b.mu.Unlock()
		if now == served {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-b.turned:
		}
	}
}

// known returns an error until it is known which buffers there are, and what they take.
func (b *buffers) known() error {
	if ok, err := b.definitions.Synced(); !ok {
		return errors.Join(errors.New("whether the cluster has CapacityBuffers is not known yet"), err)
	}
	d, err := b.definitions.Get(types.NamespacedName{Name: buffer.Definition})
	switch {
	case errors.Is(err, kube.ErrAbsent):
		return nil
	case err != nil:
		return err
	case !d.serves(buffer.Version):
		return nil
	}
	b.mu.Lock()
	planned := b.planned != nil
	b.mu.Unlock()
	if !planned {
		_, err := b.objects.Synced()
		return errors.Join(errors.New("the CapacityBuffers are not read yet"), err)
	}
	return nil
}

// reconcileBuffer takes in a buffer, and writes what becomes of it.
func (b *buffers) reconcileBuffer(ctx context.Context, key types.NamespacedName, o *buffer.CapacityBuffer) (reconcile.Result, error) {
	if o == nil || !o.Ours() {
		b.take(key, bufferAsk{}, o != nil)
		return reconcile.Result{}, nil
	}
	ask := b.resolve(o)
	b.take(key, ask, true)
	if b.op.dry {
		return reconcile.Result{}, nil
	}
	if ask.err != nil {
		err := b.report(ctx, o, func(s *buffer.Status) { s.Refuse(ask.err) })
		if _, wrong := errors.AsType[*buffer.Error](ask.err); !wrong {
			err = errors.Join(ask.err, err)
		}
		return reconcile.Result{}, err
	}
	b.mu.Lock()
	outcome, ok := b.outcomes[key]
	b.mu.Unlock()
	if !ok || !ask.same(outcome.ask) {
		return reconcile.Result{}, nil // the plan that is made now starts another pass
	}
	return reconcile.Result{}, b.report(ctx, o, func(s *buffer.Status) {
		s.Report(o.Spec.PodTemplateRef, ask.generation, ask.Units, outcome.Outcome)
	})
}

// report writes the status, and an Event about each new condition that is not as desired.
func (b *buffers) report(ctx context.Context, o *buffer.CapacityBuffer, update func(*buffer.Status)) error {
	before := slices.Clone(o.Status.Conditions)
	if err := b.statuses.Update(ctx, o, func(o *buffer.CapacityBuffer) { update(&o.Status) }); err != nil {
		return err
	}
	is := meta.FindStatusCondition(o.Status.Conditions, buffer.ConditionProvisioning)
	was := meta.FindStatusCondition(before, buffer.ConditionProvisioning)
	if is != nil && is.Status == metav1.ConditionFalse && (was == nil || was.Reason != is.Reason) {
		kind := schema.GroupVersionKind{Group: buffer.Group, Version: buffer.Version, Kind: buffer.Kind}
		b.op.events.writer.Record(kind, o, kube.EventWarning, is.Reason, is.Message)
	}
	return nil
}

// take records what a buffer asks for: nothing if it belongs to another controller.
func (b *buffers) take(key types.NamespacedName, ask bufferAsk, exists bool) {
	b.mu.Lock()
	was, known := b.asked[key]
	changed := exists != known || exists && !ask.same(was)
	if exists {
		b.asked[key] = ask
	} else {
		delete(b.asked, key)
	}
	b.mu.Unlock()
	if changed {
		b.Wake()
	}
}
