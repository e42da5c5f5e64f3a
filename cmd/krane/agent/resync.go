package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1/ctrlv1connect"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/internal/breaker"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/render"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// lastingFailures is how many resyncs have failed, one a minute, when a person has to know: by then
// the worker of a stream has parked an item.
const lastingFailures = 10

// resyncer makes a point query for each owned workload, from time to time.
type resyncer struct {
	client    ctrlv1connect.ClusterServiceClient
	breakers  *breaker.Set
	streams   *streams
	contact   *contact
	parts     parts
	registry  *registry
	converger *converger
	metrics   *metrics
	logger    *slog.Logger
	queue     *reconcile.Queue[statesync.Key]
}

// Reconcile implements reconcile.Reconciler: it queues a query for each owned
// workload.
func (r *resyncer) Reconcile(context.Context) (reconcile.Result, error) {
	keys := append(r.registry.present(), r.registry.ending()...)
	for _, res := range resources() {
		for o := range r.parts[res.component].live.All() {
			if res.isRoot(o.ID) && !o.Deleting {
				keys = append(keys, res.key(o.ID))
				r.registry.setID(res.key(o.ID), o.Label(res.label))
			}
		}
	}
	r.queue.Resync(sorted(keys)...)
	r.streams.retryParked()
	return reconcile.Result{}, nil
}

// query makes the point query of a key, and makes the cluster match it. Neither a
// failure nor NotFound is an order to delete.
func (r *resyncer) query(ctx context.Context, key statesync.Key) (reconcile.Result, error) {
	e := r.registry.entry(key)
	id := idOfMessage(r.registry.desired(key).apply)
	if id == "" {
		id = r.registry.id(key)
	}
	var answer desired
	var err error = connect.NewError(connect.CodeNotFound, errors.New("its id is unknown"))
	if id != "" {
		answer, err = r.answer(ctx, e.resource, id)
	}
	if err != nil && connect.CodeOf(err) != connect.CodeNotFound && !errors.Is(err, context.Canceled) {
		r.logger.DebugContext(ctx, "point query failed", slog.String("key", key.String()), slog.Any("error", err))
	}
	if err := e.lock(ctx); err != nil {
		return reconcile.Result{}, err
	}
	defer e.unlock()
	switch {
	case err != nil && !e.desired.received:
		return reconcile.Result{}, nil
	case !e.desired.received && answer.apply == nil && !r.streams.proven(e.resource.collection):
		return reconcile.Result{}, nil // the list decides
	case err != nil:
	case !e.desired.received:
		// The stream has not sent it yet. What it will send is newer in any case.
		r.registry.set(e, desired{received: true, apply: answer.apply})
	case !proto.Equal(orNothing(answer.apply), orNothing(e.desired.apply)) && r.streams.current(e.resource.collection):
		// Either the answer or the stream is late. Two such answers in a row are a fault. A
		// stream that is not open brings what it lacks when it is resumed.
		if e.doubts++; e.doubts >= 2 {
			e.doubts = 0
			r.logger.WarnContext(ctx, "point query disagrees with the stream", slog.String("key", key.String()))
			r.streams.relist(e.resource.collection)
		}
	default:
		e.doubts = 0
	}
	if e.desired.gone && !e.desired.ending && (err != nil || answer.apply != nil || !r.lives(e)) {
		return reconcile.Result{}, nil
	}
	changed, err := r.converger.converge(ctx, e, fromResync)
	if changed && err == nil {
		r.metrics.corrections.Inc()
	}
	// A failure is retried by the stream's worker, and by the next resync. That worker does not try what
	// came while another agent worked, or what it has done before, and so never parks it.
	if err != nil && ctx.Err() == nil {
		if e.failures++; e.failures >= lastingFailures {
			r.converger.problems.set(resourceOf(key), err.Error())
		}
	}
	return reconcile.Result{}, nil
}

// answer makes the point query, unless its breaker is open.
func (r *resyncer) answer(ctx context.Context, of resource, id string) (answer desired, err error) {
	err = r.breakers.Do(ctx, of.rpc, func(ctx context.Context) (err error) {
		answer, err = r.ask(ctx, of, id)
		return err
	})
	r.contact.call(ctx, of.rpc, err)
	return answer, err
}

// denied returns nil if the control plane has no resource with this id, or desires it to be absent. Otherwise the error
// says why the resource may be desired.
func (r *resyncer) denied(ctx context.Context, of resource, id string) error {
	answer, err := r.answer(ctx, of, id)
	switch {
	case connect.CodeOf(err) == connect.CodeNotFound:
		return nil
	case err != nil:
		return fmt.Errorf("the control plane cannot say whether it is wanted: %w", err)
	case answer.apply != nil:
		return errors.New("the control plane wants it")
	default:
		return nil
	}
}

// lives reports whether there is a workload of e. One that was deleted before has come back
// with a backup of the cluster.
func (r *resyncer) lives(e *entry) bool {
	return r.parts[e.resource.component].uid(e.resource.rootID(e.key)) != ""
}

// orNothing makes a nil message one that can be compared.
func orNothing(m proto.Message) proto.Message {
	if m == nil {
		return &ctrlv1.DeleteDeployment{}
	}
	return m
}

// ask makes the point query.
func (r *resyncer) ask(ctx context.Context, of resource, id string) (desired, error) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	message, err := r.message(ctx, of.component, id)
	if err != nil {
		return desired{received: true}, err
	}
	d := desired{received: true}
	switch order, gone := ctrlv1.Carried(message); {
	case order == nil:
		return d, errors.New("the answer has neither apply nor delete")
	case !gone:
		d.apply = order
	}
	return d, nil
}

// message returns the answer to the point query of a resource.
func (r *resyncer) message(ctx context.Context, component render.Component, id string) (ctrlv1.Message, error) {
	switch component {
	case render.Deployment:
		answer, err := r.client.GetDesiredDeploymentState(ctx, connect.NewRequest(&ctrlv1.GetDesiredDeploymentStateRequest{DeploymentId: id}))
		return messageOf(answer, err)
	case render.Sentinel:
		answer, err := r.client.GetDesiredSentinelState(ctx, connect.NewRequest(&ctrlv1.GetDesiredSentinelStateRequest{SentinelId: id}))
		return messageOf(answer, err)
	default:
		answer, err := r.client.GetDesiredCiliumNetworkPolicyState(
			ctx,
			connect.NewRequest(&ctrlv1.GetDesiredCiliumNetworkPolicyStateRequest{CiliumNetworkPolicyId: id}),
		)
		return messageOf(answer, err)
	}
}

// messageOf returns the message of an answer.
func messageOf[M any, P interface {
	*M
	ctrlv1.Message
}](answer *connect.Response[M], err error) (ctrlv1.Message, error) {
	if err != nil {
		return nil, err
	}
	return P(answer.Msg), nil
}
