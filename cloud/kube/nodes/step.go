package nodes

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed-9e1ffd66/trueup/cloud"
)

// nodeStep is a pass of one version of a Node. Its steps only change that and the result.
type nodeStep struct {
	pass   *Pass
	domain Domain
	pool   *Pool
	view   View
	now    time.Time
	result PassResult
}

func (s *nodeStep) run(n *corev1.Node) error {
	if n.Labels[s.domain.PoolLabel()] != s.pool.Name {
		return nil // since it was viewed, another client has taken it out of the pool
	}
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	s.keepClosed(n)
	if s.pass.Deleting {
		return nil // the rest is for machines that stay
	}
	s.keepTemplate(n)
	if err := s.attest(n); err != nil {
		return err
	}
	s.started(n)
	s.open(n)
	s.warnRuntime(n)
	return nil
}

// at asks for another pass at t, or earlier.
func (s *nodeStep) at(t time.Time) {
	if s.result.Wake.IsZero() || t.Before(s.result.Wake) {
		s.result.Wake = t
	}
}

func (s *nodeStep) tell(kind, reason, note string) {
	s.result.Events = append(s.result.Events, Event{kind, reason, note})
}

// keepTemplate puts the labels and taints of the pool on the Node.
func (s *nodeStep) keepTemplate(n *corev1.Node) {
	maps.Copy(n.Labels, s.pool.Labels)
	addTaints(n, s.pool.Taints...)
}

// keepClosed keeps the Node of a machine that is on standby or on its way out closed for pods,
// also after another client has opened it. The state is read from this version of the Node: a
// start may have changed it since the pass began. The taint of a start is put back by the start
// itself; a taint of another controller, such as a network plugin, is removed by that controller.
func (s *nodeStep) keepClosed(n *corev1.Node) {
	switch cloud.State(n.Labels[s.domain.StateLabel()]) {
	case cloud.StateStandby:
		n.Spec.Unschedulable = true
		addTaints(n, s.domain.StandbyTaint())
	case cloud.StateTerminating:
		n.Spec.Unschedulable = true
	default:
	}
}

// attest records the warm-up of a machine whose image runs no script.
func (s *nodeStep) attest(n *corev1.Node) error {
	v, boot := s.view.Status, n.Status.NodeInfo.BootID
	if !s.pass.AttestReady || v.Attestation != "" || v.State != cloud.StateWarmup || !v.Ready || !v.NetworkReady || boot == "" {
		return nil // it names its boot with its next heartbeat
	}
	text, err := json.Marshal(Attestation{BootID: boot})
	if err != nil {
		return fmt.Errorf("attestation: %w", err)
	}
	n.Annotations[s.domain.AttestedAnnotation()] = string(text)
	return nil
}

// started takes the mark of a start off a Node that is ready: from now on, a Node that is
// not ready has lost it.
func (s *nodeStep) started(n *corev1.Node) {
	if v := s.view.Status; v.State == cloud.StateRunning && v.Ready {
		delete(n.Annotations, s.domain.scaleUpStarted())
	}
}

// open removes the startup taints of a running machine once its network is ready, and
// after [StartupTimeout] in any case.
func (s *nodeStep) open(n *corev1.Node) {
	v := s.view.Status
	if v.State != cloud.StateRunning {
		return
	}
	closed, ours := false, false
	for _, t := range n.Spec.Taints {
		closed = closed || hasTaint(s.pool.Startup(), t)
		ours = ours || hasTaint(s.pool.removable(), t)
	}
	if !closed {
		s.result.Open = v.Ready
		return
	}
	since := v.LastStarted
	if since.IsZero() {
		since = v.Since
	}
	late := !s.now.Before(since.Add(StartupTimeout))
	trigger := NetworkReady
	switch {
	case ours && v.Ready && v.NetworkReady:
		s.tell(corev1.EventTypeNormal, "StartupTaintsRemoved", "its network is ready")
		s.result.Open = true
	case ours && late:
		trigger = TimedOut
		s.tell(corev1.EventTypeWarning, "StartupTaintTimeout", fmt.Sprintf("its network has not become ready within %s", StartupTimeout))
	case late:
		if s.pass.Once == nil || s.pass.Once("startup taints of "+n.Name+formatTime(since)) {
			s.tell(corev1.EventTypeWarning, "StartupTaintTimeout",
				fmt.Sprintf("its startup taints are there since %s: another controller has to remove them", formatTime(since)))
		}
		return
	default:
		s.at(since.Add(StartupTimeout))
		return
	}
	removeTaints(n, s.pool.removable()...)
	s.result.Removed = &Removed{trigger, s.now.Sub(since)}
	for _, t := range n.Spec.Taints {
		if hasTaint(s.pool.Startup(), t) {
			s.at(since.Add(StartupTimeout))
		}
	}
}

// warnRuntime announces once that a machine is about to be drained. It is not while a pod asks not
// to be disrupted.
func (s *nodeStep) warnRuntime(n *corev1.Node) {
	v := s.view.Status
	if s.pass.MaxRuntime == 0 || v.State != cloud.StateRunning || v.LastStarted.IsZero() || s.view.warned || v.DoNotDisrupt {
		return
	}
	end := v.LastStarted.Add(s.pass.MaxRuntime)
	if at := end.Add(-runtimeWarning); s.now.Before(at) {
		s.at(at)
		return
	}
	n.Annotations[s.domain.runtimeWarned()] = formatTime(s.now)
	s.tell(corev1.EventTypeWarning, "MaxRuntimeApproaching", "it is drained at "+formatTime(end))
}
