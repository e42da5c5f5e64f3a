package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

const (
	// startupTimeout is how long a machine that was started keeps its startup taints at
	// most.
	startupTimeout = 2 * time.Minute
	// runtimeWarning is how long before the end of its runtime a machine is announced.
	runtimeWarning = 5 * time.Minute
)

// nodePass keeps one Node of a pool as its template says, and opens it for pods once its
// machine is ready after a start. It waits for no pass of the pool.
//
// Its steps only change the Node that they get; one write follows, and none if nothing
// changed. After a conflict all steps run again on the newer Node, so a step must not act
// outside of it: Events and metrics wait in reports.
type nodePass struct {
	state *poolState
	view  nodeView
	wake  time.Time // of the next pass without an event; zero: none
	// reports are the Events and metrics to report once the Node is written.
	reports []func()
}

// reconcileNode takes in a Node, and does one pass for it.
func (o *operator) reconcileNode(ctx context.Context, key types.NamespacedName, n *corev1.Node) (reconcile.Result, error) {
	if n == nil {
		o.world.dropNode(key.Name, "")
		o.metrics.trace.dropNode(key.Name)
		return reconcile.Result{}, nil
	}
	o.world.sawNode(n)
	v, ok := o.world.view(key.Name)
	if !ok {
		return reconcile.Result{}, nil
	}
	o.metrics.trace.node(&v)
	o.mu.Lock()
	s := o.states[v.pool]
	o.mu.Unlock()
	if s == nil || o.dry || !v.owned(v.pool, s.uid()) {
		return reconcile.Result{}, nil
	}
	m := o.marksOf(s.pool)
	p := &nodePass{state: s, view: v}
	err := m.Change(ctx, key.Name, func(n *corev1.Node) error {
		p.reports, p.wake = nil, time.Time{}
		p.keepClosed(n)
		if s.pool.DeletionTimestamp != nil {
			return nil // the rest is for machines that stay
		}
		p.keepTemplate(n)
		p.attest(n)
		p.started(n)
		p.open(n)
		p.warnRuntime(n)
		return nil
	})
	if err != nil {
		return reconcile.Result{}, err
	}
	for _, tell := range p.reports {
		tell()
	}
	if p.wake.IsZero() {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: max(p.wake.Sub(o.now()), time.Second)}, nil
}

// at asks for another pass at t, or earlier.
func (p *nodePass) at(t time.Time) {
	if p.wake.IsZero() || t.Before(p.wake) {
		p.wake = t
	}
}

// tell reports an Event about the Node once it is written.
func (p *nodePass) tell(n *corev1.Node, kind, reason, note string) {
	n = n.DeepCopy()
	p.reports = append(p.reports, func() { p.state.op.events.node(n, kind, reason, note) })
}

// keepTemplate puts the labels and taints of the template on the Node.
func (p *nodePass) keepTemplate(n *corev1.Node) {
	maps.Copy(n.Labels, p.state.pool.Spec.Template.Labels)
	addTaints(n, templateTaints(p.state.pool)...)
}

// keepClosed keeps the Node of a machine that is on standby or on its way out closed for pods,
// also after another client has opened it. The state is read from this version of the Node: a
// start may have changed it since the pass began. The taint of a start is put back by the start
// itself; a taint of another controller, such as a network plugin, is removed by that controller.
func (p *nodePass) keepClosed(n *corev1.Node) {
	switch cloud.State(n.Labels[v1alpha1.LabelState]) {
	case cloud.StateStandby:
		n.Spec.Unschedulable = true
		addTaints(n, standbyTaint())
	case cloud.StateTerminating:
		n.Spec.Unschedulable = true
	default:
	}
}

