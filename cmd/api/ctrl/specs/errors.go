package specs

import (
	"errors"
	"fmt"
)

// FieldError names a field of a message that no agent can use.
type FieldError struct {
	// Field is the name on the wire, such as autoscaling.max_replicas.
	Field string
	// Value is what it holds, cut to 80 characters. It is never the value of a variable
	// or the content of a policy.
	Value string
	// Want is a description of what would be right.
	Want string
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%s is %q: want %s", e.Field, e.Value, e.Want)
}

// Errors collects the fields of a message that are wrong. The zero value has none.
type Errors []*FieldError

// maxShown is how many characters of a value are shown.
const maxShown = 80

// Add adds a field.
func (e *Errors) Add(field string, value any, want string) {
	*e = append(*e, &FieldError{Field: field, Value: fmt.Sprintf("%.*s", maxShown, fmt.Sprint(value)), Want: want})
}

// Err returns the joined errors, nil for none.
func (e *Errors) Err() error {
	list := make([]error, len(*e))
	for n, field := range *e {
		list[n] = field
	}
	return errors.Join(list...)
}
