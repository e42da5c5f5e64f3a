package agent //nolint:testpackage // what is reported is decided within

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/readiness"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
)

var shop = starbase.Identity{
	ProjectID: "00000000-0000-4000-8000-000000000001", Environment: "production", ServiceID: "00000000-0000-4000-8000-000000000002",
}

// outcomeOf is a pass that has left one service as generation 2 of its Deployment.
func outcomeOf(gone deletions) *outcome {
	web := types.NamespacedName{Namespace: "proj-shop", Name: "web"}
	return &outcome{
		current: &accepted{
			state:    &starbase.DesiredState{Epoch: "e", Generation: 7},
			rendered: Rendered{Services: []RenderedService{{Identity: shop, Replicas: 2, Deployment: web}}},
		},
		results: map[apply.ID]apply.Result{}, written: map[types.NamespacedName]written{web: {"u", 2}}, deletions: gone,
	}
}

// showing is a view of the Deployment of the shop with that rollout.
func showing(t *testing.T, shown rollout) *rollouts {
	t.Helper()
	r := newRollouts(nil, nil, nil)
	r.Read = func(metav1.Object) (types.NamespacedName, rollout, bool) {
		return types.NamespacedName{Namespace: "proj-shop", Name: "web"}, shown, true
	}
	kept, err := r.Reduce(&metav1.PartialObjectMetadata{})
	require.NoError(t, err)
	require.NoError(t, r.Put(kept))
	return r
}

func TestAServiceIsHealthyOnlyByThePodsOfWhatWasWritten(t *testing.T) {
	t.Parallel()
	whole := rollout{uid: "u", generation: 2, observed: 2, desired: 2, total: 2, updated: 2, ready: 2}
	for name, test := range map[string]struct {
		change func(*rollout)
		want   starbase.Phase
	}{
		"all is there":                      {func(*rollout) {}, starbase.PhaseHealthy},
		"a newer generation":                {func(r *rollout) { r.generation, r.observed = 3, 3 }, starbase.PhaseHealthy},
		"the pods of the last version":      {func(r *rollout) { r.generation, r.observed = 1, 1 }, starbase.PhaseProgressing},
		"its controller has not seen it":    {func(r *rollout) { r.observed = 1 }, starbase.PhaseProgressing},
		"the pods of a Deployment before":   {func(r *rollout) { r.uid = "old" }, starbase.PhaseProgressing},
		"a stuck rollout of a last version": {func(r *rollout) { r.generation, r.observed, r.cause, r.ready = 1, 1, stuck, 0 }, starbase.PhaseProgressing},
	} {
		pods := whole
		test.change(&pods)
		r := reporter{
			pods:     &podView{},
			rollouts: showing(t, pods),
		}
		list, complete := r.statuses(outcomeOf(deletions{}))
		require.Len(t, list, 1)
		require.Equal(t, test.want, list[0].Phase, name)
		require.True(t, complete)
	}

	// Without a view of the live Deployment nothing shows that its pods are those.
	r := reporter{
		pods:     &podView{},
		rollouts: showing(t, whole),
	}
	unseen := outcomeOf(deletions{})
	unseen.written = nil
	list, _ := r.statuses(unseen)
	require.Equal(t, starbase.PhaseProgressing, list[0].Phase)
}

func TestAnotherHeldSetIsAnotherReport(t *testing.T) {
	t.Parallel()
	of := func(digest string) *starbase.StatusReport {
		return &starbase.StatusReport{HeldDeletions: heldDeletions(apply.Held{
			Digest: digest, Units: []apply.HeldUnit{{Unit: "service a", IDs: make([]apply.ID, 6), Reason: "absent"}},
		})}
	}
	require.True(t, same(of("one"), of("one")))
	require.False(t, same(of("one"), of("two")))
	require.Equal(t, &starbase.HeldDeletions{
		Digest: "one", Count: 1, Units: []starbase.HeldUnit{{Unit: "service a", Objects: 6, Reason: "absent"}},
	}, of("one").HeldDeletions)
	require.Nil(t, heldDeletions(apply.Held{}))
	unrecorded := apply.Held{Units: []apply.HeldUnit{{Unit: "service a", Reason: "the hold cannot be recorded"}}}
	require.Nil(t, heldDeletions(unrecorded), "the control plane refuses a report without a digest as a whole")
}

