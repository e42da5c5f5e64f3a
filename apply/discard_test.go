package apply //nolint:testpackage // views show what a test gives them

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/diff"
)

// whole lets everything go that a set does not state.
var whole = PruneOptions{Complete: true, AllowEmpty: true, Guard: &Guard{Absent: Limit{Percent: 100}}, DeleteForeign: true}

func unowned(m *metav1.PartialObjectMetadata) { m.ManagedFields = m.ManagedFields[:0] }

func dying(m *metav1.PartialObjectMetadata) {
	m.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
}

// inherited is what a controller makes with the labels of one of ours.
func inherited(m *metav1.PartialObjectMetadata) {
	yes := true
	m.ManagedFields[0].Manager = "controller"
	m.OwnerReferences = []metav1.OwnerReference{{Kind: "Service", Name: "web", UID: "uid-of-web", Controller: &yes}}
}

func TestKeepIsAskedAgainAboutAnObjectThatHasChanged(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change  func(*metav1.PartialObjectMetadata)
		deleted int
		action  Action
	}{
		"of no account":  {nil, 2, Deleted},
		"to be kept":     {func(m *metav1.PartialObjectMetadata) { m.Labels["keep"] = "yes" }, 1, Failed},
		"a successor":    {func(m *metav1.PartialObjectMetadata) { m.UID = "another" }, 1, Failed},
		"dying already":  {dying, 1, Deleted},
		"no longer ours": {unowned, 1, Failed},
		"another part's": {func(m *metav1.PartialObjectMetadata) { m.Labels["part"] = "q" }, 1, Failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			owner := program
			owner.PartLabel = "part"
			s := newStage(t, owner, configMapKind)
			show := func(change func(*metav1.PartialObjectMetadata)) {
				s.show(mapID("a"), func(m *metav1.PartialObjectMetadata) {
					if m.Labels["part"] = "p"; change != nil {
						change(m)
					}
				})
			}
			show(nil)
			var versions []string
			s.deletes = func(_ string, options metav1.DeleteOptions) error {
				versions = append(versions, *options.Preconditions.ResourceVersion)
				if len(versions) > 1 {
					return nil
				}
				show(test.change)
				return apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "a", errors.New("changed"))
			}
			options := whole
			options.Keep = func(o Observed) bool { return o.Label("keep") == "yes" }
			report, err := s.Prune(t.Context(), s.set(SetOptions{Part: "p"}), options)
			require.Equal(t, test.action == Failed, err != nil, "%v", err)
			require.Len(t, report.Results, 1)
			require.Equal(t, test.action, report.Results[0].Action)
			require.Equal(t, []string{"101", "102"}[:test.deleted], versions)
		})
	}
}

func TestADeletedObjectIsNotDeletedAgainAndCallsForNoPass(t *testing.T) {
	t.Parallel()
	s := newStage(t, program, configMapKind)
	drifts := 0
	s.Live.OnDrift = func(Observed) { drifts++ }
	gone := s.show(mapID("a"), nil)
	drifts = 0 // it is new to the view
	report, err := s.Prune(t.Context(), s.set(SetOptions{}), whole)
	require.NoError(t, err)
	require.Equal(t, 1, report.Remaining)
	for range 2 {
		report, err = s.Prune(t.Context(), s.set(SetOptions{}), whole)
		require.NoError(t, err)
		require.Equal(t, PruneReport{Remaining: 1}, report)
	}
	report, err = s.Delete(t.Context(), []ID{mapID("a")}, DeleteOptions{})
	require.NoError(t, err)
	require.Equal(t, PruneReport{Remaining: 1}, report)
	require.Equal(t, []string{"configmaps a"}, s.deleted)
	require.NoError(t, s.Live.registry.view(configMapKind).Sink("").Drop(gone))
	require.Zero(t, drifts, "its end is ours")
}

func TestADeletedObjectIsWaitedForBeforeItIsMadeAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t, program, configMapKind)
	set := s.set(SetOptions{}, mapID("a"), mapID("b"))
	current, changed := s.show(mapID("a"), nil), s.show(mapID("b"), nil)
	s.Live.registry.view(configMapKind).Wrote(current, set.items[0].hash)
	s.Live.registry.view(configMapKind).Wrote(changed, diff.Sum{1})
	_, err := s.Prune(t.Context(), s.set(SetOptions{}), whole)
	require.NoError(t, err)
	report, err := s.Apply(t.Context(), set)
	require.ErrorIs(t, err, ErrTerminating)
	require.Equal(t, 2, report.Count(Waiting), "as it was applied last, and differently desired")
	require.Empty(t, s.patched)
}

