package apply

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConflictPolicy says what an apply does when somebody else owns a field that
// the set states with another value.
type ConflictPolicy int

// The policies.
const (
	// ForceConflicts takes the field: what the set states holds.
	ForceConflicts ConflictPolicy = iota
	// ReportConflicts leaves the object as it is, whole, and refuses it with a
	// [*ConflictError].
	ReportConflicts
)

// ConflictError names the fields of an object that others own.
type ConflictError struct {
	Conflicts []Conflict
}

// Conflict is one field that another manager owns with another value.
type Conflict struct {
	// Field is the path as the server prints it, such as .spec.replicas.
	Field string
	// Manager is the field manager that owns it.
	Manager string
}

func (e *ConflictError) Error() string {
	parts := make([]string, len(e.Conflicts))
	for i, c := range e.Conflicts {
		parts[i] = fmt.Sprintf("%s by %q", c.Field, c.Manager)
	}
	return "owned with another value: " + strings.Join(parts, ", ")
}

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
		found.Conflicts = append(found.Conflicts, Conflict{Field: cause.Field, Manager: manager})
	}
	if len(found.Conflicts) == 0 {
		return nil
	}
	slices.SortFunc(found.Conflicts, func(a, b Conflict) int { return strings.Compare(a.Field, b.Field) })
	return &found
}
