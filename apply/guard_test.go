package apply //nolint:testpackage // plans are given

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// remembered is a GuardMemory that outlives a guard.
type remembered struct {
	data   []byte
	saves  int
	broken error
}

func (r *remembered) version() string {
	if r.saves == 0 {
		return ""
	}
	return fmt.Sprint(r.saves)
}

func (r *remembered) Load(context.Context) ([]byte, string, error) {
	return r.data, r.version(), r.broken
}

func (r *remembered) Save(_ context.Context, data []byte, version string) (string, error) {
	if r.broken != nil || version != r.version() {
		return "", errors.Join(r.broken, fmt.Errorf("version %q, not %q", r.version(), version))
	}
	r.data, r.saves = data, r.saves+1
	return r.version(), nil
}

// byService makes all objects in a namespace one unit.
func byService(o Observed) string { return o.ID.Namespace }

// lacking is a plan that deletes six objects of each service.
func lacking(services ...string) *prunePlan {
	plan := &prunePlan{}
	for _, service := range services {
		for i := range 6 {
			plan.due = append(plan.due, Observed{ID: ID{Kind: "ConfigMap", Namespace: service, Name: fmt.Sprint(i)}})
		}
	}
	return plan
}

func TestAUnitThatIsMadeAgainAndAgainRaisesNoLimit(t *testing.T) {
	t.Parallel()
	g := Guard{Unit: byService}
	exists := map[string]bool{"preview": true}
	for i := range 40 {
		exists[fmt.Sprintf("service-%02d", i)] = true
	}
	preview := func(o Observed) bool { return o.ID.Namespace == "preview" }
	for range 100 {
		_, err := g.hold(t.Context(), lacking("preview"), having(exists), preview, "", true)
		require.NoError(t, err)
		_, err = g.hold(t.Context(), lacking(), having(exists), preview, "", true) // it is made again
		require.NoError(t, err)
	}
	set := lacking("service-00", "service-01", "service-02", "service-03", "service-04", "service-05")
	_, err := g.hold(t.Context(), set, having(exists), nil, "", true)
	over, held := errors.AsType[*LimitError](err)
	require.True(t, held, "%v", err)
	require.Equal(t, 41, over.Owned)
	require.Equal(t, 5, over.Limit)
}

// owns is the census of so many units, of which these are still stated.
func owns(number int, stated ...string) func() census {
	c := census{stated: map[string]bool{}, number: number}
	for _, unit := range stated {
		c.stated[unit] = true
	}
	return func() census { return c }
}

func TestAGuardCountsUnitsAndNotObjects(t *testing.T) {
	t.Parallel()
	g := Guard{Unit: byService}
	plan := lacking("a", "b", "c", "d", "e")
	held, err := g.hold(t.Context(), plan, owns(5), nil, "", true)
	require.NoError(t, err)
	require.Empty(t, held)
	require.Len(t, plan.due, 30, "five services go, whatever the number of their objects")
	held, err = g.hold(t.Context(), lacking("f"), owns(1), nil, "", true)
	require.EqualError(t, err, "1 of 6 units are absent, and 5 were deleted within 1h0m0s; the limit is 5, so these are held: f")
	require.Len(t, held.IDs(), 6)
	require.Equal(t, []string{"f"}, unitsOf(held))
	require.Equal(t, "1 of 6 units are absent, and 5 were deleted within 1h0m0s; the limit is 5", held.Units[0].Reason)
}

func unitsOf(held Held) (units []string) {
	for _, u := range held.Units {
		units = append(units, u.Unit)
	}
	return units
}

func TestAGuardHoldsASlowLossAlsoOverARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory := &remembered{}
		g := &Guard{Unit: byService, Memory: memory}
		gone := 0
		for i := range 20 {
			var due []string
			for j := gone; j <= i; j++ {
				due = append(due, fmt.Sprintf("service-%02d", j))
			}
			plan := lacking(due...)
			_, err := g.hold(t.Context(), plan, owns(20-gone), nil, "", true)
			if err == nil {
				gone = i + 1
			}
			require.Equal(t, err != nil, len(plan.due) == 0)
			if i == 2 {
				g = &Guard{Unit: byService, Memory: memory} // another process
			}
			time.Sleep(3 * time.Second)
		}
		require.Equal(t, 5, gone)
		require.Equal(t, 6, memory.saves, "nothing is written when nothing is deleted and nothing more is held")

		time.Sleep(2 * time.Hour)
		g = &Guard{Unit: byService, Memory: memory}
		_, err := g.hold(t.Context(), lacking("service-05"), owns(15), nil, "", true)
		require.ErrorContains(t, err, "so these are held: service-05", "time is no approval, a restart neither")
		grace := lacking()
		grace.pending = 6
		_, err = g.hold(t.Context(), grace, owns(15), nil, "", true)
		require.NoError(t, err)
		_, err = g.hold(t.Context(), lacking("service-05"), owns(15), nil, "", true)
		require.ErrorContains(t, err, "so these are held: service-05", "it was in its grace again, after a restart")
		_, err = g.hold(t.Context(), lacking(), owns(15), nil, "", true)
		require.NoError(t, err, "all that was held is desired again")
		time.Sleep(2 * time.Hour)
		_, err = g.hold(t.Context(), lacking("late"), owns(15), nil, "", true)
		require.NoError(t, err, "the window has passed")
	})
}

// TestAnApprovalIsNotForAnObjectThatIsMadeAgain has an object that is deleted by an approval,
// made again under its name, and lost again.
func TestAnApprovalIsNotForAnObjectThatIsMadeAgain(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		memory := &remembered{}
		g := &Guard{Memory: memory, Absent: Limit{Count: -1}}
		one := func(uid types.UID, others ...Observed) *prunePlan {
			return &prunePlan{due: append(others, Observed{ID: ID{Kind: "ConfigMap", Namespace: "shop", Name: "y1"}, UID: uid})}
		}
		held, err := g.hold(t.Context(), one("first"), owns(3), nil, "", true)
		require.ErrorContains(t, err, "so these are held")
		plan := one("first")
		_, err = g.hold(t.Context(), plan, owns(3), nil, held.Digest, true)
		require.NoError(t, err)
		require.Len(t, plan.due, 1)
		if restart {
			g = &Guard{Memory: memory, Absent: Limit{Count: -1}}
		}
		plan = one("first")
		_, err = g.hold(t.Context(), plan, owns(3), nil, "", true)
		require.NoError(t, err, "its deletion goes on")
		require.Len(t, plan.due, 1)
		if restart {
			g = &Guard{Memory: memory, Absent: Limit{Count: -1}}
		}
		plan = one("second")
		held, err = g.hold(t.Context(), plan, owns(3), nil, "", true)
		require.ErrorContains(t, err, "so these are held: ConfigMap/shop/y1", "restarted: %t", restart)
		require.Empty(t, plan.due)
		require.Len(t, held.IDs(), 1)
	}
}

// TestAnApprovalOfAReleaseIsNoneOfADeletion asks for each before and after the other is approved.
func TestAnApprovalOfAReleaseIsNoneOfADeletion(t *testing.T) {
	t.Parallel()
	released := func(Observed) bool { return true }
	modes := map[string]prunePlan{"delete": {}, "release": {orphan: released}, "cascade": {propagation: "Orphan"}}
	for approved := range modes {
		for asked, mode := range modes {
			if asked == approved {
				continue
			}
			memory := &remembered{}
			hold := func(mode prunePlan, approved string) (*prunePlan, Held, error) {
				g := &Guard{Memory: memory, Absent: Limit{Count: -1}}
				mode.due = []Observed{{ID: ID{Kind: "Secret", Namespace: "shop", Name: "s"}, UID: "u"}}
				held, err := g.hold(t.Context(), &mode, owns(3), nil, approved, true)
				return &mode, held, err
			}
			_, held, err := hold(modes[approved], "")
			require.Error(t, err)
			plan, _, err := hold(mode, held.Digest)
			require.ErrorContains(t, err, "the held set has changed", "%s is approved, and %s asked for", approved, asked)
			require.Empty(t, plan.due)
			_, _, err = hold(modes[approved], held.Digest)
			require.NoError(t, err)
			if approved == "release" || asked == "release" {
				plan, _, err = hold(mode, "")
				require.Error(t, err, "%s was approved and may go on, and %s is asked for", approved, asked)
				require.Empty(t, plan.due)
			}
		}
	}
}

