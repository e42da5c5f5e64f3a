package apply //nolint:testpackage // views show what a test gives them

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
)

// policyOf is a policy of a unit, as byName counts.
func policyOf(unit string) ID {
	return ID{Group: policyKind.Group, Kind: policyKind.Kind, Namespace: "shop", Name: unit + "-isolation"}
}

// prune prunes all but one object.
func (s *stage) prune(options PruneOptions) (PruneReport, error) {
	s.t.Helper()
	kept := mapID("kept-1")
	if look := s.Live.registry.view(configMapKind).Look(view.NameOf("shop", kept.Name)); !look.Found {
		s.show(kept, nil)
	}
	return s.Prune(s.t.Context(), s.set(SetOptions{}, kept), options)
}

// ends serves a pod that ends, or none.
func (s *stage) ends(pod bool) {
	if pod {
		s.serve(map[string][]metav1.PartialObjectMetadata{"pods": {ofServer("web", "", true)}}, nil)
	} else {
		s.serve(nil, nil)
	}
}

// What waits is not deleted, so it uses up no limit, also with what is due beside it.
func TestAUnitThatWaitsDoesNotCount(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"for a pod": nil, "for an answer": apierrors.NewInternalError(ErrNotSynced)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, program, policyKind, configMapKind)
			for _, unit := range []string{"a", "b", "c"} {
				s.show(policyOf(unit), nil)
			}
			pods := []metav1.PartialObjectMetadata{ofServer("web", "", true)}
			s.serve(map[string][]metav1.PartialObjectMetadata{"pods": pods}, map[string]error{"pods": err})
			options := PruneOptions{Complete: true, AllowEmpty: true, Guard: &Guard{Unit: byName, Absent: Limit{Count: 1}}}
			for range 3 {
				report, got := s.prune(options)
				require.Equal(t, err != nil, got != nil)
				require.Empty(t, report.Held.Units)
				require.Empty(t, s.deleted)
			}
			s.show(mapID("d-1"), nil)
			report, _ := s.prune(options)
			require.Empty(t, report.Held.Units)
			require.Equal(t, []string{"configmaps d-1"}, s.deleted)
			s.show(mapID("e-1"), nil)
			report, _ = s.prune(options)
			require.Equal(t, []string{"a", "b", "c", "e"}, unitsOf(report.Held), "what is held is all that is absent")
		})
	}
}

// What waits for a workload that ends is not asked for, and does not count either.
func TestAUnitThatWaitsForAWorkloadDoesNotCount(t *testing.T) {
	t.Parallel()
	s := newStage(t, program, policyKind, deploymentKind, configMapKind)
	s.show(policyOf("a"), nil)
	web := ID{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "a-web"}
	s.show(web, dying)
	s.show(mapID("b-1"), nil)
	s.serve(nil, map[string]error{"pods": apierrors.NewInternalError(ErrNotSynced)})
	report, err := s.prune(PruneOptions{Complete: true, AllowEmpty: true, Guard: &Guard{Unit: byName, Absent: Limit{Count: 1}}})
	require.NoError(t, err)
	require.Equal(t, []string{"configmaps b-1"}, s.deleted)
	require.Equal(t, []Result{{policyOf("a"), Refused, neededBy(web)}}, report.Waiting)
}

// A unit counts from its first deletion on, for the window and once, however long its policy waits.
func TestAUnitWhoseRestWaitsCountsOnceForTheWindow(t *testing.T) {
	t.Parallel()
	none := func(Observed) bool { return false }
	for name, test := range map[string]struct {
		wait   time.Duration
		orphan func(Observed) bool
	}{
		"shorter":                          {time.Minute, nil},
		"shorter, and some may be orphans": {time.Minute, none},
		"longer":                           {2 * time.Hour, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, program, policyKind, configMapKind)
				s.show(policyOf("a"), nil)
				rest := s.show(mapID("a-1"), nil)
				s.ends(true)
				options := PruneOptions{Complete: true, AllowEmpty: true, Guard: &Guard{Unit: byName, Absent: Limit{Count: 1}}, Orphan: test.orphan}
				prune := func(want ...string) PruneReport {
					s.deleted = nil
					report, _ := s.prune(options)
					require.Equal(t, want, s.deleted)
					return report
				}
				prune("configmaps a-1")
				require.NoError(t, s.Live.registry.view(configMapKind).Sink("").Drop(rest))
				time.Sleep(test.wait)
				prune()
				s.show(mapID("b-1"), nil)
				if test.wait < time.Hour {
					report := prune()
					require.Equal(t, []string{"b"}, unitsOf(report.Held))
					s.ends(false)
					prune("networkpolicies a-isolation")
					return
				}
				prune("configmaps b-1")
				s.ends(false)
				report := prune()
				require.Equal(t, []string{"a"}, unitsOf(report.Held), "it would be the second in an hour")
			})
		})
	}
}

