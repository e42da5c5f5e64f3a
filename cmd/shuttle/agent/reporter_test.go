package agent //nolint:testpackage // what is reported is decided within

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/readiness"
	"github.com/seed-9e1ffd66/trueup/cmd/api/starbase"
	"github.com/seed-9e1ffd66/trueup/cmd/internal/owntoken"
	"github.com/seed-9e1ffd66/trueup/internal/test/httpfunc"
	"github.com/seed-9e1ffd66/trueup/reconcile"
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
		"pods of before that still run":     {func(r *rollout) { r.total = 3 }, starbase.PhaseProgressing},
		"pods of before, as many":           {func(r *rollout) { r.updated = 1 }, starbase.PhaseProgressing},
		"a pod that is not ready":           {func(r *rollout) { r.ready = 1 }, starbase.PhaseProgressing},
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
	many := heldDeletions(apply.Held{Digest: "many", Units: make([]apply.HeldUnit, starbase.MaxHeldUnits+1)})
	require.Len(t, many.Units, starbase.MaxHeldUnits)
	require.Equal(t, starbase.MaxHeldUnits+1, many.Count)
}

// TestAReportThatSaysAnythingElseIsAnother.
func TestAReportThatSaysAnythingElseIsAnother(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*starbase.StatusReport){
		"the epoch":      func(r *starbase.StatusReport) { r.Epoch = "f" },
		"the generation": func(r *starbase.StatusReport) { r.Generation = 8 },
		"all of them":    func(r *starbase.StatusReport) { r.Complete = false },
		"the class":      func(r *starbase.StatusReport) { r.ClusterErrorClass = starbase.ClassLeftover },
		"the message":    func(r *starbase.StatusReport) { r.ClusterMessage = "another" },
		"a service":      func(r *starbase.StatusReport) { r.Services[0].Message = "another" },
		"what is left":   func(r *starbase.StatusReport) { r.LeftProjects = []string{shop.ProjectID} },
	} {
		of := func() *starbase.StatusReport {
			return &starbase.StatusReport{Epoch: "e", Generation: 7, Complete: true, Services: starbase.Statuses{newStatus(shop, 7)}}
		}
		other := of()
		change(other)
		require.True(t, same(of(), of()))
		require.False(t, same(of(), other), name)
	}
}

// TestAServiceStandsAsTheWorstOfItsObjects, in whatever order, and of those that it shares.
func TestAServiceStandsAsTheWorstOfItsObjects(t *testing.T) {
	t.Parallel()
	waits := apply.Result{Action: apply.Waiting, Err: errors.New("waits")}
	fails := apply.Result{Action: apply.Failed, Err: errors.New("denied")}
	fought := apply.Result{Action: apply.Failed, Err: &apply.FightError{}}
	taken := apply.Result{Action: apply.Refused, Err: apply.ErrNotOurs}
	for name, test := range map[string]struct {
		results []apply.Result // the first is of what it shares
		phase   starbase.Phase
		class   string
	}{
		"nothing":           {nil, starbase.PhaseProgressing, ""},
		"one waits":         {[]apply.Result{{}, waits}, starbase.PhaseApplying, "Waiting"},
		"what it shares":    {[]apply.Result{fails}, starbase.PhaseFailed, classApplyFailed},
		"failed and waits":  {[]apply.Result{fails, waits}, starbase.PhaseFailed, classApplyFailed},
		"waits and failed":  {[]apply.Result{waits, fails}, starbase.PhaseFailed, classApplyFailed},
		"fought over":       {[]apply.Result{waits, fought}, starbase.PhaseFailed, starbase.ClassContested},
		"taken and fought":  {[]apply.Result{taken, fought}, starbase.PhaseRejected, starbase.ClassNameTaken},
		"taken and failed":  {[]apply.Result{taken, fails}, starbase.PhaseRejected, starbase.ClassNameTaken},
		"taken and waits":   {[]apply.Result{taken, waits}, starbase.PhaseRejected, starbase.ClassNameTaken},
		"fought, and taken": {[]apply.Result{fought, taken}, starbase.PhaseRejected, starbase.ClassNameTaken},
	} {
		s, results := &RenderedService{}, map[apply.ID]apply.Result{}
		for n, result := range test.results {
			id := apply.ID{Kind: "ConfigMap", Namespace: "proj-shop", Name: fmt.Sprint(n)}
			if results[id] = result; n == 0 {
				s.Shared = append(s.Shared, id)
			} else {
				s.Objects = append(s.Objects, id)
			}
		}
		phase, class, _ := stand(s, results)
		require.Equal(t, test.phase, phase, name)
		require.Equal(t, test.class, class, name)
	}
}

