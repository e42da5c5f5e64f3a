package regions

import (
	"regexp"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/specs"
	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/front/adminapi"
)

// maxText is the length in bytes of any text that is no value of its own.
const maxText = 1024

// invalidError is a resource with fields that no agent could use.
type invalidError struct{ fields []starbase.FieldError }

func (e *invalidError) Error() string {
	list := make([]string, len(e.fields))
	for n, field := range e.fields {
		list[n] = field.Error()
	}
	return ErrInvalid.Error() + ": " + strings.Join(list, "; ")
}

func (e *invalidError) Unwrap() error { return ErrInvalid }

// answer returns what the administrator gets.
func (e *invalidError) answer() *adminapi.Error {
	answer := adminapi.Invalid(e.fields...)
	answer.Message = e.Error()
	return answer
}

// invalid returns the error for one field.
func invalid(field, value, want string) error {
	return &invalidError{[]starbase.FieldError{{Field: field, Value: value, Want: want}}}
}

var (
	unknownField = regexp.MustCompile(`unknown field "([^"]{1,80})"`)
	wrongField   = regexp.MustCompile(`field ([A-Za-z0-9_.]{1,80}):`)
)

// unread returns the error for a spec that is not the message in the JSON form of
// protobuf. It names the field, and repeats no value.
func unread(err error) error {
	if found := unknownField.FindStringSubmatch(err.Error()); found != nil {
		return invalid("spec."+found[1], "", "no such field")
	}
	if found := wrongField.FindStringSubmatch(err.Error()); found != nil {
		return invalid("spec."+found[1], "", "a value of its type, in the JSON form of protobuf")
	}
	return invalid("spec", "", "the message in the JSON form of protobuf")
}

// valid returns an error that names each field that no agent could use.
func valid(m proto.Message) error {
	var fields specs.Errors
	switch m := m.(type) {
	case *ctrlv1.ApplyDeployment:
		fields.Deployment(m)
	case *ctrlv1.ApplySentinel:
		fields.Sentinel(m)
	case *ctrlv1.ApplyCiliumNetworkPolicy:
		fields.Policy(m)
	}
	if len(fields) > 0 {
		found := make([]starbase.FieldError, len(fields))
		for n, field := range fields {
			found[n] = starbase.FieldError{Field: "spec." + field.Field, Value: field.Value, Want: field.Want}
		}
		return &invalidError{found}
	}
	return nil
}
