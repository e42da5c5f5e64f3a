package operator //nolint:testpackage // errors are given

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

func TestReadinessNamesAStatusThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	var u unrecorded
	a, b := kube.KeyOf(shopIn("a")), kube.KeyOf(shopIn("b"))
	u.note(b, errors.New("no answer"))
	require.NoError(t, u.err(), "it may pass")
	u.note(b, fmt.Errorf("b: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "shops"}, "s", errors.New("no right"))))
	require.ErrorContains(t, u.err(), "no right")
	u.note(a, fmt.Errorf("a: %w", kube.ErrDropped))
	require.EqualError(t, u.err(), "a: "+kube.ErrDropped.Error()+" (and 1 more)")
	u.note(b, nil)
	require.EqualError(t, u.err(), "a: "+kube.ErrDropped.Error())
	u.note(a, fmt.Errorf("a: %w", apierrors.NewNotFound(schema.GroupResource{Resource: "shops"}, "s")))
	require.ErrorContains(t, u.err(), "not found")
	u.note(a, errors.New("no answer"))
	require.ErrorContains(t, u.err(), "not found", "nothing shows that it is written again")
	u.note(a, nil)
	require.NoError(t, u.err())
}

// An object that is gone has no status.
func TestADeletedObjectIsNotNamed(t *testing.T) {
	t.Parallel()
	w, object := worker(t, &rest.Config{}), shopIn("x")
	w.operator.working.Store(w)
	w.unrecorded.note(kube.KeyOf(object), kube.ErrDropped)
	_, err := w.operator.Synced()
	require.ErrorIs(t, err, kube.ErrDropped)
	_, err = w.reconcile(t.Context(), kube.KeyOf(object), nil)
	require.NoError(t, err)
	_, err = w.operator.Synced()
	require.NotErrorIs(t, err, kube.ErrDropped)
}

// A deletion that takes long is said, once it does.
func TestADeletionThatTakesLongIsNoticed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, object := worker(t, &rest.Config{}), shopIn("x")
		key := kube.KeyOf(object)
		for range 2 {
			require.False(t, w.ending.takes(key))
			time.Sleep(endingLong - time.Nanosecond)
			require.False(t, w.ending.takes(key))
			time.Sleep(time.Nanosecond)
			require.True(t, w.ending.takes(key))
			_, err := w.reconcile(t.Context(), key, nil) // it has gone, and comes again
			require.NoError(t, err)
		}
	})
}
