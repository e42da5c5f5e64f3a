package write

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed-9e1ffd66/trueup/apply/internal/identity"
	"github.com/seed-9e1ffd66/trueup/apply/internal/wire"
)

// Immutable reports that the server refused an update only because of immutable fields.
// There is no code for that: each cause must have a type that validation uses for it,
// and its message. With any other cause the object is invalid.
func Immutable(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsInvalid(err) || status.ErrStatus.Details == nil || len(status.ErrStatus.Details.Causes) == 0 {
		return false
	}
	// The messages of Kubernetes' own validation. The rules of definitions use the
	// second one, too.
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
		names := func(phrase string) bool { return strings.Contains(cause.Message, phrase) }
		if !slices.ContainsFunc(phrases, names) {
			return false
		}
	}
	return true
}

const causeForbidden = metav1.CauseType("FieldValueForbidden")

// Recreate deletes the object with that UID, which the server refuses to change, and
// creates it again.
func (w *Writer) Recreate(ctx context.Context, t *Target, uid string, cause error) (Done, *metav1.PartialObjectMetadata, error) {
	known := *t
	known.UID = uid
	return w.recreate(ctx, &known, cause)
}

// Recreatable returns an error with the cause if the live object must not be recreated.
func (w *Writer) Recreatable(live metav1.Object, cause error) error {
	if w.Owner.Standing(live.GetLabels()) != identity.Labelled {
		return fmt.Errorf("not recreated, because it lacks our labels: %w", cause)
	}
	return nil
}

// recreate sends one deletion, for this very object. If finalizers hold it, the watch
// starts the pass that creates it, once it is deleted.
func (w *Writer) recreate(ctx context.Context, t *Target, cause error) (Done, *metav1.PartialObjectMetadata, error) {
	found, err := w.metadata(t).Get(ctx, t.Name, metav1.GetOptions{})
	switch {
	case Gone(err):
	case err != nil:
		return Nothing, nil, fmt.Errorf("reading the object to recreate: %w", errors.Join(err, cause))
	case t.UID != "" && string(found.UID) != t.UID:
		return Nothing, nil, fmt.Errorf("another object has taken the name: %w", cause)
	case w.Recreatable(found, cause) != nil:
		return Nothing, nil, w.Recreatable(found, cause)
	case found.DeletionTimestamp != nil:
		return Nothing, nil, ErrTerminating
	default:
		if err := w.Delete(ctx, t, wire.Must{UID: string(found.UID)}, ""); err != nil && !Gone(err) {
			return Nothing, nil, fmt.Errorf("deleting the object to recreate: %w", errors.Join(err, cause))
		}
	}
	switch answer, err := w.method(t).create(ctx, t); {
	case err == nil:
		return Recreated, answer, nil
	case unmet(err), apierrors.IsAlreadyExists(err):
		return Nothing, nil, fmt.Errorf("%w, and will be recreated: %w", ErrTerminating, cause)
	default:
		return Nothing, nil, fmt.Errorf("deleted because of an immutable field, and not created again yet: %w", err)
	}
}