func TestADeletionEndsWhatIsRememberedOfTheObject(t *testing.T) {
	t.Parallel()
	s := newStage(t, program, configMapKind)
	woken := 0
	s.show(mapID("a"), nil)
	s.Live.OnDrift = func(Observed) { woken++ }
	now := time.Now()
	s.Live.rejections.note(attempt{id: mapID("a")}, Result{mapID("a"), Failed, apierrors.NewBadRequest("")}, now)
	for range fightLimit {
		_, err := s.Live.fights.enter(mapID("a"), now, false)
		require.NoError(t, err)
	}
	_, err := s.Prune(t.Context(), s.set(SetOptions{}), whole)
	require.NoError(t, err)
	s.Live.retryRejected(configMapKind, "shop", "")
	require.Zero(t, woken, "nothing waits for a cure")
	force, err := s.Live.fights.enter(mapID("a"), now, false)
	require.NoError(t, err)
	require.True(t, force, "a successor starts without a fight")
}

func TestASetThatAnotherOneHasReplacedDeletesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, program, configMapKind)
	older, newer := s.set(SetOptions{}, mapID("a")), s.set(SetOptions{}, mapID("a"), mapID("b"))
	s.show(mapID("a"), nil)
	for _, set := range []*Set{older, newer} {
		_, err := s.Apply(t.Context(), set)
		require.NoError(t, err)
	}
	s.show(mapID("b"), nil)
	_, err := s.Prune(t.Context(), older, whole)
	require.ErrorIs(t, err, ErrStalePlan, "b is stated by now")
	_, err = s.Plan(t.Context(), older, whole)
	require.ErrorIs(t, err, ErrStalePlan)
	require.Empty(t, s.deleted)
	_, err = s.Prune(t.Context(), older, PruneOptions{Complete: true, Keep: func(o Observed) bool { return o.ID.Name == "b" }})
	require.NoError(t, err, "nothing of the newer one is at risk")

	report, err := s.Prune(t.Context(), newer, whole)
	require.NoError(t, err)
	require.Empty(t, report.Results)
	_, err = s.Apply(t.Context(), older) // the desired state is the older one again
	require.NoError(t, err)
	_, err = s.Prune(t.Context(), older, whole)
	require.NoError(t, err)
	require.Equal(t, []string{"configmaps b"}, s.deleted)
}

func TestASetThatWasNeverAppliedIsTheNewest(t *testing.T) {
	t.Parallel()
	s := newStage(t, program, configMapKind)
	keep := s.set(SetOptions{}, mapID("a"))
	_, err := s.Apply(t.Context(), s.set(SetOptions{}, mapID("a"), mapID("b")))
	require.NoError(t, err)
	s.show(mapID("a"), nil)
	s.show(mapID("b"), nil)
	_, err = s.Prune(t.Context(), keep, whole)
	require.NoError(t, err)
	require.Equal(t, []string{"configmaps b"}, s.deleted)
}

func TestWhatTheSetStatesIsNeededBeforeItExists(t *testing.T) {
	t.Parallel()
	s := newStage(t, program, namespaceKind, crdKind, configMapKind, widgetKind)
	s.show(ID{Kind: "Namespace", Name: "shop"}, nil)
	s.show(ID{Kind: "Namespace", Name: "empty"}, nil)
	s.show(ID{Group: crdKind.Group, Kind: crdKind.Kind, Name: "widgets.example.com"}, nil)
	report, err := s.Prune(
		t.Context(),
		s.set(SetOptions{}, mapID("a"), ID{Group: "example.com", Kind: "Widget", Namespace: "other", Name: "w"}),
		whole,
	)
	require.ErrorIs(t, err, ErrNeeded)
	require.ErrorContains(t, err, "Namespace/shop: is still needed: ConfigMap/shop/a must stay")
	require.ErrorContains(t, err, "widgets.example.com: is still needed: Widget.example.com/other/w must stay")
	require.Len(t, report.Results, 3)
	require.Equal(t, []string{"namespaces empty"}, s.deleted)
}