// What is held anyway is held with what waits, so that one approval is for all, before and after the pods have ended.
func TestWhatIsHeldIsHeldWithWhatWaits(t *testing.T) {
	t.Parallel()
	s := newStage(t, program, policyKind, configMapKind)
	s.show(policyOf("a"), nil)
	s.show(mapID("b-1"), nil)
	s.show(mapID("c-1"), nil)
	options := PruneOptions{Complete: true, AllowEmpty: true, Guard: &Guard{Unit: byName, Absent: Limit{Count: 1}}}
	s.ends(true)
	report, err := s.prune(options)
	require.Error(t, err)
	require.Equal(t, []string{"a", "b", "c"}, unitsOf(report.Held))
	options.Approved = report.Held.Digest
	s.ends(false)
	report, err = s.prune(options)
	require.NoError(t, err)
	require.Empty(t, report.Held.Units)
	require.ElementsMatch(t, []string{"networkpolicies a-isolation", "configmaps b-1", "configmaps c-1"}, s.deleted)
}

// An approval is for what waits, too, and for as long as it waits.
func TestAnApprovalOutlastsAWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, program, policyKind, configMapKind)
		s.show(policyOf("a"), nil)
		s.ends(true)
		options := PruneOptions{Complete: true, AllowEmpty: true, Guard: &Guard{Unit: byName, Absent: Limit{Count: -1}}}
		s.ends(false)
		report, err := s.prune(options)
		require.Error(t, err)
		s.ends(true)
		options.Approved = report.Held.Digest
		for range 3 {
			report, err = s.prune(options)
			require.NoError(t, err)
			require.Equal(t, 1, report.Pending)
			options.Approved = ""
			time.Sleep(2 * time.Hour)
		}
		s.ends(false)
		_, err = s.prune(options)
		require.NoError(t, err)
		require.Equal(t, []string{"networkpolicies a-isolation"}, s.deleted)
	})
}

// A change between the question and the deletion may be one of the selector, and a pod may have begun to end.
func TestPodsAreAskedForAgainAfterAChange(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(*stage) (PruneReport, error){
		"Prune":  func(s *stage) (PruneReport, error) { return s.prune(whole) },
		"Delete": func(s *stage) (PruneReport, error) { return s.Delete(t.Context(), []ID{isolationID}, DeleteOptions{}) },
	} {
		for _, unseen := range []bool{false, true} {
			s := newStage(t, program, policyKind, configMapKind)
			s.show(isolationID, nil)
			s.ends(false)
			s.deletes = func(string, metav1.DeleteOptions) error {
				s.show(isolationID, nil)
				if s.ends(true); unseen {
					s.serve(nil, map[string]error{"pods": apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "")})
				}
				return apierrors.NewConflict(schema.GroupResource{}, "isolation", nil)
			}
			report, err := do(s)
			require.Equal(t, unseen, err != nil, name)
			require.Len(t, s.deleted, 1, "the second is not sent")
			require.Equal(t, !unseen, report.Pending == 1, name)
			require.Equal(t, !unseen, report.Remaining == 1, name)
			s.deletes = nil
			s.ends(false)
			_, err = do(s)
			require.NoError(t, err)
			require.Len(t, s.deleted, 2, name)
		}
	}
}

