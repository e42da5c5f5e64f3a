package write

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/apply/internal/wire"
	"github.com/seed-9e1ffd66/trueup/diff"
)

// applying writes by server-side apply.
type applying struct{ writer *Writer }

func (a applying) write(ctx context.Context, t *Target) (Done, *metav1.PartialObjectMetadata, error) {
	if t.Bare {
		if answer := a.same(ctx, t); answer != nil {
			return Nothing, answer, nil
		}
	}
	if err := a.prepare(ctx, t); err != nil {
		return Nothing, nil, err
	}
	must := wire.Must{UID: t.UID}
	answer, err := a.first(ctx, t)
	if unmet(err) {
		// The object exists, or was replaced by another one.
		if must, err = a.lookUp(ctx, t); err == nil {
			answer, err = a.send(ctx, t, must)
		}
	}
	if must.UID != "" && outdated(err) {
		var moved bool
		if moved, err = a.writer.moveVersion(ctx, t, err); moved {
			answer, err = a.send(ctx, t, must)
		}
	}
	switch {
	case err != nil:
		return Nothing, nil, err
	case must.UID != "" && answer.ResourceVersion == t.Version:
		return Nothing, answer, nil
	case must.UID == "" && (t.LostUID == "" || t.LostUID != string(answer.UID)):
		return Created, answer, nil
	default:
		return Updated, answer, nil
	}
}

// first makes the first attempt. A lost object is created, or labelled again if it has
// only lost a label: it exists in the lost version only then. Force is not used,
// because the label may belong to another owner now.
func (a applying) first(ctx context.Context, t *Target) (*metav1.PartialObjectMetadata, error) {
	another := t.From != "" && t.From != t.Lost // and the write holds for that one
	if t.UID != "" || t.Lost == "" || t.Create != nil || another {
		return a.send(ctx, t, wire.Must{UID: t.UID})
	}
	gentle := *t
	gentle.Force = false
	answer, err := a.send(ctx, &gentle, wire.Must{Version: t.Lost})
	if _, conflict := errors.AsType[*ConflictError](err); conflict {
		return nil, errUnmet
	}
	return answer, err
}

// errUnmet is a failed precondition of ours.
var errUnmet = errors.New("the object is another one")

// prepare moves the ownership of fields of the live object, where an apply needs that.
func (a applying) prepare(ctx context.Context, t *Target) error {
	if t.UID == "" || !t.Superseded && t.Create == nil {
		return nil
	}
	found, err := a.writer.metadata(t).Get(ctx, t.Name, metav1.GetOptions{})
	if err == nil && string(found.UID) == t.UID {
		return a.writer.moveFields(ctx, t, found)
	}
	return nil // the apply returns the error
}

// lookUp asks the server for an object that differs from the view, and decides whether
// it may be applied.
func (a applying) lookUp(ctx context.Context, t *Target) (wire.Must, error) {
	found, err := a.writer.metadata(t).Get(ctx, t.Name, metav1.GetOptions{})
	if Gone(err) {
		return wire.Must{}, nil
	}
	if err != nil {
		return wire.Must{}, fmt.Errorf("looking up the object of that name: %w", err)
	}
	if err := a.writer.Claim(t, found); err != nil {
		return wire.Must{}, err
	}
	if err := a.writer.moveFields(ctx, t, found); err != nil {
		return wire.Must{}, err
	}
	t.UID = string(found.UID)
	return wire.Must{UID: t.UID}, nil
}

func (a applying) writeIn(ctx context.Context, t *Target, must wire.Must) (Done, *metav1.PartialObjectMetadata, error) {
	if must.UID != "" && (len(a.writer.Owner.Supersedes) > 0 || t.Create != nil) {
		found, err := a.writer.metadata(t).Get(ctx, t.Name, metav1.GetOptions{})
		if err != nil {
			return Nothing, nil, err
		}
		if string(found.UID) != must.UID || found.ResourceVersion != must.Version {
			return Nothing, nil, errUnmet
		}
		if err := a.writer.moveFieldsOf(ctx, t, found); err != nil {
			return Nothing, nil, err
		}
		must.Version = found.ResourceVersion
	}
	answer, err := a.send(ctx, t, must)
	switch {
	case err != nil:
		return Nothing, nil, err
	case must.UID == "":
		return Created, answer, nil
	default:
		return Updated, answer, nil
	}
}

