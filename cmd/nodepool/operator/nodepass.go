package operator

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cloud/kube/nodes"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile"
)

// reconcileNode takes in a Node, and does one pass for it.
func (o *operator) reconcileNode(ctx context.Context, key types.NamespacedName, n *corev1.Node) (reconcile.Result, error) {
	if n == nil {
		o.cluster.DropNode(key.Name, "")
		o.demand.Trace.DropNode(key.Name)
		return reconcile.Result{}, nil
	}
	o.cluster.SawNode(n)
	v, ok := o.cluster.Node(key.Name)
	if !ok {
		return reconcile.Result{}, nil
	}
	o.demand.Trace.SawNode(v)
	o.mu.Lock()
	s := o.states[v.Pool]
	o.mu.Unlock()
	if s == nil || o.dry || s.machines.Closed != "" || !s.machines.Owns(&v) {
		return reconcile.Result{}, nil
	}
	pass := nodes.Pass{
		Marks: o.marksOf(s.pool), MaxRuntime: s.machines.Spec.MaxRuntime, Deleting: s.pool.DeletionTimestamp != nil, Once: s.kept.once,
		AttestReady: s.recipe.class != nil && s.recipe.class.Spec.BootstrapTemplate == v1alpha1.Bottlerocket,
	}
	done, err := pass.Run(ctx, v)
	if err != nil {
		return reconcile.Result{}, err
	}
	for _, e := range done.Events {
		o.events.node(n, e.Type, e.Reason, e.Note)
	}
	if done.Open {
		o.demand.Trace.Opened(v.Status.ID)
	}
	if r := done.Removed; r != nil {
		o.metrics.taintsRemoved(s.name(), r.Trigger, r.After)
	}
	if done.Wake.IsZero() {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: max(done.Wake.Sub(o.now()), time.Second)}, nil
}

// marksOf returns what records the states of a pool's machines on their Nodes.
func (o *operator) marksOf(p *v1alpha1.NodePool) *nodes.Marks {
	return &nodes.Marks{Client: o.client, Cluster: o.cluster, Pool: nodesOf(p), Look: o.nodes.Add, OnUnseen: func(n *corev1.Node) {
		o.nodes.Wrote(n)
		o.nodes.Add(poolKey(n.Name))
	}}
}

// reclaimed reports which Nodes named another pool.
func (s *poolState) reclaimed(ctx context.Context, names []string, err error) {
	if len(names) > 0 {
		s.op.logger.WarnContext(ctx, "nodes named another pool", slog.String("pool", s.name()), slog.Any("nodes", names))
	}
	if err != nil && ctx.Err() == nil {
		s.op.logger.WarnContext(ctx, "nodes name another pool", slog.String("pool", s.name()), slog.Any("error", err))
	}
}

// recordResults reports the results of the actions of a pool.
func (s *poolState) recordResults(ctx context.Context, results []cloud.Result) {
	for _, r := range results {
		s.op.metrics.acted(s.name(), r)
		if r.Err != nil {
			s.op.logger.WarnContext(
				ctx,
				"action failed",
				slog.String("pool", s.name()),
				slog.String("action", r.Action.String()),
				slog.Any("error", r.Err),
			)
			continue
		}
		s.op.logger.InfoContext(ctx, "machine action done", slog.String("pool", s.name()), slog.String("action", r.Action.String()))
		s.op.events.action(s.pool, r)
		if r.Action.Verb == cloud.Shelve && r.Action.From == cloud.StateWarmup {
			if i, ok := s.kept.Instance(r.Action.Machine); ok {
				s.op.metrics.warmedUp(string(s.pool.Spec.PreWarm.CompletionMode), s.op.now().Sub(i.LaunchTime))
			}
		}
	}
}
