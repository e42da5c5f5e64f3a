package apply

import (
	"errors"
	"fmt"
	"strings"

	"github.com/seed-9e1ffd66/trueup/apply/internal/write"
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

// named converts the server's conflict error into a ConflictError. Other errors stay.
func named(err error) error {
	conflict, ok := errors.AsType[*write.ConflictError](err)
	if !ok {
		return err
	}
	e := &ConflictError{}
	for _, f := range conflict.Fields {
		e.Conflicts = append(e.Conflicts, Conflict{Field: f.Path, Manager: f.Manager})
	}
	return e
}
