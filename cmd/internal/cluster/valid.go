package cluster

import (
	"strings"

	"google.golang.org/protobuf/proto"

	ctrlv1 "github.com/seed-9e1ffd66/trueup/cmd/api/ctrl/v1"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/adminapi"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/specs"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/starbase"
)

// maxText is the length in bytes of any text that is no value of its own.
const maxText = 1024

// specError is a spec with fields that no agent could use.
type specError struct{ fields specs.Errors }

func (e *specError) Error() string {
	list := make([]string, len(e.fields))
	for n, field := range e.fields {
		list[n] = "spec." + field.Error()
	}
	return ErrInvalid.Error() + ": " + strings.Join(list, "; ")
}

func (e *specError) Unwrap() error { return ErrInvalid }

// answer returns what the administrator gets.
func (e *specError) answer() *adminapi.Error {
	fields := make([]starbase.FieldError, len(e.fields))
	for n, field := range e.fields {
		fields[n] = starbase.FieldError{Field: "spec." + field.Field, Value: field.Value, Want: field.Want}
	}
	answer := adminapi.Invalid(fields...)
	answer.Message = e.Error()
	return answer
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
		return &specError{fields}
	}
	return nil
}