func TestASetWithAnObjectOfUnknownNamePrunesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, program, configMapKind)
	s.show(mapID("a"), nil)
	nameless, err := NewSet(
		program,
		[]*unstructured.Unstructured{{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}},
		SetOptions{},
	)
	require.Error(t, err)
	_, err = s.Prune(t.Context(), nameless, whole)
	require.ErrorIs(t, err, ErrIncomplete)
	require.Empty(t, s.deleted)
}

func TestADeletionByNameIsOfOurObjectsOnly(t *testing.T) {
	t.Parallel()
	s := newStage(t, program, configMapKind)
	s.show(mapID("ours"), nil)
	s.show(mapID("copy"), unowned)
	s.show(mapID("dying"), dying)
	report, err := s.Delete(t.Context(), []ID{mapID("ours"), mapID("copy"), mapID("dying"), mapID("absent")}, DeleteOptions{})
	require.ErrorIs(t, err, ErrNotOurs)
	require.Equal(t, []string{"configmaps ours"}, s.deleted)
	require.Equal(t, 2, report.Remaining)
	require.Len(t, report.Results, 2)
	require.Equal(t, mapID("copy"), report.Results[0].ID)
	require.Equal(t, Refused, report.Results[0].Action)
}

func TestWhatIsWantedIsNoRemainder(t *testing.T) {
	t.Parallel()
	s := newStage(t, program, configMapKind)
	s.show(mapID("wanted"), dying)
	s.show(mapID("rest"), dying)
	report, err := s.Prune(t.Context(), s.set(SetOptions{}, mapID("wanted")), whole)
	require.NoError(t, err)
	require.Equal(t, PruneReport{Remaining: 1}, report)
}

func TestWhatControllersMadeIsNeitherUnprovenNorNeeds(t *testing.T) {
	t.Parallel()
	s := newStage(t, program, namespaceKind, configMapKind)
	s.show(ID{Kind: "Namespace", Name: "shop"}, nil)
	s.show(mapID("slice"), inherited)
	report, err := s.Prune(t.Context(), s.set(SetOptions{}), whole)
	require.NoError(t, err)
	require.Empty(t, report.Unproven)
	require.Equal(t, []string{"namespaces shop"}, s.deleted)

	s.deleted = nil
	s.show(ID{Kind: "Namespace", Name: "more"}, nil)
	s.show(ID{Kind: "ConfigMap", Namespace: "more", Name: "copy"}, unowned)
	report, err = s.Prune(t.Context(), s.set(SetOptions{}), whole)
	require.ErrorContains(t, err, "ConfigMap/more/copy must stay")
	require.Equal(t, []ID{{Kind: "ConfigMap", Namespace: "more", Name: "copy"}}, report.Unproven)
	require.Empty(t, s.deleted)
}

func TestTheParentOfAnApplySetIsNeverPruned(t *testing.T) {
	t.Parallel()
	owner := program
	owner.ApplySet = mapID("all")
	s := newStage(t, owner, configMapKind)
	s.parentShown("ConfigMap", "")
	s.show(mapID("a"), nil)
	_, err := s.Prune(t.Context(), s.set(SetOptions{}), whole)
	require.NoError(t, err)
	require.Equal(t, []string{"configmaps a"}, s.deleted)

	// A part goes, too, if the parent is an object that only sets can state.
	owner.ApplySet, owner.PartLabel = ID{Group: "example.com", Kind: "Widget", Name: "all"}, "part"
	s = newStage(t, owner, configMapKind, widgetKind)
	s.Live.Discovery = resources{}
	s.show(mapID("a"), func(m *metav1.PartialObjectMetadata) { m.Labels["part"] = "p" })
	_, err = s.DeletePart(t.Context(), "p", DeleteOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{"configmaps a"}, s.deleted)
	_, err = s.DeletePart(t.Context(), "", DeleteOptions{})
	require.ErrorContains(t, err, "SetOptions.Part: is required")
}

func TestAGuardWithAWrongSettingHoldsEverything(t *testing.T) {
	t.Parallel()
	s := newStage(t, program, configMapKind)
	s.show(mapID("a"), nil)
	options := whole
	options.Guard = &Guard{Window: -time.Second}
	report, err := s.Prune(t.Context(), s.set(SetOptions{}), options)
	require.ErrorContains(t, err, "apply: Guard.Window: is -1s, must be 0 (an hour) or more")
	require.Empty(t, s.deleted)
	require.Len(t, report.Held.Units, 1)
	require.ErrorContains(t, err, report.Held.Units[0].Reason)
}
