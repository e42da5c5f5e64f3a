package operator

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/readiness"
	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
)

// disable removes the external objects of parts that are turned off, and buckets that are no
// longer wanted, once no pod uses them.
func (p *pass) disable(ctx context.Context) {
	p.outside.Prune(ctx, func(ctx context.Context) error {
		if p.workErr != nil || p.running() {
			return errInUse
		}
		return p.ended(ctx)
	})
}

// ended returns errEnding while pods of the app are being deleted, or run migrations. The status of a
// Deployment does not count them, and they may use what they were started with until they have ended.
func (p *pass) ended(ctx context.Context) error {
	selector := labels.SelectorFromSet(labels.Set{v1alpha1.LabelOwner: string(p.subject.app.UID)}).String()
	pods, err := p.op.client.Resource(podsResource).Namespace(p.subject.app.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return fmt.Errorf("pods that may still use it: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
		migrates := pod.GetLabels()[labelComponent] == componentMigrations && phase != "Succeeded" && phase != "Failed"
		if pod.GetDeletionTimestamp() != nil || migrates {
			return errEnding
		}
	}
	return nil
}

// running reports whether pods may run with an older template.
func (p *pass) running() bool {
	if p.held { // the workload stays as it is, if there is one
		_, err := p.op.live.Get(p.deploymentID())
		return !errors.Is(err, apply.ErrAbsent)
	}
	return !p.rolledOut()
}

// rolledOut reports whether no pod runs with an older template.
func (p *pass) rolledOut() bool {
	r, ok := p.ready[p.deploymentID()]
	return p.subject.app.Spec.ImageRef == "" || ok && r.Status == readiness.Current
}