// attest records the warm-up of a machine whose image runs no script: it is ready, and
// there are no images to wait for.
func (p *nodePass) attest(n *corev1.Node) {
	s := p.view.status
	if p.state.recipe.class == nil || p.state.recipe.class.Spec.BootstrapTemplate != v1alpha1.Bottlerocket || s.Attestation != "" ||
		s.State != cloud.StateWarmup || !s.Ready || !s.NetworkReady {
		return
	}
	text, err := json.Marshal(v1alpha1.Attestation{BootID: n.Status.NodeInfo.BootID})
	if err != nil || n.Status.NodeInfo.BootID == "" {
		return // it says so with its next heartbeat
	}
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	n.Annotations[v1alpha1.AnnotationAttested] = string(text)
}

// started takes the mark of a start off a Node that is ready: from now on, a Node that is
// not ready has lost it.
func (p *nodePass) started(n *corev1.Node) {
	if s := p.view.status; s.State == cloud.StateRunning && s.Ready {
		delete(n.Annotations, v1alpha1.AnnotationScaleUpStarted)
	}
}

// open removes the startup taints of a running machine once its network is ready, and
// after startupTimeout in any case: pods then learn from the network itself that it is not
// ready.
func (p *nodePass) open(n *corev1.Node) {
	s := p.view.status
	if s.State != cloud.StateRunning {
		return
	}
	closed, ours := false, false
	for _, t := range n.Spec.Taints {
		closed = closed || hasTaint(startupTaints(p.state.pool), t)
		ours = ours || hasTaint(removable(p.state.pool), t)
	}
	if !closed {
		if s.Ready {
			p.reports = append(p.reports, func() { p.state.op.metrics.trace.opened(s.ID) })
		}
		return
	}
	since := s.LastStarted
	if since.IsZero() {
		since = s.Since
	}
	late := !p.state.op.now().Before(since.Add(startupTimeout))
	trigger := "network-ready"
	switch {
	case ours && s.Ready && s.NetworkReady:
		p.tell(n, kube.EventNormal, "StartupTaintsRemoved", "its network is ready")
		p.reports = append(p.reports, func() { p.state.op.metrics.trace.opened(s.ID) })
	case ours && late:
		trigger = "timeout"
		p.tell(n, kube.EventWarning, "StartupTaintTimeout", fmt.Sprintf("its network has not become ready within %s", startupTimeout))
	case late:
		if p.state.kept.once("startup taints of " + n.Name + formatTime(since)) {
			p.tell(
				n,
				kube.EventWarning,
				"StartupTaintTimeout",
				fmt.Sprintf("its startup taints are there since %s: another controller has to remove them", formatTime(since)),
			)
		}
		return
	default:
		p.at(since.Add(startupTimeout))
		return
	}
	removeTaints(n, removable(p.state.pool)...)
	p.reports = append(p.reports, func() { p.state.op.metrics.taintsRemoved(p.state.name(), trigger, p.state.op.now().Sub(since)) })
	for _, t := range n.Spec.Taints {
		if hasTaint(startupTaints(p.state.pool), t) {
			p.at(since.Add(startupTimeout))
		}
	}
}

// warnRuntime announces once that a machine is about to be drained.
func (p *nodePass) warnRuntime(n *corev1.Node) {
	s := p.view.status
	if p.state.spec.MaxRuntime == 0 || s.State != cloud.StateRunning || s.LastStarted.IsZero() || p.view.warned {
		return
	}
	end := s.LastStarted.Add(p.state.spec.MaxRuntime)
	if at := end.Add(-runtimeWarning); p.state.op.now().Before(at) {
		p.at(at)
		return
	}
	n.Annotations[v1alpha1.AnnotationRuntimeWarned] = formatTime(p.state.op.now())
	p.tell(n, kube.EventWarning, "MaxRuntimeApproaching", "it is drained at "+formatTime(end))
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
			if i, ok := s.kept.instance(r.Action.Machine); ok {
				s.op.metrics.warmedUp(string(s.pool.Spec.PreWarm.CompletionMode), s.op.now().Sub(i.LaunchTime))
			}
		}
	}
}