// stuck is a Deployment whose controller has given up.
var stuck = readiness.Cause{Reason: readiness.ProgressDeadline, Outlook: readiness.Lasting, Message: "timed out"}

func TestAServiceIsReportedWithTheFirstCauseOfItsPods(t *testing.T) {
	t.Parallel()
	whole := rollout{uid: "u", generation: 2, observed: 2, desired: 2, total: 2, updated: 2, ready: 2}
	broken := whole
	broken.ready = 1
	failed := broken
	failed.cause = stuck
	for name, test := range map[string]struct {
		rollout rollout
		pods    string // the statuses, by template
		phase   starbase.Phase
		class   string
		message string
	}{
		"the image":           {broken, `{new: ErrImagePull}`, starbase.PhaseProgressing, "ImagePull", "Pod new: container main: ErrImagePull"},
		"for too long":        {failed, `{new: ErrImagePull}`, starbase.PhaseFailed, "ImagePull", "Pod new: container main: ErrImagePull"},
		"an invalid image":    {broken, `{new: InvalidImageName}`, starbase.PhaseFailed, "ImagePull", "InvalidImageName"},
		"too slow":            {failed, `{new: ContainerCreating}`, starbase.PhaseFailed, "ProgressDeadline", "timed out; Pod new"},
		"a usual start":       {broken, `{new: ContainerCreating}`, starbase.PhaseProgressing, "", ""},
		"an older template":   {broken, `{new: ContainerCreating, old: ErrImagePull}`, starbase.PhaseProgressing, "", ""},
		"enough without them": {whole, `{new: ErrImagePull}`, starbase.PhaseHealthy, "", ""},
	} {
		waiting := map[string]string{}
		require.NoError(t, yaml.Unmarshal([]byte(test.pods), &waiting))
		v := newPodView(nil, nil, time.Minute, newMetrics(), slog.New(slog.DiscardHandler))
		for of, reason := range waiting {
			made := map[string]string{"new": "2026-01-02T00:00:00Z", "old": "2026-01-01T00:00:00Z"}[of]
			kept, err := v.Reduce(&unstructured.Unstructured{Object: object{
				"apiVersion": "v1", "kind": "Pod",
				"metadata": object{"name": of, "namespace": "proj-shop", "uid": of, "creationTimestamp": made, "labels": object{
					labelProjectID: hex32(shop.ProjectID), labelServiceID: hex32(shop.ServiceID), labelEnvironment: shop.Environment,
					"pod-template-hash": of,
				}},
				"status": object{"phase": "Pending", "containerStatuses": []any{
					object{"name": "main", "state": object{"waiting": object{"reason": reason}}},
				}},
			}})
			require.NoError(t, err)
			require.NoError(t, v.Put(kept))
		}
		r := reporter{pods: v, rollouts: showing(t, test.rollout)}
		list, _ := r.statuses(outcomeOf(deletions{}))
		require.Equal(t, test.phase, list[0].Phase, name)
		require.Equal(t, test.class, list[0].ErrorClass, name)
		require.Contains(t, list[0].Message, test.message, name)
	}
}