// The workload may have gone before the change, too: what was seen of it is of the past.
func TestWorkloadsAreAskedForAgainAfterAChange(t *testing.T) {
	t.Parallel()
	s := newStage(t, program, policyKind, configMapKind)
	s.show(isolationID, nil)
	there := map[string][]metav1.PartialObjectMetadata{
		"pods":        {ofServer("web-1-a", "apps/v1 ReplicaSet web-1", false)},
		"replicasets": {ofServer("web-1", "", false)},
	}
	s.serve(there, nil)
	s.deletes = func(string, metav1.DeleteOptions) error {
		there["replicasets"] = nil
		s.show(isolationID, nil)
		return apierrors.NewConflict(schema.GroupResource{}, "isolation", nil)
	}
	report, err := s.prune(whole)
	require.NoError(t, err)
	require.Len(t, s.deleted, 1, "the second is not sent")
	require.Equal(t, 1, report.Pending)
	require.Equal(t, []Result{{isolationID, Refused, errPodsEnd}}, report.Waiting)
}

// Pods are asked for after the workloads beside a policy have gone, not only before.
func TestPodsOfAWorkloadThatGoesInTheSameCallAreSeen(t *testing.T) {
	t.Parallel()
	web := ID{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	s := newStage(t, program, policyKind, deploymentKind, configMapKind)
	s.show(isolationID, nil)
	s.show(web, nil)
	there := map[string][]metav1.PartialObjectMetadata{
		"pods":        {ofServer("web-1-a", "apps/v1 ReplicaSet web-1", false)},
		"replicasets": {ofServer("web-1", "apps/v1 Deployment web", false)},
		"deployments": {ofServer("web", "", false)},
	}
	s.serve(there, nil)
	s.deletes = func(name string, _ metav1.DeleteOptions) error {
		if name == "web" {
			there["deployments"] = nil // in the background: its pods are still there
		}
		return nil
	}
	options := whole
	options.Propagation = metav1.DeletePropagationBackground
	report, err := s.prune(options)
	require.NoError(t, err)
	require.Equal(t, []string{"deployments web"}, s.deleted)
	require.Equal(t, 1, report.Pending)
}

// The pods that an operator has made for an object of ours end with it, though the collector has not marked them yet.
func TestPodsOfAnObjectThatIsWatchedEndWithIt(t *testing.T) {
	t.Parallel()
	const widget, policy, namespace = "example.com/v1 Widget w", "networking.k8s.io/v1 NetworkPolicy w", "v1 Namespace w"
	owner := func(ends bool) []metav1.PartialObjectMetadata {
		return []metav1.PartialObjectMetadata{ofServer("w", "", ends)}
	}
	for name, test := range map[string]struct {
		controller, resource string
		there                []metav1.PartialObjectMetadata
		stays                bool
	}{
		"it is gone":                       {widget, "widgets", nil, true},
		"it is deleted":                    {widget, "widgets", owner(true), true},
		"it stays":                         {widget, "widgets", owner(false), false},
		"its plural has a form of its own": {policy, "networkpolicies", owner(false), false},
		"it is not in a namespace":         {namespace, "namespaces", nil, false},
	} {
		s := newStage(t, program, policyKind, widgetKind, configMapKind, schema.GroupKind{Kind: "Namespace"})
		s.show(isolationID, nil)
		s.serve(map[string][]metav1.PartialObjectMetadata{"pods": {ofServer("web", test.controller, false)}, test.resource: test.there}, nil)
		_, err := s.prune(whole)
		require.NoError(t, err)
		require.Equal(t, test.stays, len(s.deleted) == 0, name)
	}
}

// Two programs that delete the same object at once: the second finds it being deleted, which is what it wants.
func TestADeletionThatAnotherBeganIsDone(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*metav1.PartialObjectMetadata)
		done   bool
	}{
		"it is being deleted": {dying, true},
		"another of its name is being deleted": {func(m *metav1.PartialObjectMetadata) {
			m.UID = "another"
			dying(m)
		}, false},
		"it is not ours any more": {unowned, false},
	} {
		s := newStage(t, program, configMapKind)
		s.show(mapID("a"), nil)
		s.deletes = func(string, metav1.DeleteOptions) error {
			s.show(mapID("a"), test.change)
			return apierrors.NewConflict(schema.GroupResource{}, "a", nil)
		}
		report, err := s.prune(whole)
		require.Equal(t, test.done, err == nil, name)
		require.Equal(t, test.done, report.Remaining == 1, name)
		require.Len(t, s.deleted, 1, name)
	}
}