func TestAMessageIsCutBetweenTwoCharacters(t *testing.T) {
	t.Parallel()
	require.Equal(t, "abc", shortenTo("abc", 3))
	require.Equal(t, "ab", shortenTo("abc", 2))
	require.Equal(t, "a", shortenTo("aé", 2))
	require.Empty(t, shortenTo("é", 1))
	all := [parts]problem{ofView: {"Unseen", "v"}, ofGateway: {"GatewayMissing", strings.Repeat("g", starbase.MaxStatusMessage)}}
	worst := together(&all)
	require.Equal(t, "Unseen", worst.class)
	require.Contains(t, worst.message, "v; GatewayMissing: ggg")
	require.Len(t, worst.message, starbase.MaxStatusMessage)
	require.Zero(t, together(&[parts]problem{}))
}

// TestReportsAreSentInPartsAndAgainAfterAWhile: one that is refused waits longer each time, but for one that says
// something else.
func TestReportsAreSentInPartsAndAgainAfterAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var parts []int
		status := http.StatusNoContent
		r := &reporter{
			client: newClient(newConfigOf(t), owntoken.New(owntoken.Config{Given: func() (string, error) { return "sesame", nil }}),
				httpfunc.Transport(func(request *http.Request) (*http.Response, error) {
					var part starbase.StatusReport
					require.NoError(t, json.NewDecoder(request.Body).Decode(&part))
					parts = append(parts, len(part.Services))
					return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, Request: request}, nil
				}), func(string, string, time.Duration) {}),
			pods: &podView{}, rollouts: &rollouts{}, backoff: reconcile.Backoff{Min: time.Minute, Max: time.Hour}, trigger: func() {},
		}
		sent := func(fails bool, want ...int) time.Duration {
			t.Helper()
			parts = nil
			result, err := r.Reconcile(t.Context())
			require.Equal(t, fails, err != nil, err)
			require.Equal(t, want, parts)
			return result.RequeueAfter
		}
		of := func(n int) {
			left := map[labelled]leftover{}
			for i := range n - 1 {
				left[labelled{hex32(shop.ProjectID), "e" + strconv.Itoa(i), hex32(shop.ServiceID)}] = leftover{going: 1}
			}
			r.last = outcomeOf(deletions{left: left})
			r.last.current.state.Schema = starbase.Schema
		}
		require.Zero(t, sent(false), "nothing is known")
		of(starbase.MaxStatusServices)
		require.Equal(t, reportInterval, sent(false, starbase.MaxStatusServices))
		require.True(t, r.sent.Complete)
		of(starbase.MaxStatusServices + 1)
		sent(false, starbase.MaxStatusServices, 1)
		require.False(t, r.sent.Complete, "no part has all")
		time.Sleep(reportInterval - time.Minute)
		require.Equal(t, time.Minute, sent(false))
		time.Sleep(time.Minute)
		sent(false, starbase.MaxStatusServices, 1)

		status = http.StatusBadRequest
		of(1)
		sent(true, 1)
		time.Sleep(time.Minute - 1)
		sent(true)
		time.Sleep(time.Nanosecond)
		sent(true, 1)
		time.Sleep(2*time.Minute - 1)
		sent(true)
		of(2)
		sent(true, 2)
		status = http.StatusNoContent
		of(1)
		sent(false, 1)
		require.Zero(t, r.failed)
	})
}

// newConfigOf is what a client needs.
func newConfigOf(t *testing.T) *Config {
	t.Helper()
	at, err := url.Parse("https://starbase.example.com")
	require.NoError(t, err)
	return &Config{StarbaseURL: at, ClusterID: passing, RequestTimeout: time.Minute}
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
		"one named":  {leftover{going: 2, final: "ConfigMap/x"}, starbase.PhaseApplying, "Deleting", "2 objects are not gone yet: ConfigMap/x"},
		"the record": {leftover{held: 2, reason: "no y"}, starbase.PhaseFailed, starbase.ClassDeletionHeld, "2 objects are not deleted: no y"},
		"no view":    {leftover{unseen: true}, starbase.PhaseApplying, starbase.ClassUnseen, "is not known"},
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
	for class, left := range map[string]leftover{
		starbase.ClassDeletionHeld: {held: 1}, "DeleteFailed": {problem: "denied"}, "": {grace: 1, going: 1, unseen: true},
	} {
		list, _ := r.statuses(outcomeOf(deletions{left: map[labelled]leftover{labelsOf(shop): left}}))
		require.Equal(t, class, list[0].ErrorClass, "what time alone does not end")
	}
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
