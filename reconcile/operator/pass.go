package operator

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/readiness"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/external"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// askAgain is when a pass looks again for the cause why a workload is not ready: the pods may
// show another without a change of the workload.
const askAgain = 30 * time.Second

// reconcile does one pass for one object.
func (w *work[T]) reconcile(ctx context.Context, key types.NamespacedName, object T) (reconcile.Result, error) {
	if isNil(object) {
		w.unrecorded.note(key, nil)
		w.ending.forget(key)
		return reconcile.Result{}, nil // its children went before the finalizer
	}
	alive, result, err := w.finalizer.Finalize(ctx, object, func(ctx context.Context) (gone bool, err error) {
		if gone, err := w.deleteChildren(ctx, key, object); !gone || err != nil {
			return false, err
		}
		return w.teardown(ctx, object)
	})
	if !alive || err != nil {
		return result, err
	}
	pass, err := w.outside(object)
	if err != nil {
		err = reconcile.Terminal(err)
		return result, errors.Join(err, w.report(ctx, object, failed(err), nil))
	}
	again, err := w.make(ctx, object, pass)
	if err != nil || ctx.Err() != nil {
		return result, err
	}
	found, err := w.converge(ctx, object, pass)
	if pass != nil {
		pass.Prune(ctx, func(context.Context) error { return inUse(pass, found) })
	}
	if ctx.Err() != nil {
		return reconcile.Result{}, err // a pass that was cut short has not seen all
	}
	err = errors.Join(err, found.seen(pass, again))
	result.RequeueAfter = found.again
	return result, errors.Join(err, w.report(ctx, object, found, pass))
}

// deleteChildren deletes the children of an object that is being deleted, and reports whether all are gone.
func (w *work[T]) deleteChildren(ctx context.Context, key types.NamespacedName, object T) (gone bool, err error) {
	if w.operator.Children == nil {
		return true, nil
	}
	left, err := w.applier.DeletePart(ctx, string(object.GetUID()), apply.DeleteOptions{})
	if err != nil {
		return false, errors.Join(err, w.report(ctx, object, stuck(left, err), nil))
	}
	if held := w.held(object, left); left.Remaining > 0 && w.ending.takes(key) && len(held.causes) > 0 {
		err = w.report(ctx, object, held, nil)
	}
	return left.Remaining == 0, err
}

// misfit does one pass for an object that T cannot hold. What was made for it stays. It can be deleted, for
// which its children have all that is needed, but not with things outside, which its fields may say how to find.
func (w *work[T]) misfit(ctx context.Context, object T, misfit error) (reconcile.Result, error) {
	found := outcome{causes: []readiness.Cause{
		{Reason: reasonInvalidObject, Outlook: readiness.Lasting, Message: misfit.Error()},
	}}
	if object.GetDeletionTimestamp() == nil || w.operator.Outside != nil {
		return reconcile.Result{}, errors.Join(misfit, w.report(ctx, object, found, nil))
	}
	_, result, err := w.finalizer.Finalize(ctx, object, func(ctx context.Context) (bool, error) {
		return w.deleteChildren(ctx, kube.KeyOf(object), object)
	})
	return result, err
}

// converge makes the children of an object as they are stated.
func (w *work[T]) converge(ctx context.Context, object T, pass *external.Pass) (outcome, error) {
	if w.operator.Children == nil {
		return outcome{}, nil
	}
	children, err := w.children(ctx, object, pass)
	if err != nil {
		return failed(err), err
	}
	set, invalid := w.set(object, children)
	if invalid = reconcile.Terminal(invalid); set == nil {
		return failed(invalid), invalid
	}
	report, applied := w.applier.Apply(ctx, set)
	RecordOverrides(report, func(eventType, reason, note string) { w.record(object, eventType, reason, note) })
	pruned, kept := w.applier.Prune(ctx, set, apply.PruneOptions{Complete: invalid == nil, AllowEmpty: true})
	if invalid != nil {
		kept = nil // it is that the set is not complete
	}
	ready, unread := w.applier.Readiness(ctx, set)
	o := outcomeOf(invalid, append(report.Results, pruned.Results...), kept, unread)
	if pruned.Pending > 0 {
		o.look(askAgain) // something waits for pods that end
	}
	for id, r := range ready {
		if r.Status == readiness.Current || failedIn(report.Results, id) {
			continue // of what was not applied, the live object may be another's
		}
		cause, err := w.applier.Why(ctx, id)
		if refused := apply.CauseOf(err); refused.Outlook == readiness.Lasting {
			cause = refused // such as a right that is missing
			cause.Message = strings.TrimPrefix(cause.Message, id.String()+": ")
		}
		unread = errors.Join(unread, err)
		o.notReady(id, r, cause)
	}
	return o, errors.Join(invalid, applied, kept, unread)
}

var errNoConditions = reconcile.Terminal(
	errors.New("operator: Operator.Conditions: returned nil, must point to the conditions, also of an object without a status"))

// report writes what was found into the conditions, what there is outside of the cluster, if there is a
// pass for it, and an Event if it is another reason.
func (w *work[T]) report(ctx context.Context, object T, found outcome, pass *external.Pass) error {
	conditions := w.operator.Conditions(object)
	if conditions == nil {
		return errNoConditions
	}
	before := readyOf(*conditions)
	state, reason, message := found.state()
	err := w.status.Update(ctx, object, func(object T) {
		kube.SetState(w.operator.Conditions(object), state, reason, message)
		if pass != nil {
			things := w.operator.Outside.Things(object)
			*things = pass.Merge(*things)
		}
	})
	w.unrecorded.note(kube.KeyOf(object), err)
	if err != nil {
		return err
	}
	after := readyOf(*w.operator.Conditions(object))
	if after.Reason != reason || before.Reason == after.Reason && before.Status == after.Status {
		return nil // it was deleted meanwhile, or is what it was
	}
	kind := kube.EventNormal
	if state != kube.Ready && found.cause().Outlook != readiness.Waiting {
		kind = kube.EventWarning
	}
	w.record(object, kind, reason, message)
	w.controller.Logger.InfoContext(ctx, "state changed", slog.String("kind", w.operator.Kind.Kind),
		slog.String("key", kube.KeyOf(object).String()), slog.String("state", string(state)), slog.String("reason", reason))
	return nil
}

// record records an Event about an object.
func (w *work[T]) record(object T, eventType, reason, note string) {
	w.events.Record(w.operator.Kind, object, eventType, reason, note)
}

func readyOf(conditions []metav1.Condition) metav1.Condition {
	if c := meta.FindStatusCondition(conditions, string(kube.Ready)); c != nil {
		return *c
	}
	return metav1.Condition{}
}
