package agent

import (
	"context"
	"errors"
	"log/slog"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/render"
	"github.com/seed-9e1ffd66/trueup/cmd/krane/stream"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/statesync"
)

// repairer undoes what other managers change, and deletes what had to wait: for a proven list, or for pods.
type repairer struct {
	registry  *registry
	converger *converger
	queue     *reconcile.Queue[statesync.Key]
	logger    *slog.Logger
}

// drifted wakes the worker of an object that another manager has changed.
func (r *repairer) drifted(component render.Component, id apply.ID) {
	if key, ok := r.registry.owner(component, id); ok {
		r.queue.Add(key)
		return
	}
	// Namespaces and accounts belong to all keys of the namespace; one is enough.
	if component == render.Namespace || component == render.Account {
		namespace := id.Namespace
		if namespace == "" {
			namespace = id.Name
		}
		for _, key := range r.registry.present() {
			if at, _ := stream.Split(key); at == namespace {
				r.queue.Add(key)
				return
			}
		}
	}
}

// left queues a deployment that was deleted, when one of its pods has changed.
func (r *repairer) left(key statesync.Key) {
	if r.registry.desired(key).ending {
		r.queue.Add(key)
	}
}

// ended queues the workload of an object that is gone: its network policy can be deleted now, or the workload created again.
func (r *repairer) ended(component render.Component, id apply.ID) {
	key, ok := r.registry.owner(component, id)
	for _, res := range resources() {
		if !ok && res.component == component && res.isRoot(id) { // it was applied before a restart
			key = res.key(id)
		}
	}
	if d := r.registry.desired(key); d.ending || d.apply != nil {
		r.queue.Add(key)
	}
}

// repair makes the cluster match a key again.
func (r *repairer) repair(ctx context.Context, key statesync.Key) (reconcile.Result, error) {
	e := r.registry.entry(key)
	if err := e.lock(ctx); err != nil {
		return reconcile.Result{}, err
	}
	defer e.unlock()
	if !e.desired.received || e.desired.gone && !e.desired.ending {
		return reconcile.Result{}, nil
	}
	e.uid = "" // the root may have been replaced
	_, err := r.converger.converge(ctx, e, fromDrift)
	fight, fought := errors.AsType[*apply.FightError](err)
	if !fought {
		return reconcile.Result{}, err
	}
	r.converger.problems.set(resourceOf(key), err.Error())
	if e.fought != fight.Repairs {
		e.fought = fight.Repairs
		r.logger.WarnContext(ctx, "object fought over",
			slog.String("key", key.String()), slog.Any("error", err), slog.Duration("retry_in", fight.Retry))
	}
	return reconcile.Result{RequeueAfter: fight.Retry}, nil
}
