package apply_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// deaf is an agent whose view no longer hears of anything, and of whose requests
// the test may change the course.
func (a *agent) deaf(fault func(applytest.Request) applytest.Fault) *agent {
	a.stop()
	a.net.Fault = fault
	a.net.Reset()
	return a
}

// once returns a fault that runs f before the first request that matches.
func once(match func(applytest.Request) bool, f func()) func(applytest.Request) applytest.Fault {
	var first sync.Once
	return func(r applytest.Request) applytest.Fault {
		if match(r) {
			first.Do(f)
		}
		return applytest.Fault{}
	}
}

func TestADyingObjectThatTheViewDoesNotShowIsWaitedFor(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t).deaf(nil)
	set := b.set(t, configMap("a", "1"))
	apply1(t, b.start(t), set)
	b.kubectl(t, "patch", "-n", b.ns, "configmap", "a", "--type=merge", "-p", `{"metadata":{"finalizers":["example.com/hold"]}}`)
	b.kubectl(t, "delete", "-n", b.ns, "configmap", "a", "--wait=false")
	report, err := a.Apply(t.Context(), b.set(t, configMap("a", "2")))
	require.ErrorIs(t, err, apply.ErrTerminating)
	require.Equal(t, 1, report.Count(apply.Waiting))
	require.Equal(t, "1", b.kubectl(t, "get", "-n", b.ns, "configmap", "a", "-o", "jsonpath={.data.key}"))
	b.kubectl(t, "patch", "-n", b.ns, "configmap", "a", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
}

