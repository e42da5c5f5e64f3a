package apply_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/diff"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

func TestAPlanIsWhatApplyAndPruneThenDo(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	apply1(t, a, b.set(t, configMap("same", "1"), configMap("changed", "1"), configMap("gone", "1"), configMap("drifted", "1")))
	b.kubectl(t, "patch", "-n", b.ns, "configmap", "drifted", "--type=merge", "-p", `{"data":{"key":"theirs"}}`, "--field-manager=somebody")
	a.waitWoken(t, "ConfigMap", "drifted")
	b.kubectl(t, "create", "-n", b.ns, "configmap", "foreign")
	next := b.set(
		t,
		configMap("same", "1"),
		configMap("changed", "2"),
		configMap("drifted", "1"),
		configMap("new", "1"),
		configMap("foreign", "1"),
	)
	a.net.Reset()
	plan, err := a.Plan(t.Context(), next, complete)
	require.ErrorIs(t, err, apply.ErrNotOurs, "what cannot be done is named")
	a.net.NoWrites(t)
	require.Equal(t, 4, a.net.Count("get"), "one look at each object that is not as it was left")
	var actions []string
	for _, c := range plan.Changes {
		actions = append(actions, string(c.Action)+" "+c.Name)
	}
	require.Equal(t, []string{"update changed", "update drifted", "create new", "delete gone"}, actions)
	drifted := plan.Changes[1].Fields
	require.Len(t, drifted, 1)
	require.Equal(t, `.data.key`, drifted[0].Path)
	require.Equal(t, "somebody", drifted[0].By[0].Manager)

	// It goes through JSON, to be approved elsewhere.
	data, err := json.Marshal(plan)
	require.NoError(t, err)
	var approved diff.Plan
	require.NoError(t, json.Unmarshal(data, &approved))
	require.Equal(t, plan.Hash(), approved.Hash())
	a.net.Reset()
	report, err := a.Execute(t.Context(), next, complete, approved)
	require.NoError(t, err)
	require.Equal(t, 1, report.Count(apply.Created))
	require.Equal(t, 2, report.Count(apply.Updated))
	require.Equal(t, 1, report.Count(apply.Deleted))
	require.Len(t, a.net.Writes(), 4)
	require.Equal(t, "changed drifted foreign new same", b.names(t))
	plan, err = a.Plan(
		t.Context(),
		b.set(t, configMap("same", "1"), configMap("changed", "2"), configMap("drifted", "1"), configMap("new", "1")),
		complete,
	)
	require.NoError(t, err)
	require.Empty(t, plan.Changes)
}

func TestAStalePlanChangesNothing(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	apply1(t, a, b.set(t, configMap("a", "1"), configMap("b", "1"), configMap("c", "1")))
	next := b.set(t, configMap("a", "2"), configMap("b", "2"), configMap("new", "1"))
	plan, err := a.Plan(t.Context(), next, complete)
	require.NoError(t, err)
	require.Len(t, plan.Changes, 4)

	// Another desired state, another live object, a name taken, another successor.
	b.kubectl(t, "patch", "-n", b.ns, "configmap", "b", "--type=merge", "-p", `{"data":{"key":"theirs"}}`)
	b.kubectl(t, "create", "-n", b.ns, "configmap", "new")
	b.kubectl(t, "delete", "-n", b.ns, "configmap", "c")
	b.kubectl(t, "create", "-n", b.ns, "configmap", "c")
	a.waitWoken(t, "ConfigMap", "c")
	a.net.Reset()
	report, err := a.Execute(t.Context(), b.set(t, configMap("a", "3"), configMap("b", "2"), configMap("new", "1")), complete, plan)
	require.ErrorIs(t, err, apply.ErrStalePlan)
	require.Equal(t, 4, report.Count(apply.Refused), "%v", report.Results)
	a.net.NoWrites(t)

	// A status update of a controller is no other truth.
	web := selecting("one")
	apply1(t, a, b.set(t, web))
	changed := b.set(t, selectingImage("example.com/web:2"))
	plan, err = a.Plan(t.Context(), changed, apply.PruneOptions{})
	require.NoError(t, err)
	require.Len(t, plan.Changes, 1)
	b.kubectl(t, "annotate", "-n", b.ns, "deployment", "web", "theirs=1")
	report, err = a.Execute(t.Context(), changed, apply.PruneOptions{}, plan)
	require.NoError(t, err)
	require.Equal(t, 1, report.Count(apply.Updated))
}

