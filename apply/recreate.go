package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func (a *Applier) recreatable(kind schema.GroupKind) bool {
	return slices.Contains(a.Recreate, kind)
}

// immutable reports that the server refused an update for nothing but immutable
// fields. It has no code of its own for that: each cause must be of a type that
// validation uses for it, and say so. One other cause, and the object is invalid.
func immutable(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsInvalid(err) || status.ErrStatus.Details == nil || len(status.ErrStatus.Details.Causes) == 0 {
		return false
	}
	// Those of Kubernetes' own validation; the second one is used in the rules of
	// definitions, too.
	phrases := []string{
		"field is immutable",
		"is immutable",
		"may not change once set",
		"may not be changed",
		"updates to statefulset spec for fields other than",
		"pod updates may not change fields other than",
		"cannot change roleRef",
	}
	for _, cause := range status.ErrStatus.Details.Causes {
		switch cause.Type {
		case metav1.CauseTypeFieldValueInvalid, causeForbidden:
		default:
			return false
		}
		says := func(phrase string) bool { return strings.Contains(cause.Message, phrase) }
		if !slices.ContainsFunc(phrases, says) {
			return false
		}
	}
	return true
}

const causeForbidden = metav1.CauseType("FieldValueForbidden")

// recreate deletes the object that the server will not change, and creates it
// anew. It sends one deletion, for this very object: one that finalizers hold is
// waited for by the watch, which starts the pass that creates.
func (p *pass) recreate(ctx context.Context, v *view, it *item, must precondition, cause error) (Action, error) {
	found, err := p.resource(v, it.id).Get(ctx, it.id.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return Failed, fmt.Errorf("looking at what is to be recreated: %w", errors.Join(err, cause))
	case string(found.UID) != must.uid:
		return Failed, fmt.Errorf("another object has taken the name: %w", cause)
	case p.Live.Owner.standing(found.Labels) != labelled:
		return Failed, fmt.Errorf("not recreated, as it does not carry our labels: %w", cause)
	case found.DeletionTimestamp != nil:
		return Waiting, ErrTerminating
	default:
		if err := p.remove(ctx, v, it.id, precondition{uid: must.uid}, ""); err != nil && !apierrors.IsNotFound(err) {
			return Failed, fmt.Errorf("deleting what cannot be changed: %w", errors.Join(err, cause))
		}
	}
	switch err := p.make(ctx, v, it); {
	case err == nil:
		return Recreated, nil
	case unmet(err), apierrors.IsAlreadyExists(err):
		return Waiting, fmt.Errorf("%w, to be recreated: %w", ErrTerminating, cause)
	default:
		return Failed, fmt.Errorf("deleted because of an immutable field, and not created anew yet: %w", err)
	}
}

// make creates the object, which must not exist.
func (p *pass) make(ctx context.Context, v *view, it *item) error {
	if p.upserts(it) {
		return p.create(ctx, v, it)
	}
	return p.send(ctx, v, it, precondition{}, true)
}
