package apply //nolint:testpackage // time is given, not waited for

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/diff"
)

func TestASetbackStandsUntilSomethingChangesOrItsDelayIsOver(t *testing.T) {
	t.Parallel()
	var a Applier
	now := time.Unix(0, 0)
	it, seen := &item{id: ID{Kind: "ConfigMap", Name: "a"}, hash: diff.Sum{1}}, diff.Sum{2}
	result := Result{it.id, Failed, apierrors.NewInvalid(schema.GroupKind{}, "a", nil)}
	stands := func(it *item, seen diff.Sum, at time.Duration) bool {
		_, ok := a.standing(it, seen, now.Add(at))
		return ok
	}
	require.False(t, stands(it, seen, 0))
	a.settle(it, seen, result, now)
	require.True(t, stands(it, seen, firstDelay-1))
	require.False(t, stands(it, seen, firstDelay))
	require.False(t, stands(&item{id: it.id, hash: diff.Sum{9}}, seen, 0), "something else is wanted")
	require.False(t, stands(it, diff.Sum{9}, 0), "the live object was changed")

	for range 10 {
		a.settle(it, seen, result, now)
	}
	require.True(t, stands(it, seen, mostDelay-1))
	require.False(t, stands(it, seen, mostDelay))
	a.Adoption = AdoptForeign
	require.False(t, stands(it, seen, 0))
	a.Adoption = RefuseForeign

	a.settle(it, seen, Result{it.id, Failed, errors.New("connection reset")}, now)
	require.False(t, stands(it, seen, 0), "that may pass at any moment")
	a.settle(it, seen, Result{it.id, Refused, ErrNotOurs}, now)
	require.True(t, stands(it, seen, firstDelay-1), "the delay starts anew")
	a.forget(&Set{})
	require.Empty(t, a.setbacks)
}
