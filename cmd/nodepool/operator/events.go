package operator

import (
	"context"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

	queue chan *unstructured.Unstructured
}

func newRecorder(client dynamic.Interface, instance string, logger *slog.Logger) *recorder {
	return &recorder{
		Events: kube.Events{Client: client, Controller: v1alpha1.Group + "/nodepool", Instance: instance, Logger: logger},
		queue:  make(chan *unstructured.Unstructured, eventsWaiting),
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

func (r *recorder) record(kind schema.GroupVersionKind, about metav1.Object, eventType, reason, note string) {
	select {
	case r.queue <- r.New(kind, about, eventType, reason, note):
	default:
		r.Logger.Warn("event queue full, event dropped", slog.String("reason", reason))
	}
}

func (r *recorder) pool(p *v1alpha1.NodePool, eventType, reason, note string) {
	r.record(v1alpha1.GroupVersion().WithKind("NodePool"), p, eventType, reason, note)
}

func (r *recorder) class(c *v1alpha1.AWSNodeClass, eventType, reason, note string) {
	r.record(v1alpha1.GroupVersion().WithKind("AWSNodeClass"), c, eventType, reason, note)
}

func (r *recorder) node(n *corev1.Node, eventType, reason, note string) {
	r.record(corev1.SchemeGroupVersion.WithKind("Node"), n, eventType, reason, note)
}

func (r *recorder) pod(p *cloud.Pod, reason, note string) {
	about := &metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID)}
	r.record(corev1.SchemeGroupVersion.WithKind("Pod"), about, kube.EventWarning, reason, note)
}

// action records the result of an action on a machine.
func (r *recorder) action(pool *v1alpha1.NodePool, result cloud.Result) {
	a := result.Action
	for _, reason := range reasons(a) {
		kind := kube.EventNormal
		switch reason {
		case "WarmupTimeout", "WarmupFailed", "MaxRuntimeExceeded", "DrainGivenUp":
			kind = kube.EventWarning
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
