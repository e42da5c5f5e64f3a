package apply //nolint:testpackage // time is given, not waited for

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestAFightIsAskedAboutAndThenLeftAloneForLongerAndLonger(t *testing.T) {
	t.Parallel()
	var f fights
	id := ID{Kind: "ConfigMap", Name: "a"}
	now := time.Unix(0, 0)
	repaired := func() {
		t.Helper()
		force, err := f.enter(id, now)
		require.NoError(t, err)
		require.True(t, force)
	}
	for range fightLimit {
		repaired()
	}
	force, err := f.enter(id, now)
	require.NoError(t, err)
	require.False(t, force, "the server is asked who it is")
	theirs := []Conflict{{Field: ".data.key", Manager: "somebody"}}
	action, err := f.leave(id, now, Failed, &ConflictError{theirs})
	require.Equal(t, Refused, action)
	require.Equal(t, &FightError{Repairs: fightLimit, Conflicts: theirs}, err)

	repairs := fightLimit
	for _, delay := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute, 5 * time.Minute} {
		now = now.Add(delay - 1)
		_, err = f.enter(id, now)
		require.Equal(t, &FightError{Repairs: repairs, Conflicts: theirs}, err, "%v", delay)
		now = now.Add(1)
		repaired()
		repairs++
	}

	// Ten minutes without a repair end it.
	f.forget(now.Add(fightWindow-1), &Set{ids: map[ID]bool{id: true}})
	require.Len(t, f.by, 1)
	now = now.Add(fightWindow)
	for range fightLimit {
		repaired()
	}
	f.forget(now.Add(fightWindow), &Set{ids: map[ID]bool{id: true}})
	require.Empty(t, f.by)
	repaired()
	f.forget(now, &Set{})
	require.Empty(t, f.by, "it is no longer wanted")
}

func TestAFightOverWhatNobodyOwnsIsHeldOffToo(t *testing.T) {
	t.Parallel()
	var f fights
	id := ID{Kind: "ConfigMap", Name: "a"}
	now := time.Unix(0, 0)
	for range fightLimit + 1 {
		_, err := f.enter(id, now)
		require.NoError(t, err)
	}
	action, err := f.leave(id, now, Updated, nil)
	require.NoError(t, err)
	require.Equal(t, Updated, action, "nothing was in the way")
	_, err = f.enter(id, now.Add(firstDelay-1))
	require.ErrorContains(t, err, "no other manager owns what was changed")
	force, err := f.enter(id, now.Add(firstDelay))
	require.NoError(t, err)
	require.True(t, force)
}

func TestWakesThatNoLongerCountAreDropped(t *testing.T) {
	t.Parallel()
	w := wakes{}
	now := time.Unix(0, 0)
	for i := range 2000 {
		w.allow(name{name: fmt.Sprint(i)}, now)
	}
	w.allow(name{name: "next"}, now.Add(wakeWindow-1))
	require.Len(t, w, 2001)
	w.allow(name{name: "last"}, now.Add(wakeWindow))
	require.Len(t, w, 2)
}

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
		require.Equal(t, test.want, immutable(test.err), name)
	}
}

func TestWhatIsAboutTheObjectLasts(t *testing.T) {
	t.Parallel()
	kind := schema.GroupResource{Resource: "configmaps"}
	for name, test := range map[string]struct {
		result Result
		want   bool
	}{
		"created":            {Result{Action: Created}, false},
		"skipped":            {Result{Action: Skipped}, true},
		"invalid":            {Result{Action: Failed, Err: fmt.Errorf("x: %w", apierrors.NewInvalid(schema.GroupKind{}, "a", nil))}, true},
		"unreadable":         {Result{Action: Failed, Err: apierrors.NewBadRequest("unknown field")}, true},
		"somebody else's":    {Result{Action: Refused, Err: ErrNotOurs}, true},
		"in conflict":        {Result{Action: Refused, Err: &ConflictError{}}, true},
		"too large":          {Result{Action: Failed, Err: apierrors.NewRequestEntityTooLargeError("limit")}, true},
		"too large for etcd": {Result{Action: Failed, Err: errors.New("etcdserver: request is too large")}, true},
		"not authorized":     {Result{Action: Failed, Err: apierrors.NewForbidden(kind, "a", nil)}, false},
		"busy":               {Result{Action: Failed, Err: apierrors.NewTooManyRequests("", 1)}, false},
		"terminating":        {Result{Action: Waiting, Err: ErrTerminating}, false},
	} {
		require.Equal(t, test.want, lasting(test.result), name)
	}
}
