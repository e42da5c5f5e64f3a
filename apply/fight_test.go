package apply //nolint:testpackage // time is given, not waited for

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestAFightIsAskedAboutAndThenLeftAloneForLongerAndLonger(t *testing.T) {
	t.Parallel()
	var f fights
	id := ID{Kind: "ConfigMap", Name: "a"}
	now := time.Unix(0, 0)
	repaired := func() {
		t.Helper()
		force, err := f.enter(id, now, false)
		require.NoError(t, err)
		require.True(t, force)
	}
	for range fightLimit {
		repaired()
	}
	force, err := f.enter(id, now, false)
	require.NoError(t, err)
	require.False(t, force, "the server is asked who it is")
	theirs := []Conflict{{Field: ".data.key", Manager: "somebody"}}
	require.Zero(t, f.contested(now), "the last repair may hold")
	err = f.leave(id, now, &ConflictError{theirs})
	require.Equal(t, &FightError{Repairs: fightLimit, Retry: 30 * time.Second, Conflicts: theirs}, err)

	repairs := fightLimit
	for _, delay := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute, 5 * time.Minute} {
		now = now.Add(delay - 1)
		_, err = f.enter(id, now, false)
		require.Equal(t, &FightError{Repairs: repairs, Retry: 1, Conflicts: theirs}, err, "%v", delay)
		now = now.Add(1)
		repaired()
		repairs++
		require.Equal(t, 1, f.contested(now.Add(fightWindow-1)))
	}

	// Ten minutes without a repair end it.
	now = now.Add(fightWindow)
	require.Zero(t, f.contested(now))
	for range fightLimit {
		repaired()
	}
	_, _ = f.enter(id, now, false)
	require.NoError(t, f.leave(id, now, nil))
	require.Equal(t, 1, f.contested(now))
	f.forget(id)
	require.Zero(t, f.contested(now), "it is gone")
	require.Empty(t, f.by)
	for range 5 * minSwept {
		now = now.Add(time.Second)
		_, _ = f.enter(ID{Kind: "ConfigMap", Name: now.String()}, now, false)
	}
	require.Less(t, len(f.by), 3*minSwept, "a fight that is over is dropped")
}

func TestAFightOverWhatNobodyOwnsIsHeldOffToo(t *testing.T) {
	t.Parallel()
	var f fights
	id := ID{Kind: "ConfigMap", Name: "a"}
	now := time.Unix(0, 0)
	for range fightLimit + 1 {
		_, err := f.enter(id, now, false)
		require.NoError(t, err)
	}
	require.NoError(t, f.leave(id, now, nil), "nothing was in the way")
	_, err := f.enter(id, now.Add(firstDelay-1), false)
	require.ErrorContains(t, err, "no other manager owns the changed fields")
	force, err := f.enter(id, now.Add(firstDelay), false)
	require.NoError(t, err)
	require.True(t, force)
}

func TestARepairThatWasNotMadeDoesNotCount(t *testing.T) {
	t.Parallel()
	var f fights
	id, now := ID{Kind: "ConfigMap", Name: "a"}, time.Unix(0, 0)
	f.failed(id) // it is known of no fight
	for range 2 * fightLimit {
		force, err := f.enter(id, now, true)
		require.NoError(t, err)
		require.True(t, force)
		f.failed(id)
	}
	for range fightLimit {
		_, err := f.enter(id, now, true)
		require.NoError(t, err)
	}
	_, err := f.enter(id, now, true)
	require.EqualError(t, err, "deleted after each of 5 creations")
	now = now.Add(firstDelay)
	force, err := f.enter(id, now, true)
	require.NoError(t, err)
	require.True(t, force)
	f.failed(id)
	_, err = f.enter(id, now.Add(firstDelay), true)
	require.EqualError(t, err, "deleted after each of 5 creations", "its pause goes on, and what was fought over counts")
}

func TestAFightOverDeletionsNamesWhatMayDelete(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		object map[string]any
		want   string
	}{
		"a job that goes when it is done": {
			map[string]any{"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"name": "a", "namespace": "x"}, "spec": map[string]any{"ttlSecondsAfterFinished": int64(0)}},
			"deleted after each of 5 creations; spec.ttlSecondsAfterFinished removes it",
		},
		"an owner": {
			map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{
				"name": "a", "namespace": "x", "ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "Secret", "name": "s", "uid": "u"}},
			}},
			"deleted after each of 5 creations; metadata.ownerReferences name Secret s, which may be gone",
		},
		"neither": {
			map[string]any{"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"name": "a", "namespace": "x"}, "spec": map[string]any{}},
			"deleted after each of 5 creations",
		},
		"a spec of another form": {
			map[string]any{"apiVersion": "example.com/v1", "kind": "Note", "metadata": map[string]any{"name": "a", "namespace": "x"}, "spec": "text"},
			"deleted after each of 5 creations",
		},
	} {
		set, err := NewSet(program, []*unstructured.Unstructured{{Object: test.object}}, SetOptions{})
		require.NoError(t, err)
		fight := &FightError{Repairs: 5, Deleted: true, Hint: hintOf(&set.items[0])}
		require.EqualError(t, fight, test.want, name)
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
		"undeclared":         {Result{Action: Failed, Err: apierrors.NewInternalError(errors.New(".spec.old: field not declared in schema"))}, true},
		"another owner's":    {Result{Action: Refused, Err: ErrNotOurs}, true},
		"in conflict":        {Result{Action: Refused, Err: &ConflictError{}}, true},
		"too large":          {Result{Action: Failed, Err: apierrors.NewRequestEntityTooLargeError("limit")}, true},
		"too large for etcd": {Result{Action: Failed, Err: errors.New("etcdserver: request is too large")}, true},
		"not authorized":     {Result{Action: Failed, Err: apierrors.NewForbidden(kind, "a", nil)}, true},
		"busy":               {Result{Action: Failed, Err: apierrors.NewTooManyRequests("", 1)}, false},
		"terminating":        {Result{Action: Waiting, Err: ErrTerminating}, false},
	} {
		require.Equal(t, test.want, lasting(test.result), name)
	}
}
