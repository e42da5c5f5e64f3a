package operator

import (
	"context"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/cloud"
	"github.com/seed-9e1ffd66/trueup/cmd/api/stratos/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// eventsWaiting is how many Events may wait to be written. More are dropped, and logged.
const eventsWaiting = 1000

// reasonNoMachine is the Event of a pod that no pool has a machine for.
const reasonNoMachine = "NoMachineFits"

// recorder writes Events in the background: nothing waits for them.
type recorder struct {
	kube.Events

	queue chan *eventsv1.Event
}

func newRecorder(client dynamic.Interface, instance string, logger *slog.Logger) *recorder {
	return &recorder{
		Events: kube.Events{Client: client, Controller: v1alpha1.Group + "/nodepool", Instance: instance, Logger: logger},
		queue:  make(chan *eventsv1.Event, eventsWaiting),
	}
}

// start writes Events until ctx ends.
func (r *recorder) start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-r.queue:
			r.Write(ctx, e)
		}
	}
}

func (r *recorder) record(about corev1.ObjectReference, kind, reason, note string) {
	select {
	case r.queue <- r.New(about, kind, reason, note):
	default:
		r.Logger.Warn("event queue full, event dropped", slog.String("reason", reason))
	}
}

func (r *recorder) pool(p *v1alpha1.NodePool, kind, reason, note string) {
	r.record(
		corev1.ObjectReference{
			APIVersion:      v1alpha1.GroupVersion().String(),
			Kind:            "NodePool",
			Name:            p.Name,
			UID:             p.UID,
			ResourceVersion: p.ResourceVersion,
		},
		kind,
		reason,
		note,
	)
}

func (r *recorder) class(c *v1alpha1.AWSNodeClass, kind, reason, note string) {
	r.record(
		corev1.ObjectReference{
			APIVersion:      v1alpha1.GroupVersion().String(),
			Kind:            "AWSNodeClass",
			Name:            c.Name,
			UID:             c.UID,
			ResourceVersion: c.ResourceVersion,
		},
		kind,
		reason,
		note,
	)
}

func (r *recorder) node(n *corev1.Node, kind, reason, note string) {
	r.record(
		corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion},
		kind,
		reason,
		note,
	)
}

func (r *recorder) pod(p *cloud.Pod, reason, note string) {
	r.record(
		corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID)},
		corev1.EventTypeWarning,
		reason,
		note,
	)
}

// action records the result of an action on a machine.
func (r *recorder) action(pool *v1alpha1.NodePool, result cloud.Result) {
	a := result.Action
	for _, reason := range reasons(a) {
		kind := corev1.EventTypeNormal
		switch reason {
		case "WarmupTimeout", "WarmupFailed", "MaxRuntimeExceeded", "DrainGivenUp":
			kind = corev1.EventTypeWarning
		}
		r.pool(pool, kind, reason, a.String())
	}
}

// reasons are the Events of an action.
func reasons(a cloud.Action) []string {
	switch a.Verb {
	case cloud.Launch:
		return []string{"Replenishing", "WarmupStarted"}
	case cloud.Start:
		return []string{"ScaleUp", "NodeStarted"}
	case cloud.Adopt:
		return []string{"NodeAdopted"}
	case cloud.Shelve:
		if a.From == cloud.StateWarmup {
			return []string{"WarmupCompleted"}
		}
		return []string{"NodeStopped"}
	case cloud.Drain:
		switch {
		case a.From == a.To:
			return nil
		case a.Intent.Reason == cloud.ReasonRuntime:
			return []string{"MaxRuntimeExceeded", "ScaleDown"}
		}
		return []string{"ScaleDown"}
	case cloud.GiveUp:
		return []string{"DrainGivenUp"}
	case cloud.ForceStop:
		if a.From == cloud.StateWarmup {
			return []string{"WarmupTimeout"}
		}
	case cloud.Terminate:
		if a.From == cloud.StateWarmup {
			return []string{"WarmupFailed"}
		}
		return []string{"Terminating"}
	case cloud.Forget:
		return []string{"NodeRemoved"}
	default:
	}
	return nil
}
