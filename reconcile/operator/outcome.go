//trueup:pure

package operator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/readiness"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// The reasons beside the reasons of package readiness and of package apply.
const (
	reasonReady           = "Ready"
	reasonProgressing     = "Progressing"
	reasonInvalidChildren = "InvalidChildren"
	reasonInvalidObject   = "InvalidObject"
)

// ReasonOverrideUndone is the reason of an Event about fields of a child that another client has
// changed, and that were set back.
const ReasonOverrideUndone = "OverrideUndone"

// RecordOverrides calls record, such as [kube.Events.Record] about the object of the children, for each
// change by others that an apply of these has undone: with the fields and the field manager, without
// values. Nothing of it is in conditions: it is over. It needs [apply.Applier.Overrides].
func RecordOverrides(report apply.Report, record func(eventType, reason, note string)) {
	for _, o := range report.Overrides {
		record(kube.EventNormal, ReasonOverrideUndone, o.String())
	}
}

// outcome is what a pass has found: everything that keeps an object from being ready.
type outcome struct {
	causes []readiness.Cause
	again  time.Duration // when to look again without an event, 0 for never
}

// look notes that something may change without an event, and how soon to look.
func (o *outcome) look(again time.Duration) {
	if again > 0 && (o.again == 0 || again < o.again) {
		o.again = again
	}
}

// failed is the outcome of a function of children that returned an error.
func failed(err error) outcome {
	outlook := readiness.Transient
	if _, panicked := errors.AsType[*reconcile.PanicError](err); panicked || errors.Is(err, reconcile.ErrTerminal) {
		outlook = readiness.Lasting
	}
	message := strings.ReplaceAll(err.Error(), "\n", "; ")
	return outcome{causes: []readiness.Cause{{Reason: reasonInvalidChildren, Outlook: outlook, Message: message}}}
}

// stuck is the outcome of a deletion of all children that failed.
func stuck(left apply.PruneReport, err error) outcome {
	return outcomeOf(nil, left.Results, err, nil)
}

// outcomeOf judges the results for the children, and the errors beside them.
func outcomeOf(invalid error, results []apply.Result, kept, unread error) outcome {
	var o outcome
	if invalid != nil {
		o = failed(invalid)
	}
	for _, r := range results {
		if r.Err != nil {
			c := apply.CauseOf(r.Err)
			c.Message = r.ID.String() + ": " + c.Message
			o.causes = append(o.causes, c)
		}
	}
	for _, err := range []error{kept, unread} {
		if err != nil && len(o.causes) == 0 {
			o.causes = append(o.causes, apply.CauseOf(err))
		}
	}
	return o
}

// failedIn reports whether the results have an error of an object.
func failedIn(results []apply.Result, id apply.ID) bool {
	return slices.ContainsFunc(results, func(r apply.Result) bool { return r.ID == id && r.Err != nil })
}

// notReady notes a child that is not ready, and why.
func (o *outcome) notReady(id apply.ID, r readiness.Result, cause readiness.Cause) {
	if cause.Reason == "" {
		cause = readiness.Cause{Reason: reasonProgressing, Outlook: readiness.Waiting, Message: fmt.Sprint("is ", r.Status, ": ", r.Message)}
		if r.Status == readiness.Failed {
			cause.Outlook = readiness.Lasting
		}
	}
	cause.Message = id.String() + ": " + cause.Message
	o.causes = append(o.causes, cause)
	o.look(askAgain)
}

// cause is the cause that the conditions have, the zero Cause if there is none.
func (o *outcome) cause() readiness.Cause {
	if len(o.causes) == 0 {
		return readiness.Cause{}
	}
	return slices.MinFunc(o.causes, readiness.Cause.Compare)
}

// state is the outcome as conditions have it.
func (o *outcome) state() (state kube.State, reason, message string) {
	first := o.cause()
	if first.Reason == "" {
		return kube.Ready, reasonReady, "every child is as stated, and ready"
	}
	if state = kube.Reconciling; first.Outlook == readiness.Lasting {
		state = kube.Stalled
	}
	if message = first.Message; len(o.causes) > 1 {
		message += fmt.Sprintf(" (and %d more)", len(o.causes)-1)
	}
	return state, string(first.Reason), message
}
