package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/cmd/api/platform/v1alpha1"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// teardown removes all that was made, in the reverse order: the workload with its pods, the
// realm, the buckets, the database, the namespace of a copy. What is outside is removed
// as the inventory names it, and a child after what it is about. One part that cannot be
// removed keeps the object, and holds up no other part.
func (p *pass) teardown(ctx context.Context) (gone bool, err error) {
	left, err := p.removeWorkload(ctx)
	if err == nil && left == 0 {
		var steps reconcile.Steps
		for _, t := range p.parts {
			steps = append(steps, reconcile.Step{Name: t.name, Undo: func(ctx context.Context) error { return p.undo(ctx, t) }})
		}
		err = steps.Undo(ctx)
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
	return err == nil && left == 0 && len(p.external) == 0, err
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

// undo removes one part: its external objects, its inventory, its child.
func (p *pass) undo(ctx context.Context, t *part) error {
	if recorded := t.inventory(p.external); len(recorded) > 0 {
		var left []v1alpha1.External
		err := t.gate.pass(ctx, func(ctx context.Context) (err error) {
			left, err = t.remove(ctx, recorded)
			return err
		}, func(err error) {
			p.terminating(ctx, 0, fmt.Errorf("%s: %w", t.name, err)) //nolint:errcheck // it is written again at the end
		})
		if errors.Is(err, errBusy) {
			p.waits = fmt.Errorf("%s: %w", t.name, err)
			return nil
		}
		if err != nil {
			t.err = err
			return err
		}
		p.drop(recorded, left)
	}
	if !p.exists(t.child) {
		return nil
	}
	_, err := p.op.applier.Delete(ctx, []apply.ID{t.child}, apply.DeleteOptions{})
	return err
}

// terminating writes how far the deletion is, and what it fails with.
func (p *pass) terminating(ctx context.Context, left int, failed error) error {
	return p.subject.write(ctx, func(s *v1alpha1.ApplicationStatus) {
		p.external = p.inventory(s)
		s.Phase, s.External = v1alpha1.Terminating, slices.Clone(p.external)
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