func (a applying) create(ctx context.Context, t *Target) (*metav1.PartialObjectMetadata, error) {
	return a.send(ctx, t, wire.Must{})
}

// send makes one server-side apply.
func (a applying) send(ctx context.Context, t *Target, must wire.Must) (*metav1.PartialObjectMetadata, error) {
	return a.patch(ctx, t, must, nil)
}

func (a applying) rehearse(ctx context.Context, t *Target, live metav1.Object) error {
	_, err := a.patch(ctx, t, wire.Must{UID: string(live.GetUID())}, []string{metav1.DryRunAll})
	return err
}

func (a applying) patch(ctx context.Context, t *Target, must wire.Must, dryRun []string) (*metav1.PartialObjectMetadata, error) {
	body := t.Body
	if must.UID == "" && t.Create != nil {
		body = t.Create
	}
	if must.UID != "" && must.Version == "" {
		must.Version = t.From
	}
	data, err := body.Under(must)
	if err != nil {
		return nil, err
	}
	var answer *metav1.PartialObjectMetadata
	// An apply refuses undeclared fields in any case. The validation would only parse
	// the body a second time, to warn of duplicate keys, and an encoded body has none.
	send := func() error {
		answer, err = a.writer.metadata(t).Patch(ctx, t.Name, types.ApplyYAMLPatchType, data, // JSON is YAML
			metav1.PatchOptions{
				FieldManager:    a.writer.Owner.Manager,
				Force:           &t.Force,
				DryRun:          dryRun,
				FieldValidation: metav1.FieldValidationIgnore,
			})
		return err
	}
	if dryRun != nil {
		err = send()
	} else {
		err = a.writer.request(t, "patch", send)
	}
	if conflict := conflictOf(err); conflict != nil {
		return nil, conflict
	}
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// same returns the live object, of a kind without managedFields, if it states what
// is desired.
func (a applying) same(ctx context.Context, t *Target) *metav1.PartialObjectMetadata {
	if a.writer.Objects == nil {
		return nil
	}
	found, err := a.writer.object(t).Get(ctx, t.Name, metav1.GetOptions{})
	if err != nil || diff.Tracked(found.Object) || !diff.States(found.Object, t.Body.Decode()) {
		return nil // a write decides
	}
	return MetadataOf(found)
}

// unmet reports that a precondition did not hold: the object exists, or it does
// not, or it is another one. For a foreign UID the server answers a conflict if the
// name is free, and an invalid field if another object has the name.
func unmet(err error) bool {
	if apierrors.IsConflict(err) || errors.Is(err, errUnmet) {
		return true
	}
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsInvalid(err) || status.ErrStatus.Details == nil {
		return false
	}
	return slices.ContainsFunc(status.ErrStatus.Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}

// Unmet reports that a write did not find its object.
func Unmet(err error) bool { return unmet(err) || errors.Is(err, ErrStale) }

// ConflictError names the fields of an object that others own with another value.
type ConflictError struct{ Fields []Field }

// Field is one field that another manager owns.
type Field struct{ Path, Manager string }

func (c *ConflictError) Error() string { return "owned with another value" }

// conflictOf returns the error as a ConflictError, nil if it is none.
func conflictOf(err error) *ConflictError {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsConflict(err) || status.ErrStatus.Details == nil {
		return nil
	}
	var found ConflictError
	for _, cause := range status.ErrStatus.Details.Causes {
		if cause.Type != metav1.CauseTypeFieldManagerConflict {
			continue
		}
		// The message has the name in quotes: conflict with "kubectl" using apps/v1.
		_, manager, _ := strings.Cut(cause.Message, `"`)
		manager, _, _ = strings.Cut(manager, `"`)
		found.Fields = append(found.Fields, Field{cause.Field, manager})
	}
	if len(found.Fields) == 0 {
		return nil
	}
	slices.SortFunc(found.Fields, func(a, b Field) int { return strings.Compare(a.Path, b.Path) })
	return &found
}
