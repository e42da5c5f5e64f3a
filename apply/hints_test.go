package apply //nolint:testpackage // looks into a pass, on a view without a server

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
)

// found are the names of the items that a pass sees.
func found(t *testing.T, a *Applier, set *Set) (names []string) {
	t.Helper()
	p, err := a.begin(t.Context(), set)
	require.NoError(t, err)
	defer p.done()
	for i := range set.items {
		if v := p.decide(&set.items[i]); v.look.Found {
			names = append(names, set.items[i].id.Name)
		}
	}
	return names
}

// desired are the objects of a set.
func desired(set *Set) []*unstructured.Unstructured {
	objects := make([]*unstructured.Unstructured, len(set.items))
	for i := range objects {
		objects[i] = &unstructured.Unstructured{Object: set.items[i].body.Decode()}
	}
	return objects
}

func TestASetThatTwoLivesShareIsLookedUpInEach(t *testing.T) {
	t.Parallel()
	set := benchmarkSet(t, 3)
	whole := benchmarkApplier(t, set)
	less := benchmarkApplier(t, set)
	kind := less.Live.registry.views()[0]
	require.NoError(t, kind.Sink("").Drop(benchmarkObjects(set)[1]))
	for range 3 {
		require.Equal(t, []string{"web-00000", "web-00001", "web-00002"}, found(t, whole, set))
		require.Equal(t, []string{"web-00000", "web-00002"}, found(t, less, set))
	}
}

func TestTheParentOfAnApplySetHasNoHintOfAnotherObject(t *testing.T) {
	t.Parallel()
	p := &pass{hints: make([]view.Hint, 2)}
	require.Nil(t, p.hint(&item{}))
	require.Same(t, &p.hints[0], p.hint(&item{number: 1}))
	require.Same(t, &p.hints[1], p.hint(&item{number: 2}))
}

// TestAPruneAllocatesForWhatItDeletes holds what a prune under a guard costs: it counts the objects
// that stay, and has no list of them.
func TestAPruneAllocatesForWhatItDeletes(t *testing.T) { //nolint:paralleltest // counts allocations
	allocated := func(n int) float64 {
		set := benchmarkSet(t, n)
		a := benchmarkApplier(t, set)
		fewer, err := NewSet(set.owner, desired(set)[:n-1], SetOptions{})
		require.NoError(t, err)
		require.NoError(t, a.accept(fewer))
		views := a.Live.registry.views()
		return testing.AllocsPerRun(10, func() {
			var guard Guard
			plan, _ := a.planPrune(fewer, PruneOptions{Complete: true}, views, time.Now())
			held, err := a.restrain(t.Context(), &plan, fewer, PruneOptions{Guard: &guard}, views, true)
			if err != nil || len(held.Units) > 0 || len(plan.due) != 1 || plan.owned != n {
				t.Errorf("%d due, %d owned, held %v, %v", len(plan.due), plan.owned, held, err)
			}
		})
	}
	require.InDelta(t, allocated(100), allocated(10_000), 20)
}

func TestAnObjectThatWasMadeAgainCountsOnceForAGuard(t *testing.T) {
	t.Parallel()
	const n = 10
	set := benchmarkSet(t, n)
	a := benchmarkApplier(t, set)
	views := a.Live.registry.views()
	guard := Guard{Absent: Limit{Count: 1}}
	without := func(gone int) error {
		fewer, err := NewSet(set.owner, desired(set)[gone:], SetOptions{})
		require.NoError(t, err)
		require.NoError(t, a.accept(fewer))
		plan, _ := a.planPrune(fewer, PruneOptions{Complete: true}, views, time.Now())
		_, err = a.restrain(t.Context(), &plan, fewer, PruneOptions{Guard: &guard}, views, true)
		return err
	}
	require.NoError(t, without(1))
	over, held := errors.AsType[*LimitError](without(2)) // the view still has the first
	require.True(t, held)
	require.Equal(t, 1, over.Before)
	require.Equal(t, n, over.Owned)
}