func TestWhatIsHeldIsReportedAndKeepsNoReportFromBeingComplete(t *testing.T) {
	t.Parallel()
	other := shop
	other.Environment = "staging"
	for name, test := range map[string]struct {
		left    leftover
		phase   starbase.Phase
		class   string
		message string
	}{
		"the limit":  {leftover{held: 3, grace: 1}, starbase.PhaseFailed, starbase.ClassDeletionHeld, "3 objects are not deleted: more at once"},
		"no proof":   {leftover{unproven: 1}, starbase.PhaseFailed, starbase.ClassDeletionHeld, "nothing shows that the agent applied them"},
		"the grace":  {leftover{grace: 4}, starbase.PhaseApplying, starbase.ClassDeletionHeld, "4 objects are not deleted yet: absent"},
		"a failure":  {leftover{problem: "ConfigMap/x: denied"}, starbase.PhaseFailed, "DeleteFailed", "denied"},
		"a finalize": {leftover{going: 2}, starbase.PhaseApplying, "Deleting", "2 objects are not deleted yet"},
	} {
		r := reporter{pods: &podView{}, rollouts: &rollouts{}}
		list, complete := r.statuses(outcomeOf(deletions{left: map[labelled]leftover{labelsOf(other): test.left}}))
		require.Len(t, list, 2, name)
		require.Equal(t, other, list[1].Identity(), name)
		require.Equal(t, test.phase, list[1].Phase, name)
		require.Equal(t, test.class, list[1].ErrorClass, name)
		require.Contains(t, list[1].Message, test.message, name)
		require.True(t, complete, name)
		_, complete = r.statuses(outcomeOf(deletions{left: map[labelled]leftover{labelsOf(other): test.left}, open: true}))
		require.False(t, complete, "not all can be seen, or named")
	}

	r := reporter{pods: &podView{}, rollouts: &rollouts{}}
	list, complete := r.statuses(outcomeOf(deletions{left: map[labelled]leftover{labelsOf(shop): {unproven: 1}}}))
	require.Len(t, list, 1, "an object too many of a service that is wanted")
	require.Equal(t, starbase.PhaseProgressing, list[0].Phase)
	require.Equal(t, starbase.ClassDeletionHeld, list[0].ErrorClass)
	require.True(t, complete)
}

func TestWhatCannotBeAppliedAtAllIsReportedOfItsService(t *testing.T) {
	t.Parallel()
	id := func(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }
	project := func(n, egress int) starbase.Project {
		p := starbase.Project{ProjectID: id(n), WorkspaceID: id(9), Slug: fmt.Sprint("shop-", n), Namespace: fmt.Sprint("proj-shop-", n)}
		for range egress {
			p.Egress = append(p.Egress, starbase.Egress{CIDR: "203.0.113.0/24", Port: 5432, Protocol: "TCP"})
		}
		return p
	}
	of := func(n int) starbase.Service {
		return starbase.Service{
			WorkspaceID: id(9),
			ProjectID:   id(n),
			ServiceID:   id(n),
			Environment: "production",
			ServiceName: "web",
			Image:       "example.com/web",
		}
	}
	state := &starbase.DesiredState{
		ClusterID: id(8), Epoch: "e", Generation: 1,
		Projects: []starbase.Project{project(1, 1), project(2, 50_000)}, Services: []starbase.Service{of(1), of(2)},
	}
	require.NoError(t, state.Seal())
	p := puller{
		owner: Owner(id(8)), cluster: id(8), desired: &desired{}, newest: &newest{memory: &apply.FileMemory{Path: t.TempDir() + "/accepted"}},
		logger: slog.New(slog.DiscardHandler), changed: func() {},
	}
	require.NoError(t, p.accept(t.Context(), state))
	current, _ := p.desired.take()
	r := reporter{pods: &podView{}, rollouts: &rollouts{}}
	list, _ := r.statuses(&outcome{current: current})
	require.Len(t, list, 2)
	require.Equal(t, starbase.PhaseProgressing, list[0].Phase)
	require.Equal(t, starbase.PhaseRejected, list[1].Phase)
	require.Equal(t, "Invalid", list[1].ErrorClass)
	require.Contains(t, list[1].Message, "NetworkPolicy.networking.k8s.io/proj-shop-2/env-isolation-production: has ")
	require.Contains(t, list[1].Message, "an API server reads at most")
}
