package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// precondition is what must hold for an apply: that the object does not exist,
// or that it is the one with this UID and, if given, in this version.
type precondition struct{ uid, version string }

// neverVersion is a resourceVersion that no object can have. An apply that
// carries it creates, or fails with a conflict if the object exists: a server
// compares the version only with that of an existing object. So one request
// creates, and never takes over what somebody else has made under that name.
const neverVersion = "1"

// unmet reports that a precondition did not hold: the object exists, or it does
// not, or it is another one. The server calls a foreign UID a conflict where the
// name is free, and an invalid field where another object has it.
func unmet(err error) bool {
	if apierrors.IsConflict(err) {
		return true
	}
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsInvalid(err) || status.ErrStatus.Details == nil {
		return false
	}
	return slices.ContainsFunc(status.ErrStatus.Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}

// lookUp asks the server for an object that is not what the view says, and
// decides whether it may be applied.
func (p *pass) lookUp(ctx context.Context, v *view, it *item) (precondition, error) {
	found, err := p.resource(v, it.id).Get(ctx, it.id.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return precondition{}, nil
	}
	if err != nil {
		return precondition{}, fmt.Errorf("looking up what holds the name: %w", err)
	}
	if err := p.claim(found); err != nil {
		return precondition{}, err
	}
	return precondition{uid: string(found.UID)}, nil
}

// claim decides whether a live object may be written.
func (a *Applier) claim(found metav1.Object) error {
	owner := &a.Live.Owner
	switch standing := owner.standing(found.GetLabels()); {
	case standing == others:
		return fmt.Errorf("%w: its labels name another owner", ErrNotOurs)
	case standing == unlabelled && !owner.wrote(found) && a.Adoption != AdoptForeign:
		return fmt.Errorf("%w: it was made by %s", ErrNotOurs, managers(found))
	case found.GetDeletionTimestamp() != nil:
		return ErrTerminating
	default:
		return nil
	}
}

// managers names who has written an object.
func managers(m metav1.Object) string {
	names := map[string]bool{}
	var list []string
	for _, entry := range m.GetManagedFields() {
		if !names[entry.Manager] {
			names[entry.Manager] = true
			list = append(list, fmt.Sprintf("%q", entry.Manager))
		}
	}
	if len(list) == 0 {
		return "an unknown manager"
	}
	return fmt.Sprint(list)
}
