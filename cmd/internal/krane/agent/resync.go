package agent

import (
	"context"
	"errors"
	"log/slog"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/seed-9e1ffd66/trueup/apply"
	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/render"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/krane/stream"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// drifted wakes whose object somebody else has changed.
func (r *run) drifted(component render.Component, id apply.ID) {
	if key, ok := r.book.whose(component, id); ok {
		r.repairs.Add(key)
		return
	}
	// Namespaces and accounts belong to all that live there.
	if component == render.Namespace || component == render.Account {
		namespace := id.Namespace
		if namespace == "" {
			namespace = id.Name
		}
		for _, key := range r.book.wanted() {
			if at, _ := stream.Split(key); at == namespace {
				r.repairs.Add(key)
				return
			}
		}
	}
}

// repair makes a key so again that was so before.
func (r *run) repair(ctx context.Context, key statesync.Key) (reconcile.Result, error) {
	e := r.book.entry(key)
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.wish.known || e.wish.apply == nil {
		return reconcile.Result{}, nil
	}
	e.uid = "" // it may be another by now
	_, err := r.converge(ctx, e, fromDrift)
	return reconcile.Result{}, err
}

// resync asks for each owned workload.
func (r *run) resync(context.Context) (reconcile.Result, error) {
	keys := r.book.wanted()
	for _, res := range resources() {
		for o := range r.parts[res.component].live.All() {
			if res.isRoot(o.ID) && !o.Deleting {
				keys = append(keys, res.key(o.ID))
				r.book.called(res.key(o.ID), o.Label(res.label))
			}
		}
	}
	r.queries.Resync(sorted(keys)...)
	for _, res := range resources() {
		if r.outage[res.collection].Swap(false) {
			// What the vault held up for long is parked, and tried again after a list.
			r.replicas[res.collection].List()
		}
	}
	return reconcile.Result{}, nil
}

// query asks what is wanted of a key, and makes it so. It is no order to delete
// that there is no answer, and none that says NotFound.
func (r *run) query(ctx context.Context, key statesync.Key) (reconcile.Result, error) {
	e := r.book.entry(key)
	id := idOfMessage(r.book.wish(key).apply)
	if id == "" {
		id = r.book.id(key)
	}
	var answer wish
	var err error = connect.NewError(connect.CodeNotFound, errors.New("its id is not known"))
	if id != "" {
		err = r.asks.Do(ctx, e.rpc, func(ctx context.Context) (err error) {
			answer, err = r.ask(ctx, e, id)
			return err
		})
	}
	if err != nil && connect.CodeOf(err) != connect.CodeNotFound && !errors.Is(err, context.Canceled) {
		r.Logger.DebugContext(ctx, "point query failed", slog.String("key", key.String()), slog.Any("error", err))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case err != nil && !e.wish.known:
		return reconcile.Result{}, nil
	case err != nil:
	case !e.wish.known:
		// The stream has not come to it yet. What it brings is newer in any case.
		r.book.wants(e, wish{known: true, apply: answer.apply})
	case !proto.Equal(orNothing(answer.apply), orNothing(e.wish.apply)):
		// Either the answer or the stream is late. If that lasts, something is wrong.
		if e.doubts++; e.doubts >= 2 {
			e.doubts = 0
			r.Logger.WarnContext(ctx, "a point query says otherwise than the stream", slog.String("key", key.String()))
			r.replicas[e.collection].List()
		}
	default:
		e.doubts = 0
	}
	if e.wish.apply == nil && e.wish.gone {
		return reconcile.Result{}, nil
	}
	changed, err := r.converge(ctx, e, fromResync)
	if changed && err == nil {
		r.metrics.corrections.Inc()
	}
	// What fails is retried by the stream's worker, and with the next resync.
	return reconcile.Result{}, nil
}

// orNothing makes a nil message one that can be compared.
func orNothing(m proto.Message) proto.Message {
	if m == nil {
		return &ctrlv1.DeleteDeployment{}
	}
	return m
}

// ask makes the point query.
func (r *run) ask(ctx context.Context, e *entry, id string) (wish, error) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	w := wish{known: true}
	switch e.component {
	case render.Deployment:
		answer, err := r.client.GetDesiredDeploymentState(ctx, connect.NewRequest(&ctrlv1.GetDesiredDeploymentStateRequest{DeploymentId: id}))
		if err != nil {
			return w, err
		}
		if m := answer.Msg.GetApply(); m != nil {
			w.apply = m
		}
		return w, said(answer.Msg.GetApply() != nil, answer.Msg.GetDelete() != nil)
	case render.Sentinel:
		answer, err := r.client.GetDesiredSentinelState(ctx, connect.NewRequest(&ctrlv1.GetDesiredSentinelStateRequest{SentinelId: id}))
		if err != nil {
			return w, err
		}
		if m := answer.Msg.GetApply(); m != nil {
			w.apply = m
		}
		return w, said(answer.Msg.GetApply() != nil, answer.Msg.GetDelete() != nil)
	default:
		answer, err := r.client.GetDesiredCiliumNetworkPolicyState(ctx, connect.NewRequest(&ctrlv1.GetDesiredCiliumNetworkPolicyStateRequest{CiliumNetworkPolicyId: id}))
		if err != nil {
			return w, err
		}
		if m := answer.Msg.GetApply(); m != nil {
			w.apply = m
		}
		return w, said(answer.Msg.GetApply() != nil, answer.Msg.GetDelete() != nil)
	}
}

// said returns an error unless an answer says one of both.
func said(apply, gone bool) error {
	if apply == gone {
		return errors.New("the answer says neither apply nor delete")
	}
	return nil
}
