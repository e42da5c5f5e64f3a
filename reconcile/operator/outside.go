package operator

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/apply/readiness"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/external"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// Outside is what the objects of an [Operator] have outside of the cluster, beside their children: the
// parts of package external. Everything that is about to be made is in the status of the object before
// it is made. Parts are made before the children, and removed after them: with the object once all of its
// children are gone, and what is no longer wanted once all else is as stated, and ready. The
// conditions say why a part is not as it should be, after its name.
type Outside[T metav1.Object] struct {
	// Parts returns all parts that an object can have, wanted or not, in the order in which they are
	// made, also for an object that is being deleted. It sends nothing: Make and Delete of the parts do.
	// Required.
	Parts func(object T) []*external.Part
	// Things returns where the record of what was made is, in the status of an object. Children finds
	// there, by Made, what it can use. Required.
	Things func(object T) *[]external.Thing
	// Interval is the time between two looks at a part that was found correct. Default 5m.
	Interval time.Duration
}

// waitAgain is when a pass follows for parts that wait for their turn.
const waitAgain = 5 * time.Second

// errInUse is why a thing stays that is no longer wanted.
var errInUse = fmt.Errorf("%w until the rest is as stated, which may still use it, or take its place", external.ErrWaits)

// inUse is why what is no longer wanted must stay, if it must.
func inUse(pass *external.Pass, found outcome) error {
	failed := func(p *external.Part) bool { return p.Wanted && p.Err != nil }
	if len(found.causes) > 0 || slices.ContainsFunc(pass.Parts, failed) {
		return errInUse
	}
	return nil
}

// outside begins the pass for what an object has outside of the cluster. It is nil for none.
func (w *work[T]) outside(object T) (pass *external.Pass, err error) {
	o := w.operator.Outside
	if o == nil {
		return nil, nil //nolint:nilnil // no pass, and nothing is wrong
	}
	defer func() {
		if value := recover(); value != nil {
			err = &reconcile.PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	things := o.Things(object)
	if things == nil {
		return nil, errors.New("operator: Operator.Outside.Things: returned nil, must point to the things, also of an object without a status")
	}
	pass = &external.Pass{
		Parts: o.Parts(object), Recorded: *things, Checks: w.checks,
		UID: object.GetUID(), Version: strconv.FormatInt(object.GetGeneration(), 10),
	}
	return pass, pass.Validate()
}

// make makes the parts of an object, which then shows what there is. It returns when a part is due.
func (w *work[T]) make(ctx context.Context, object T, pass *external.Pass) (again time.Duration, err error) {
	if pass == nil {
		return 0, nil
	}
	things := w.operator.Outside.Things
	err = pass.Plan(func() ([]external.Thing, error) {
		err := w.status.Update(ctx, object, func(object T) { *things(object) = pass.Merge(*things(object)) })
		return *things(object), err
	})
	if err != nil {
		w.unrecorded.note(kube.KeyOf(object), err)
		return 0, err
	}
	return pass.Make(ctx), nil
}

// seen adds to an outcome what keeps parts from being as they should be. Its error is what a repetition may
// cure; again is when another pass must follow without one, since no event says that a service has changed.
func (o *outcome) seen(pass *external.Pass, again time.Duration) error {
	if pass == nil {
		return nil
	}
	o.look(again)
	var failed []error
	for _, part := range pass.Parts {
		for _, err := range []error{part.Err, part.Left} {
			cause := external.CauseOf(err)
			if cause.Reason == "" {
				continue
			}
			cause.Message = part.Name + ": " + cause.Message
			o.causes = append(o.causes, cause)
			switch cause.Outlook {
			case readiness.Transient:
				failed = append(failed, fmt.Errorf("%s: %w", part.Name, err))
			case readiness.Waiting:
				o.look(waitAgain)
			case readiness.Lasting: // it is looked at when it is due
			}
		}
	}
	return errors.Join(failed...)
}

// teardown removes the parts of an object whose children are gone, and reports whether all is gone.
func (w *work[T]) teardown(ctx context.Context, object T) (gone bool, err error) {
	pass, err := w.outside(object)
	if err != nil {
		return false, errors.Join(err, w.report(ctx, object, failed(err), nil))
	}
	if pass == nil {
		return true, nil
	}
	gone, err = pass.Teardown(ctx)
	if gone {
		w.checks.Forget(object.GetUID())
		return true, nil
	}
	if ctx.Err() != nil {
		return false, err
	}
	var found outcome
	_ = found.seen(pass, 0) // err has all that failed
	if err != nil && len(found.causes) == 0 {
		found.causes = append(found.causes, external.CauseOf(err))
	}
	return false, errors.Join(err, w.report(ctx, object, found, pass))
}