func TestANamespaceThatDiesUnseenIsWaitedFor(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	b.kubectl(t, "create", "namespace", b.ns+"-more")
	held := "{apiVersion: v1, kind: ConfigMap, metadata: {name: held, namespace: NAMESPACE-more, finalizers: [example.com/hold]}}"
	apply1(t, a, b.set(t, held))
	b.kubectl(t, "delete", "namespace", b.ns+"-more", "--wait=false")
	inside := "{apiVersion: v1, kind: ConfigMap, metadata: {name: inside, namespace: NAMESPACE-more}}"
	report, err := a.Apply(t.Context(), b.set(t, inside))
	require.ErrorIs(t, err, apply.ErrTerminating)
	require.ErrorContains(t, err, "namespace "+b.ns+"-more")
	require.Equal(t, 1, report.Count(apply.Waiting))
	b.kubectl(t, "patch", "-n", b.ns+"-more", "configmap", "held", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
}

// startRecreating returns an agent that has applied a Deployment and may
// recreate it.
func (b *bench) startRecreating(t *testing.T) *agent {
	t.Helper()
	a := b.start(t)
	a.Recreate = []schema.GroupKind{{Group: "apps", Kind: "Deployment"}}
	apply1(t, a, b.set(t, selecting("one")))
	return a
}

func TestAnObjectWithoutOurLabelsIsNotRecreated(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.startRecreating(t).deaf(nil)
	before := b.uid(t, "deployment")
	b.kubectl(t, "label", "-n", b.ns, "deployment", "web", "example.com/owner-")
	_, err := a.Apply(t.Context(), b.set(t, selecting("two")))
	require.ErrorContains(t, err, "not recreated, because it lacks our labels")
	plan, err := a.Plan(t.Context(), b.set(t, selecting("two")), apply.PruneOptions{})
	require.ErrorContains(t, err, "not recreated, because it lacks our labels")
	require.Empty(t, plan.Changes, "it promises no more")
	require.Zero(t, a.net.Count("delete"))
	require.Equal(t, before, b.uid(t, "deployment"))
}

func TestASuccessorIsNotRecreated(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	file := filepath.Join(t.TempDir(), "web.yaml")
	successor := strings.ReplaceAll(
		strings.Replace(selecting("three"), "name: web,", "name: web, labels: {example.com/owner: NAMESPACE},", 1),
		"NAMESPACE",
		b.ns,
	)
	require.NoError(t, os.WriteFile(file, []byte(successor), 0o600))
	a := b.startRecreating(t)
	a.deaf(once(func(r applytest.Request) bool { return r.Verb == "get" }, func() {
		b.kubectl(t, "replace", "--force", "-f", file)
	}))
	_, err := a.Apply(t.Context(), b.set(t, selecting("two")))
	require.ErrorContains(t, err, "another object has taken the name")
	require.Zero(t, a.net.Count("delete"))
	require.Equal(t, "three", b.kubectl(t, "get", "-n", b.ns, "deployment", "web", "-o", "jsonpath={.spec.selector.matchLabels.app}"))
}

func TestADyingObjectIsNotDeletedForARecreation(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.startRecreating(t).deaf(nil)
	b.kubectl(t, "patch", "-n", b.ns, "deployment", "web", "--type=merge", "-p", `{"metadata":{"finalizers":["example.com/hold"]}}`)
	b.kubectl(t, "delete", "-n", b.ns, "deployment", "web", "--wait=false")
	_, err := a.Apply(t.Context(), b.set(t, selecting("two")))
	require.ErrorIs(t, err, apply.ErrTerminating)
	require.Zero(t, a.net.Count("delete"))
	b.kubectl(t, "patch", "-n", b.ns, "deployment", "web", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
}

func TestARecreationThatIsHeldIsNotTriedAgainBeforeTheWatchTells(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.startRecreating(t).deaf(nil)
	b.kubectl(t, "patch", "-n", b.ns, "deployment", "web", "--type=merge", "-p", `{"metadata":{"finalizers":["example.com/hold"]}}`)
	for range 3 {
		_, err := a.Apply(t.Context(), b.set(t, selecting("two")))
		require.ErrorIs(t, err, apply.ErrTerminating)
	}
	require.Len(t, a.net.Writes(), 3, "the refused change, one deletion, the refused creation")
	b.kubectl(t, "patch", "-n", b.ns, "deployment", "web", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
}

func TestPruneSparesWhatHasChangedSinceItWasSeen(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	apply1(t, a, b.set(t, configMap("a", "1"), configMap("b", "1"), configMap("c", "1")))
	a.deaf(nil)
	b.kubectl(t, "annotate", "-n", b.ns, "configmap", "b", "keep=please")
	b.kubectl(t, "annotate", "-n", b.ns, "configmap", "c", "keep=please")
	options := complete
	options.Orphan = func(o apply.Observed) bool { return o.ID.Name == "c" }
	report, err := a.Prune(t.Context(), b.set(t, configMap("a", "1")), options)
	require.ErrorContains(t, err, "ConfigMap/"+b.ns+"/b: ")
	require.ErrorContains(t, err, "ConfigMap/"+b.ns+"/c: ")
	require.Equal(t, 2, Report(report).Count(apply.Failed))
	require.Equal(t, "a b c", b.names(t))
	require.Equal(t, b.ns, b.kubectl(t, "get", "-n", b.ns, "configmap", "c", "-o", `jsonpath={.metadata.labels.example\.com/owner}`))
}

func TestAnExecutionGivesWayToAChangeThatComesInBetween(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	apply1(t, a, b.set(t, configMap("a", "1"), configMap("b", "1"), configMap("gone", "1")))
	next := b.set(t, configMap("a", "2"), configMap("b", "2"))
	plan, err := a.Plan(t.Context(), next, complete)
	require.NoError(t, err)
	require.Len(t, plan.Changes, 3)
	// Decided, and changed by another manager before it is sent.
	a.deaf(once(applytest.Request.Writes, func() {
		for _, name := range []string{"a", "b", "gone"} {
			b.kubectl(t, "patch", "-n", b.ns, "configmap", name, "--type=merge", "-p", `{"data":{"key":"theirs"}}`, "--field-manager=somebody")
		}
	}))
	report, err := a.Execute(t.Context(), next, complete, plan)
	require.ErrorIs(t, err, apply.ErrStalePlan)
	require.Equal(t, 2, report.Count(apply.Refused))
	require.Equal(t, 1, report.Count(apply.Failed))
	require.Equal(
		t,
		"theirs theirs theirs",
		b.kubectl(t, "get", "-n", b.ns, "configmap", "a", "b", "gone", "-o", "jsonpath={.items[*].data.key}"),
	)
}

func TestWhatFailsHoldsBackWhatDependsOnIt(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	a.Objects = nil // then nothing is known of readiness
	bad := "{apiVersion: v1, kind: Service, metadata: {name: bad, namespace: NAMESPACE}, spec: {ports: [{port: 70000}]}}"
	worse := "{apiVersion: v1, kind: Service, metadata: {name: worse, namespace: NAMESPACE, uid: x}}"
	set, err := apply.NewSet(b.owner, b.objects(
		t,
		bad,
		worse,
		strings.ReplaceAll(
			configMap("a", "1"),
			"namespace: NAMESPACE",
			"namespace: NAMESPACE, annotations: {example.com/depends-on: Namespace/NAMESPACE-none}",
		),
		"{apiVersion: apps/v1, kind: Deployment, metadata: {name: late, namespace: NAMESPACE, annotations: {example.com/depends-on: Service/NAMESPACE/bad}}}",
		"{apiVersion: apps/v1, kind: Deployment, metadata: {name: later, namespace: NAMESPACE, annotations: {example.com/depends-on: Service/NAMESPACE/worse}}}",
	), apply.SetOptions{})
	require.ErrorContains(t, err, "ConfigMap/"+b.ns+"/a: depends on Namespace/"+b.ns+"-none, which the set does not state")
	report, err := a.Apply(t.Context(), set)
	require.ErrorContains(t, err, "Deployment.apps/"+b.ns+"/late: held back: it depends on Service/"+b.ns+"/bad: ")
	require.ErrorContains(t, err, "Deployment.apps/"+b.ns+"/later: held back: it depends on Service/"+b.ns+"/worse, which cannot be applied")
	require.Equal(t, 2, report.Count(apply.Waiting))
	require.Len(t, a.net.Writes(), 1)
}

func TestWhatBecomesReadyCallsForThePass(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	group := strings.ReplaceAll(b.ns, "-", "") + ".example.com"
	require.NoError(t, b.cluster.Apply(t.Context(), definitionOf(group, "v1")))
	b.kubectl(t, "wait", "--for=condition=Established", "crd/widgets."+group)
	a := b.startUnsynced(t, schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Widget"})
	waitSynced(t, a)
	widget := "{apiVersion: " + group + "/v1, kind: Widget, metadata: {name: w, namespace: NAMESPACE}, spec: {size: 1}}"
	says := func(status string) {
		t.Helper()
		b.kubectl(
			t,
			"patch",
			"-n",
			b.ns,
			"widgets."+group,
			"w",
			"--type=merge",
			"-p",
			`{"status":{"conditions":[{"type":"Ready","status":"`+status+`"}]}}`,
		)
	}
	apply1(t, a, b.set(t, widget))
	says("False")
	set := b.set(t, widget, after("late", "Widget."+group+"/NAMESPACE/w"))
	await.Eventually(
		t,
		`err != nil && strings.Contains(err.Error(), "Widget."+group+"/"+b.ns+"/w, which is InProgress: Ready is False")`,
		func() bool {
			_, err := a.Apply(t.Context(), set)
			return err != nil && strings.Contains(err.Error(), "Widget."+group+"/"+b.ns+"/w, which is InProgress: Ready is False")
		},
	)
	says("True")
	for {
		a.waitWoken(t, "ConfigMap", "late")
		report, err := a.Apply(t.Context(), set)
		if err != nil && strings.Contains(err.Error(), "Ready is False") {
			continue // what came before has woken it
		}
		require.NoError(t, err)
		require.Equal(t, 1, report.Count(apply.Created))
		return
	}
}
