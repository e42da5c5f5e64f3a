package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	outside "github.com/seed-9e1ffd66/trueup/reconcile/external"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// teardown removes all that was made, in the reverse order: the workload with its pods, the
// realm, the buckets, the database, the namespace of a copy. What is outside is removed
// as the inventory names it, and a child after what it is about. One part that cannot be
// removed keeps the object, and holds up no other part.
func (p *pass) teardown(ctx context.Context) (gone bool, err error) {
	left, err := p.removeWorkload(ctx)
	if err == nil && left == 0 {
		_, err = p.outside.Teardown(ctx)
		for _, o := range slices.Backward(p.outside.Parts) {
			if errors.Is(o.Left, outside.ErrWaits) {
				p.waits = fmt.Errorf("%s: %w", o.Name, o.Left)
			}
		}
		if p.waits != nil && err == nil {
			left++ // a part waits for its turn
		}
		if err == nil && left == 0 {
			var rest apply.PruneReport
			// The namespace of a copy goes with everything in it.
			rest, err = p.op.applier.DeletePart(ctx, string(p.subject.app.UID), apply.DeleteOptions{DeleteForeign: true})
			left = rest.Remaining + len(rest.Results)
		}
	}
	if ctx.Err() != nil {
		return false, errors.Join(err, ctx.Err())
	}
	err = errors.Join(err, p.terminating(ctx, left, err))
	return err == nil && left == 0 && len(p.outside.Recorded) == 0, err
}

// removeWorkload deletes all children except the children of parts, and returns how many are
// left. It waits for the pods, so that no pod uses a schema that is about to be deleted.
func (p *pass) removeWorkload(ctx context.Context) (left int, err error) {
	var ids []apply.ID
	for o := range p.op.live.Part(string(p.subject.app.UID)) {
		if o.ID.Kind != "Namespace" && !slices.ContainsFunc(p.parts, func(t *part) bool { return t.child == o.ID }) {
			ids = append(ids, o.ID)
		}
	}
	if len(ids) == 0 {
		return 0, p.op.live.Unseen()
	}
	report, err := p.op.applier.Delete(ctx, ids, apply.DeleteOptions{Propagation: metav1.DeletePropagationForeground})
	return report.Remaining + len(report.Results), err
}

// removeChild removes the object of a part in the cluster.
func (p *pass) removeChild(ctx context.Context, t *part) error {
	if !p.exists(t.child) {
		return nil
	}
	_, err := p.op.applier.Delete(ctx, []apply.ID{t.child}, apply.DeleteOptions{})
	return err
}

// terminating writes how far the deletion is, and what it fails with.
func (p *pass) terminating(ctx context.Context, left int, failed error) error {
	return p.subject.write(ctx, func(s *v1alpha1.ApplicationStatus) {
		s.Phase, s.External = v1alpha1.Terminating, p.inventory(s)
		reason, message := reasonProgressing, "is being removed"
		was := readyOf(p.subject.app)
		switch {
		case failed != nil:
			reason, message = reasonDeletion, "deletion: "+failed.Error()
		case p.waits != nil && was.Reason == reasonDeletion:
			reason, message = was.Reason, was.Message // nothing else is known yet
		case p.waits != nil:
			message = p.waits.Error()
		case left > 0:
			message = "the workload is being removed"
		}
		kube.SetCondition(&s.Conditions, v1alpha1.ConditionReady, metav1.ConditionFalse, reason, message)
	})
}