func selectingImage(image string) string {
	return "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: NAMESPACE}, spec: {replicas: 0, selector: {matchLabels: {app: one" +
		"}}, template: {metadata: {labels: {app: one}}, spec: {containers: [{name: main, image: '" + image + "'}]}}}}"
}

func TestAPlanOfARecreationSaysSo(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	a.Recreate = []schema.GroupKind{{Group: "apps", Kind: "Deployment"}}
	apply1(t, a, b.set(t, selecting("one")))
	before := b.uid(t, "deployment")
	next := b.set(t, selecting("two"))
	a.net.Reset()
	plan, err := a.Plan(t.Context(), next, apply.PruneOptions{})
	require.NoError(t, err)
	a.net.NoWrites(t)
	require.Equal(t, diff.Recreate, plan.Changes[0].Action)
	require.Contains(t, plan.Changes[0].Note, "field is immutable")
	require.Equal(t, before, b.uid(t, "deployment"))
	report, err := a.Execute(t.Context(), next, apply.PruneOptions{}, plan)
	require.NoError(t, err)
	require.Equal(t, 1, report.Count(apply.Recreated))
	require.NotEqual(t, before, b.uid(t, "deployment"))

	a.Conflicts = apply.ReportConflicts
	b.kubectl(t, "patch", "-n", b.ns, "deployment", "web", "--type=merge", "-p", `{"spec":{"replicas":2}}`, "--field-manager=somebody")
	a.waitWoken(t, "Deployment", "web")
	plan, err = a.Plan(t.Context(), next, apply.PruneOptions{})
	require.ErrorContains(t, err, `.spec.replicas by "somebody"`)
	require.Empty(t, plan.Changes)
}

func TestAPlanNamesAChangeThatTheServerRefuses(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	apply1(t, a, b.set(t, selecting("one"), configMap("a", "1")))
	next := b.set(t, selecting("two"), configMap("a", "2"))
	a.net.Reset()
	plan, err := a.Plan(t.Context(), next, apply.PruneOptions{})
	require.ErrorContains(t, err, "Deployment.apps/"+b.ns+"/web: ")
	require.ErrorContains(t, err, "field is immutable")
	a.net.NoWrites(t)
	require.Len(t, plan.Changes, 1)
	require.Equal(t, "ConfigMap", plan.Changes[0].Kind)

	// Who may not write learns the differences, and so does one whose webhook has no dry runs.
	for _, status := range []int{http.StatusForbidden, http.StatusBadRequest} {
		refused := b.start(t).deaf(func(r applytest.Request) applytest.Fault {
			if r.DryRun {
				return applytest.Fault{Status: status}
			}
			return applytest.Fault{}
		})
		plan, err = refused.Plan(t.Context(), next, apply.PruneOptions{})
		require.NoError(t, err)
		require.Len(t, plan.Changes, 2)
		require.Equal(t, "Deployment", plan.Changes[1].Kind)
		require.Equal(t, diff.Update, plan.Changes[1].Action)
	}
}

func TestWhatIsAbsentIsNotAskedForAllTheTime(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	soon, cancel := contextWithTimeout(t, 500*time.Millisecond)
	defer cancel()
	err := a.WaitReady(soon, b.set(t, configMap("a", "1")))
	require.ErrorContains(t, err, "ConfigMap/"+b.ns+"/a is Unknown: it does not exist")
	require.Zero(t, a.net.Count("get"), "the view shows that it is not there")
}

