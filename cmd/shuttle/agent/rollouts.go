package agent

import (
	"context"
	"log/slog"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/seed-9e1ffd66/trueup/apply/readiness"
	"github.com/seed-9e1ffd66/trueup/internal/kubewatch"
)

// rollout is how far a Deployment is, some numbers of it.
type rollout struct {
	uid                            types.UID
	generation, observed           int64
	desired, total, updated, ready int64
	cause                          readiness.Cause // that the Deployment shows itself
}

// complete reports that all pods are as wanted, and ready.
func (r rollout) complete() bool {
	return r.observed >= r.generation && r.updated == r.desired && r.total == r.desired && r.ready == r.desired
}

// rollouts has those of the Deployments, which the live view of package apply,
// being metadata only, does not hold.
type rollouts struct {
	kubewatch.Store[types.NamespacedName, rollout]

	client dynamic.Interface
	owner  map[string]string
	logger *slog.Logger
}

func newRollouts(client dynamic.Interface, owner map[string]string, logger *slog.Logger) *rollouts {
	r := &rollouts{client: client, owner: owner, logger: logger}
	r.Read = readRollout
	r.Same = func(a, b rollout) bool { return a == b }
	return r
}

// Start implements reconcile.Starter.
func (r *rollouts) Start(ctx context.Context) error {
	deployments := r.client.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"})
	w := kubewatch.Watch{
		Name: "Deployment.apps", Resource: kubewatch.Of(r.client, &unstructured.Unstructured{}, deployments),
		LabelSelector: labels.SelectorFromSet(r.owner).String(), Sink: r, Logger: r.logger,
	}
	return w.Start(ctx)
}

// of returns the rollout of a Deployment as it was written, false while the watch has
// not shown that Deployment, or only an older generation of it: its pods are those of
// another desired state.
func (r *rollouts) of(n types.NamespacedName, w written) (rollout, bool) {
	for _, found := range r.Of(n) {
		return found, w.uid != "" && found.uid == w.uid && found.generation >= w.generation
	}
	return rollout{}, false
}

// written is a live Deployment as a pass has left it.
type written struct {
	uid        types.UID
	generation int64
}

// readRollout returns what a Deployment's status shows. What is malformed counts as missing.
func readRollout(o metav1.Object) (types.NamespacedName, rollout, bool) {
	d, ok := o.(*unstructured.Unstructured)
	if !ok {
		return types.NamespacedName{}, rollout{}, false
	}
	number := func(fields ...string) int64 {
		n, _, err := unstructured.NestedInt64(d.Object, fields...)
		if err != nil {
			return -1 // no such value
		}
		return n
	}
	found := rollout{
		uid:        d.GetUID(),
		generation: d.GetGeneration(), observed: number("status", "observedGeneration"),
		desired: number("spec", "replicas"), total: number("status", "replicas"),
		updated: number("status", "updatedReplicas"), ready: number("status", "readyReplicas"),
		cause: readiness.Why(d),
	}
	return types.NamespacedName{Namespace: d.GetNamespace(), Name: d.GetName()}, found, true
}