func TestAGuardLetsShrinkAndTakesWhatIsNamedForAnOrder(t *testing.T) {
	t.Parallel()
	g := Guard{Unit: byService, Absent: Limit{Count: -1}, Named: Limit{Count: 2}}
	gone := func(o Observed) bool { return strings.HasPrefix(o.ID.Namespace, "gone") }
	plan := lacking("a", "gone-1", "gone-2", "lost")
	held, err := g.hold(t.Context(), plan, owns(9, "a"), gone, "", true)
	var over *LimitError
	require.ErrorAs(t, err, &over)
	require.Equal(t, &LimitError{Units: []string{"lost"}, Limit: 0, Owned: 9, Window: time.Hour, Digest: held.Digest}, over)
	require.Len(t, held.IDs(), 6)
	require.Len(t, plan.due, 18, "one service shrinks, two are named")

	_, err = g.hold(t.Context(), lacking("gone-2"), owns(9), gone, "", true)
	require.NoError(t, err, "a deletion in progress continues")
	_, err = g.hold(t.Context(), lacking("gone-3"), owns(9), gone, "", true)
	require.EqualError(
		t,
		err,
		"1 of 11 units are named as deleted, and 2 were deleted within 1h0m0s; the limit is 2, so these are held: gone-3",
	)
	_, err = (&Guard{Unit: byService}).hold(
		t.Context(),
		lacking(strings.Split("gone1 gone2 gone3 gone4 gone5 gone6", " ")...),
		owns(6),
		gone,
		"",
		true,
	)
	require.NoError(t, err, "without a limit of its own, an order is an order")
}

func TestAUnitThatComesBackCountsAgain(t *testing.T) {
	t.Parallel()
	g := Guard{Unit: byService, Absent: Limit{Count: 1}}
	_, err := g.hold(t.Context(), lacking("a"), owns(3), nil, "", true)
	require.NoError(t, err)
	_, err = g.hold(t.Context(), lacking(), owns(3), nil, "", true)
	require.NoError(t, err)
	_, err = g.hold(t.Context(), lacking("a"), owns(3), nil, "", true)
	require.ErrorContains(t, err, "1 were deleted")
}

func TestAGuardThatCannotRememberHolds(t *testing.T) {
	t.Parallel()
	memory := &remembered{broken: errors.New("no answer")}
	g := Guard{Unit: byService, Memory: memory}
	plan := lacking("a")
	held, err := g.hold(t.Context(), plan, owns(3), nil, "", true)
	require.ErrorContains(t, err, "no answer")
	require.Len(t, held.IDs(), 6)
	require.Equal(t, "earlier deletions: no answer", held.Units[0].Reason)
	require.Empty(t, plan.due)
	memory.broken = nil
	memory.data, memory.saves = []byte("}"), 1
	_, err = g.hold(t.Context(), lacking("a"), owns(3), nil, "", true)
	require.ErrorContains(t, err, "it cannot be read")
}

// overtaken is a memory that another program replaces after each Load.
type overtaken struct{ remembered }

func (o *overtaken) Load(ctx context.Context) ([]byte, string, error) {
	data, version, err := o.remembered.Load(ctx)
	o.saves++
	return data, version, err
}

func TestAGuardHoldsAlsoWithinTheLimitWhatItCannotRecord(t *testing.T) {
	t.Parallel()
	g := Guard{Unit: byService, Memory: &overtaken{}}
	for range 2 {
		plan := lacking("a")
		held, err := g.hold(t.Context(), plan, owns(3), nil, "", true)
		require.ErrorContains(t, err, "they cannot be recorded")
		require.Len(t, held.IDs(), 6)
		require.Empty(t, held.Digest, "no approval can help")
		require.Empty(t, plan.due)
	}
}

func TestADryRunOfAGuardNotesNothing(t *testing.T) {
	t.Parallel()
	memory := &remembered{}
	g := Guard{Unit: byService, Absent: Limit{Count: 1}, Memory: memory}
	for range 3 {
		_, err := g.hold(t.Context(), lacking("a"), owns(3), nil, "", false)
		require.NoError(t, err)
	}
	_, err := g.hold(t.Context(), lacking("b"), owns(3), nil, "", true)
	require.NoError(t, err)
	require.Equal(t, 1, memory.saves)
}