func TestReadinessIsWaitedForByTheWatch(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	set := b.set(t, selecting("one"), configMap("a", "1"))
	apply1(t, a, set)
	require.NoError(t, a.WaitReady(t.Context(), set))
	b.kubectl(t, "scale", "-n", b.ns, "deployment/web", "--replicas=1") // no scheduler runs: the pod stays pending
	await.Eventually(t, "a.drifts.Load() > 0", func() bool {
		b.kubectl(t, "wait", "-n", b.ns, "--for=jsonpath={.status.observedGeneration}=2", "deployment/web")
		return a.drifts.Load() > 0
	})
	soon, cancel := contextWithTimeout(t, 500*time.Millisecond)
	defer cancel()
	a.net.Reset()
	err := a.WaitReady(soon, set)
	require.ErrorContains(t, err, "Deployment.apps/"+b.ns+"/web is InProgress: ")
	require.LessOrEqual(t, a.net.Count("get"), 3, "it is read when the watch reports a change, not all the time")
}

func TestAPlanCreatesObjectsWhoseDefinitionIsInTheSet(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	group := strings.ReplaceAll(b.ns, "-", "") + ".example.com"
	widget := "{apiVersion: " + group + "/v1, kind: Widget, metadata: {name: a, namespace: NAMESPACE}, spec: {size: 1}}"
	start := func(fault func(applytest.Request) applytest.Fault) *agent {
		a := &agent{}
		a.net.Fault = fault
		var err error
		a.Applier, err = b.program(&a.net, nil)
		require.NoError(t, err)
		a.Live.Mapper = &mapper{discovery: discovery{b.cluster.Config}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Live.Start(ctx) }()
		t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
		return a
	}
	a := start(nil)
	both := b.set(t, definitionOf(group, "v1"), widget)
	var found diff.Plan
	var err error
	await.Eventually(t, "everything is known", func() bool {
		found, err = a.Plan(t.Context(), both, apply.PruneOptions{})
		return err == nil
	})
	_, err = a.Plan(t.Context(), b.set(t, widget), apply.PruneOptions{})
	require.ErrorIs(t, err, apply.ErrNotSynced, "nothing shows that its kind will be served")
	require.Len(t, found.Changes, 2)
	require.Equal(t, []diff.Action{diff.Create, diff.Create}, []diff.Action{found.Changes[0].Action, found.Changes[1].Action})
	require.Equal(t, "Widget", found.Changes[1].Kind)

	var created []string
	await.Eventually(t, "the plan is carried out", func() bool {
		report, _ := a.Execute(t.Context(), both, apply.PruneOptions{}, found) // waits, until the kind is served
		found.Changes = slices.DeleteFunc(found.Changes, func(c diff.Change) bool {
			return slices.ContainsFunc(report.Results, func(r apply.Result) bool { return r.ID.Kind == c.Kind && r.Action == apply.Created })
		})
		for _, r := range report.Results {
			require.Contains(t, []apply.Action{apply.Created, apply.Waiting}, r.Action, "%v", r.Err)
			if r.Action == apply.Created {
				created = append(created, r.ID.Kind)
			}
		}
		return len(found.Changes) == 0
	})
	require.Equal(t, []string{"CustomResourceDefinition", "Widget"}, created)

	// A program that cannot list the kind does not know whether the object is there.
	blind := start(func(r applytest.Request) applytest.Fault {
		if strings.HasPrefix(r.Resource, "widgets") {
			return applytest.Fault{Status: http.StatusForbidden}
		}
		return applytest.Fault{}
	})
	await.Eventually(t, "only the definition is known", func() bool {
		found, err = blind.Plan(t.Context(), both, apply.PruneOptions{})
		return err != nil && strings.Count(err.Error(), apply.ErrNotSynced.Error()) == 1
	})
	require.ErrorContains(t, err, "Widget")
	require.Empty(t, found.Changes)
}
