package write //nolint:testpackage // answers of servers, told apart

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOnlyImmutableFieldsAreImmutable(t *testing.T) {
	t.Parallel()
	status := func(code int32, reason metav1.StatusReason, causes ...metav1.StatusCause) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason, Details: &metav1.StatusDetails{Causes: causes}}}
	}
	cause := func(kind metav1.CauseType, message string) metav1.StatusCause {
		return metav1.StatusCause{Type: kind, Message: message, Field: "spec.x"}
	}
	fixed := cause(metav1.CauseTypeFieldValueInvalid, `Invalid value: "x": field is immutable`)
	invalid := status(422, metav1.StatusReasonInvalid, fixed)
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"a field":               {invalid, true},
		"wrapped":               {fmt.Errorf("send: %w", invalid), true},
		"several fields":        {status(422, metav1.StatusReasonInvalid, fixed, fixed), true},
		"a set's template":      {status(422, metav1.StatusReasonInvalid, cause(causeForbidden, "Forbidden: updates to statefulset spec for fields other than 'replicas'")), true},
		"a pod":                 {status(422, metav1.StatusReasonInvalid, cause(causeForbidden, "Forbidden: pod updates may not change fields other than")), true},
		"a role":                {status(422, metav1.StatusReasonInvalid, cause(metav1.CauseTypeFieldValueInvalid, "cannot change roleRef")), true},
		"an address":            {status(422, metav1.StatusReasonInvalid, cause(metav1.CauseTypeFieldValueInvalid, "may not change once set")), true},
		"nothing":               {nil, false},
		"no answer":             {errors.New("field is immutable"), false},
		"no cause":              {status(422, metav1.StatusReasonInvalid), false},
		"no details":            {&apierrors.StatusError{ErrStatus: metav1.Status{Code: 422, Reason: metav1.StatusReasonInvalid}}, false},
		"another answer":        {status(403, metav1.StatusReasonForbidden, fixed), false},
		"an invalid field":      {status(422, metav1.StatusReasonInvalid, cause(metav1.CauseTypeFieldValueInvalid, "must be positive")), false},
		"an invalid one, too":   {status(422, metav1.StatusReasonInvalid, fixed, cause(metav1.CauseTypeFieldValueInvalid, "must be positive")), false},
		"a cause of other type": {status(422, metav1.StatusReasonInvalid, cause(metav1.CauseTypeFieldValueRequired, "required, as the field is immutable")), false},
	} {
		require.Equal(t, test.want, Immutable(test.err), name)
	}
}