func TestANamespaceStaysWithWhatIsHeldInIt(t *testing.T) {
	t.Parallel()
	g := Guard{Unit: func(o Observed) string {
		if o.ID.Kind == "Namespace" {
			return "kept" // the set states something else of it
		}
		return o.ID.Namespace
	}, Absent: Limit{Count: -1}}
	plan := lacking("shop")
	plan.due = append(plan.due, Observed{ID: ID{Kind: "Namespace", Name: "shop"}}, Observed{ID: ID{Kind: "Namespace", Name: "empty"}})
	held, err := g.hold(t.Context(), plan, owns(3, "kept"), nil, "", true)
	require.Error(t, err)
	require.Len(t, held.IDs(), 7)
	require.Equal(t, []string{"kept", "shop"}, unitsOf(held))
	require.Equal(t, "it contains objects that are held", held.Units[0].Reason)
	require.Equal(t, []Observed{{ID: ID{Kind: "Namespace", Name: "empty"}}}, plan.due)
}

func TestAnApprovalIsForExactlyTheHeldSet(t *testing.T) {
	t.Parallel()
	memory := &remembered{}
	start := func() *Guard { return &Guard{Unit: byService, Absent: Limit{Count: 1}, Memory: memory} }
	g := start()
	hold := func(approved string, services ...string) (Held, *LimitError, int) {
		plan := lacking(services...)
		held, err := g.hold(t.Context(), plan, owns(9), nil, approved, true)
		over, _ := errors.AsType[*LimitError](err)
		require.Equal(t, err == nil, over == nil, "%v", err)
		return held, over, len(plan.due)
	}
	first, _, _ := hold("", "a", "b")
	require.Equal(t, []string{"a", "b"}, unitsOf(first))
	second, over, due := hold(first.Digest, "a", "b", "c")
	require.Zero(t, due, "one unit more is not covered")
	require.Equal(t, []string{first.Digest, second.Digest}, []string{over.Refused, over.Digest})
	require.ErrorContains(t, over, fmt.Sprintf("the approved digest is %q, must be %q: the held set has changed", first.Digest, second.Digest))
	require.NotEqual(t, first.Digest, second.Digest)

	g = start()
	_, _, due = hold(second.Digest, "a", "b", "c")
	require.Equal(t, 18, due, "after a restart, too")
	g = start()
	_, over, due = hold("", "a", "b", "c")
	require.Nil(t, over, "what is approved continues after another restart, without the approval")
	require.Equal(t, 18, due)
	_, over, _ = hold("", "b")
	require.Nil(t, over)
	_, over, _ = hold("", "d")
	require.Nil(t, over, "what was approved does not count")
	_, over, _ = hold(second.Digest, "b", "e")
	require.NotNil(t, over, "the approval is for what was there then")
	require.Equal(t, second.Digest, over.Refused)
}

// An approval that is not used is void once nothing is held, also when the same objects are
// absent once more, and over a restart.
func TestAnApprovalEndsWithItsHold(t *testing.T) {
	t.Parallel()
	memory := &remembered{}
	start := func() *Guard { return &Guard{Unit: byService, Absent: Limit{Count: 1}, Memory: memory} }
	g := start()
	hold := func(approved string, note bool, services ...string) (Held, error) {
		return g.hold(t.Context(), lacking(services...), owns(9), nil, approved, note)
	}
	planned, err := hold("", false, "a", "b")
	require.Error(t, err)
	require.Empty(t, planned.Digest, "nothing that only a plan shows can be approved")
	first, err := hold("", true, "a", "b")
	require.Error(t, err)
	require.Regexp(t, "^[a-z2-7]{20}$", first.Digest, "a person pastes it as an argument; a dash at its beginning would be a flag")
	planned, err = hold("", false, "a", "b")
	require.Error(t, err)
	require.Equal(t, first.Digest, planned.Digest)

	g = start()
	_, err = hold(first.Digest, true) // all of them have come back
	require.NoError(t, err)
	second, err := hold(first.Digest, true, "a", "b")
	require.Error(t, err)
	require.NotEqual(t, first.Digest, second.Digest)
	require.Equal(t, unitsOf(first), unitsOf(second))
	_, err = hold(first.Digest, true, "a", "b")
	require.ErrorContains(t, err, "the held set has changed")
	g = start()
	_, err = hold(second.Digest, true, "a", "b")
	require.NoError(t, err)
}

func TestAGuardHoldsOnForWhatIsInItsGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &Guard{Unit: byService, Absent: Limit{Count: 1}}
		_, err := g.hold(t.Context(), lacking("a", "b"), owns(9), nil, "", true)
		require.Error(t, err)
		time.Sleep(2 * time.Hour)
		for range 2 { // one has come back, and the other began its grace again
			grace := lacking()
			grace.pending = 6
			_, err = g.hold(t.Context(), grace, owns(9), nil, "", true)
			require.NoError(t, err)
		}
		_, err = g.hold(t.Context(), lacking("a"), owns(9), nil, "", true)
		require.ErrorContains(t, err, "0 were deleted within 1h0m0s; the limit is 1, "+
			"which they were above when the hold began, and time releases nothing, so these are held: a")
	})
}

func TestAnObjectThatIsMadeAgainIsNotTheApprovedOne(t *testing.T) {
	t.Parallel()
	g := Guard{Absent: Limit{Count: -1}}
	plan := func(uid types.UID) *prunePlan {
		return &prunePlan{due: []Observed{{ID: ID{Kind: "ConfigMap", Namespace: "shop", Name: "a"}, UID: uid}}}
	}
	held, err := g.hold(t.Context(), plan("1"), owns(1), nil, "", true)
	require.Error(t, err)
	_, err = g.hold(t.Context(), plan("2"), owns(1), nil, held.Digest, true)
	require.ErrorContains(t, err, "the held set has changed")
}

func TestAFileRemembersOverARestart(t *testing.T) {
	t.Parallel()
	file := &FileMemory{Path: filepath.Join(t.TempDir(), "state", "deletions.json")}
	start := func() *Guard { return &Guard{Unit: byService, Absent: Limit{Count: 1}, Memory: file} }
	_, err := start().hold(t.Context(), lacking("a"), owns(3), nil, "", true)
	require.NoError(t, err)
	_, err = start().hold(t.Context(), lacking("b"), owns(3), nil, "", true)
	require.ErrorContains(t, err, "1 were deleted")
	_, err = file.Save(t.Context(), nil, "older")
	require.ErrorContains(t, err, "was changed by another program")
	require.NoError(t, os.WriteFile(file.Path, []byte("}"), 0o600))
	_, err = start().hold(t.Context(), lacking("c"), owns(3), nil, "", true)
	require.ErrorContains(t, err, "it cannot be read")
}

// What carries our labels and no field of ours is never deleted, so it raises no limit.
func TestAGuardCountsOnlyUnitsThatAreOurs(t *testing.T) {
	t.Parallel()
	s := newStage(t, program, configMapKind)
	for i := range 10 {
		s.show(mapID(fmt.Sprint(i)), func(m *metav1.PartialObjectMetadata) {
			switch {
			case i < 6:
				m.ManagedFields[0].Manager = "another"
			case i < 8:
				m.DeletionTimestamp = new(metav1.Now())
			}
		})
	}
	guard := &Guard{Absent: Limit{Percent: 50}}
	_, err := s.Prune(t.Context(), s.set(SetOptions{}), PruneOptions{Complete: true, AllowEmpty: true, Guard: guard})
	require.ErrorContains(t, err, "2 of 2 units are absent, and 0 were deleted within 1h0m0s; the limit is 1")
	require.Empty(t, s.deleted)
}

// A service that loses its route, or its autoscaler, is no service that is gone, also in a set that is large.
func TestAUnitThatShrinksDoesNotCount(t *testing.T) {
	t.Parallel()
	for _, named := range []bool{false, true} {
		s := newStage(t, program, deploymentKind, configMapKind)
		web := ID{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web-1"}
		stated := []ID{web}
		for n := range 2 * maxScanned {
			stated = append(stated, mapID(fmt.Sprint("other-", n)))
		}
		for _, id := range append(stated, mapID("web-2")) {
			s.show(id, nil)
		}
		none := Limit{Count: -1}
		options := PruneOptions{
			Complete: true,
			Guard:    &Guard{Unit: byName, Absent: none, Named: none},
			Gone:     func(Observed) bool { return named },
		}
		report, err := s.Prune(t.Context(), s.set(SetOptions{}, stated...), options)
		require.NoError(t, err)
		require.Equal(t, []Result{{ID: mapID("web-2"), Action: Deleted}}, report.Results)
	}
}
