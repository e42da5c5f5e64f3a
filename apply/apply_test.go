package apply_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

func TestObjectsAreCreatedOnceAndThenCostNoRequest(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	set := b.mixed(t)
	report := apply1(t, a, set)
	require.Equal(t, set.Len(), report.Count(apply.Created))
	require.Len(t, b.requests(t), set.Len(), "one request for each object")

	for range 3 {
		require.Equal(t, apply.Report{Unchanged: set.Len()}, apply1(t, a, set))
	}
	// Once more when the watch has caught up with what we wrote, and the
	// deployment controller with its status.
	b.kubectl(t, "wait", "-n", b.ns+"-more", "--for=jsonpath={.status.observedGeneration}=1", "deployment/web")
	require.Equal(t, apply.Report{Unchanged: set.Len()}, apply1(t, a, b.mixed(t)))
	require.Len(t, b.requests(t), set.Len(), "not one more")
	require.Zero(t, a.drifts.Load(), "our own writes start no pass")
}

func TestARestartSendsNothingButListsAndWatches(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	set := b.mixed(t)
	apply1(t, a, set)
	a.stop()
	before := b.requests(t)

	again := b.start(t)
	require.Equal(t, apply.Report{Unchanged: set.Len()}, apply1(t, again, b.mixed(t)))
	require.Equal(t, apply.Report{Unchanged: set.Len()}, apply1(t, again, b.mixed(t)))
	require.Equal(t, before, b.requests(t))
}

func TestAForeignEditIsRepairedAndForeignFieldsStay(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	set := b.set(t, configMap("a", "right"), configMap("b", "right"))
	apply1(t, a, set)
	b.kubectl(t, "patch", "-n", b.ns, "configmap", "a", "--type=merge", "-p", `{"data":{"key":"wrong","theirs":"x"}}`)
	a.waitWoken(t, "ConfigMap", "a")
	before := len(b.requests(t))
	report := apply1(t, a, set)
	require.Equal(t, 1, report.Unchanged)
	require.Equal(t, []apply.Result{{ID: apply.ID{Kind: "ConfigMap", Namespace: b.ns, Name: "a"}, Action: apply.Updated}}, report.Results)
	require.Len(t, b.requests(t), before+1)
	require.Equal(t, "right x", b.kubectl(t, "get", "-n", b.ns, "configmap", "a", "-o", "jsonpath={.data.key} {.data.theirs}"))
	require.Equal(t, 2, apply1(t, a, set).Unchanged)

	// Set to another value and back: the server has taken the field from us.
	b.kubectl(t, "patch", "-n", b.ns, "configmap", "a", "--type=merge", "-p", `{"data":{"key":"wrong"}}`)
	b.kubectl(t, "patch", "-n", b.ns, "configmap", "a", "--type=merge", "-p", `{"data":{"key":"right"}}`)
	a.waitWoken(t, "ConfigMap", "a")
	await.Eventually(t, "apply1(t, a, set).Count(apply.Updated) == 1", func() bool { return apply1(t, a, set).Count(apply.Updated) == 1 })
	require.Equal(t, 2, apply1(t, a, set).Unchanged)
}

func TestAnEditedSecretIsRepairedKeyByKey(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	secret := "{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: NAMESPACE}, stringData: {password: hunter2, other: x}, data: {more: eA==}}"
	set := b.set(t, secret)
	apply1(t, a, set)
	b.kubectl(t, "patch", "-n", b.ns, "secret", "s", "--type=merge", "-p", `{"stringData":{"password":"theirs"}}`)
	a.waitWoken(t, "Secret", "s")
	plan, err := a.Plan(t.Context(), set, apply.PruneOptions{})
	require.NoError(t, err)
	require.Equal(t, ".data.password", plan.Changes[0].Fields[0].Path)
	require.NotContains(t, plan.String(), "aHVudGVyMg", "secret values are not shown")
	require.NotContains(t, plan.String(), "dGhlaXJz")
	require.Equal(t, 1, apply1(t, a, set).Count(apply.Updated))
	require.Equal(
		t,
		"aHVudGVyMg== eA== eA==",
		b.kubectl(t, "get", "-n", b.ns, "secret", "s", "-o", "jsonpath={.data.password} {.data.other} {.data.more}"),
	)
	require.Equal(t, 1, apply1(t, a, set).Unchanged)
	// A key that is no longer stated goes away.
	apply1(t, a, b.set(t, strings.Replace(secret, ", other: x", "", 1)))
	require.Equal(
		t,
		"aHVudGVyMg== eA==",
		b.kubectl(t, "get", "-n", b.ns, "secret", "s", "-o", "jsonpath={.data.password} {.data.other}{.data.more}"),
	)
}

func TestADeletedObjectComesBack(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	set := b.set(t, configMap("a", "1"))
	apply1(t, a, set)
	b.kubectl(t, "delete", "-n", b.ns, "configmap", "a")
	a.waitWoken(t, "ConfigMap", "a")
	require.Equal(t, 1, apply1(t, a, set).Count(apply.Created))
	b.kubectl(t, "get", "-n", b.ns, "configmap", "a")
}

func TestAStrippedLabelIsPutBack(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	set := b.set(t, configMap("a", "1"))
	apply1(t, a, set)
	b.kubectl(t, "label", "-n", b.ns, "configmap", "a", "example.com/owner-")
	a.waitWoken(t, "ConfigMap", "a")
	a.net.Reset()
	require.Equal(t, 1, apply1(t, a, set).Count(apply.Updated))
	require.Equal(t, 1, a.net.Count("patch")+a.net.Count("get"), "one request")
	require.Equal(
		t,
		"a",
		b.kubectl(t, "get", "-n", b.ns, "configmap", "-l", "example.com/owner="+b.ns, "-o", "jsonpath={.items[*].metadata.name}"),
	)
	require.Equal(t, 1, apply1(t, a, set).Unchanged)
}

func TestAForeignObjectOfTheSameNameIsRefused(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	b.kubectl(t, "create", "-n", b.ns, "configmap", "a", "--from-literal=theirs=1")
	before := b.kubectl(t, "get", "-n", b.ns, "configmap", "a", "-o", "yaml")
	a := b.start(t)
	set := b.set(t, configMap("a", "1"), configMap("b", "1"))
	report, err := a.Apply(t.Context(), set)
	require.ErrorIs(t, err, apply.ErrNotOurs)
	require.ErrorContains(t, err, `ConfigMap/`+b.ns+`/a: belongs to another owner: it was made by ["kubectl-create"]`)
	require.Equal(t, 1, report.Count(apply.Refused))
	require.Equal(t, 1, report.Count(apply.Created))
	require.Equal(t, before, b.kubectl(t, "get", "-n", b.ns, "configmap", "a", "-o", "yaml"))
	sent := len(b.requests(t))
	_, err = a.Apply(t.Context(), set)
	require.ErrorIs(t, err, apply.ErrNotOurs)
	require.Len(t, b.requests(t), sent, "it is not asked again at once")

	a.Adoption = apply.AdoptForeign
	require.Equal(t, 1, apply1(t, a, set).Count(apply.Updated))
	require.Equal(t, "1 1", b.kubectl(t, "get", "-n", b.ns, "configmap", "a", "-o", "jsonpath={.data.key} {.data.theirs}"))
}

func TestAnotherOwnersObjectIsNeverTaken(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	a.Adoption = apply.AdoptForeign
	set := b.set(t, configMap("a", "1"))
	apply1(t, a, set)
	b.kubectl(t, "label", "--overwrite", "-n", b.ns, "configmap", "a", "example.com/owner=another")
	a.waitWoken(t, "ConfigMap", "a")
	before := b.kubectl(t, "get", "-n", b.ns, "configmap", "a", "-o", "yaml")
	report, err := a.Apply(t.Context(), set)
	require.ErrorIs(t, err, apply.ErrNotOurs)
	require.Equal(t, 1, report.Count(apply.Refused))
	require.Equal(t, before, b.kubectl(t, "get", "-n", b.ns, "configmap", "a", "-o", "yaml"))
}

func TestPeersDefect3AnInvalidObjectHoldsBackNoOther(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	bad := "{apiVersion: v1, kind: Service, metadata: {name: bad, namespace: NAMESPACE}, spec: {ports: [{port: 70000}]}}"
	worse := "{apiVersion: v1, kind: ConfigMap, metadata: {name: Worse, namespace: NAMESPACE}}"
	set := b.set(t, configMap("a", "1"), bad, worse, configMap("b", "1"))
	report, err := a.Apply(t.Context(), set)
	require.ErrorContains(t, err, "spec.ports[0].port: Invalid value: 70000")
	require.ErrorContains(t, err, "Worse")
	require.Equal(t, 2, report.Count(apply.Created))
	require.Equal(t, 2, report.Count(apply.Failed))

	// They stay reported, and are not sent again until something changes.
	before := len(b.requests(t))
	again, err := a.Apply(t.Context(), set)
	require.ErrorContains(t, err, "spec.ports[0].port: Invalid value: 70000")
	require.Equal(t, 2, again.Count(apply.Failed))
	require.Equal(t, 2, again.Unchanged)
	require.Len(t, b.requests(t), before)
	good := "{apiVersion: v1, kind: Service, metadata: {name: bad, namespace: NAMESPACE}, spec: {ports: [{port: 7000}]}}"
	require.Equal(t, 1, apply1(t, a, b.set(t, configMap("a", "1"), good, configMap("b", "1"))).Count(apply.Created))
}

func TestAnUnknownKindHoldsBackNoOther(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	gadget := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"}
	a := b.startUnsynced(t, gadget)
	await.Eventually(t, "err != nil && synced == len(kinds)", func() bool {
		_, err := a.Live.Synced(gadget.GroupKind())
		synced := 0
		for _, kind := range kinds {
			if ok, _ := a.Live.Synced(kind.GroupKind()); ok {
				synced++
			}
		}
		return err != nil && synced == len(kinds)
	})
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorContains(
		t,
		a.Live.WaitSynced(soon),
		"Gadget.example.com: the live state is not known: the server could not find the requested resource",
	)

	object := "{apiVersion: example.com/v1, kind: Gadget, metadata: {name: a, namespace: NAMESPACE}}"
	unwatched := "{apiVersion: batch/v1, kind: Job, metadata: {name: a, namespace: NAMESPACE}}"
	homeless := "{apiVersion: v1, kind: ConfigMap, metadata: {name: homeless}}"
	housed := "{apiVersion: v1, kind: Namespace, metadata: {name: housed, namespace: NAMESPACE}}"
	report, err := a.Apply(t.Context(), b.set(t, configMap("a", "1"), object, unwatched, homeless, housed))
	require.ErrorIs(t, err, apply.ErrNotSynced)
	require.ErrorContains(t, err, "Job.batch/"+b.ns+"/a: the live state is not known\nno matches for kind")
	require.ErrorContains(t, err, "ConfigMap/homeless: metadata.namespace is required")
	require.ErrorContains(t, err, `housed: metadata.namespace is "`+b.ns+`"; leave it out`)
	require.Equal(t, 1, report.Count(apply.Created))
	require.Equal(t, 2, report.Count(apply.Waiting))
	require.Equal(t, 2, report.Count(apply.Refused))
}

func TestATerminatingNamespaceIsWaitedFor(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	namespace := "{apiVersion: v1, kind: Namespace, metadata: {name: NAMESPACE-more}}"
	held := "{apiVersion: v1, kind: ConfigMap, metadata: {name: held, namespace: NAMESPACE-more, finalizers: [example.com/hold]}}"
	inside := "{apiVersion: v1, kind: ConfigMap, metadata: {name: inside, namespace: NAMESPACE-more}}"
	apply1(t, a, b.set(t, namespace, held))
	b.kubectl(t, "delete", "namespace", b.ns+"-more", "--wait=false")
	set := b.set(t, namespace, inside)
	id := apply.ID{Kind: "Namespace", Name: b.ns + "-more"}
	await.Eventually(t, "what it waits for, at ./apply/apply_test.go", func() bool {
		for o := range a.Live.All() {
			if o.ID == id && o.Deleting {
				return true
			}
		}
		return false
	})
	before := len(b.requests(t))
	report, err := a.Apply(t.Context(), set)
	require.ErrorIs(t, err, apply.ErrTerminating)
	require.ErrorIs(t, err, apply.ErrBlocked)
	require.Equal(t, 2, report.Count(apply.Waiting))
	require.Len(t, b.requests(t), before, "it is not fought")

	b.kubectl(t, "patch", "-n", b.ns+"-more", "configmap", "held", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	a.waitWoken(t, "Namespace", b.ns+"-more")
	require.Equal(t, 2, apply1(t, a, set).Count(apply.Created))
}

func TestADesiredChangeIsOneRequest(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	apply1(t, a, b.set(t, configMap("a", "1"), configMap("b", "1")))
	report := apply1(t, a, b.set(t, configMap("a", "2"), configMap("b", "1")))
	require.Equal(t, 1, report.Count(apply.Updated))
	require.Equal(t, 1, report.Unchanged)
	require.Len(t, b.requests(t), 3)
	require.Equal(t, "2", b.kubectl(t, "get", "-n", b.ns, "configmap", "a", "-o", "jsonpath={.data.key}"))

	// A field that is no longer stated goes away.
	require.Equal(
		t,
		1,
		apply1(
			t,
			a,
			b.set(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NAMESPACE}}", configMap("b", "1")),
		).Count(apply.Updated),
	)
	require.Empty(t, b.kubectl(t, "get", "-n", b.ns, "configmap", "a", "-o", "jsonpath={.data}"))
}

func TestPeersDefect13WipedManagedFieldsAreNoticedOnce(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	set := b.set(t, configMap("a", "1"))
	apply1(t, a, set)
	b.kubectl(t, "patch", "-n", b.ns, "configmap", "a", "--type=merge", "-p", `{"metadata":{"managedFields":[{}]}}`)
	a.waitWoken(t, "ConfigMap", "a")
	require.Equal(t, 1, apply1(t, a, set).Count(apply.Updated))
	require.Equal(t, 1, apply1(t, a, set).Unchanged)
}

func TestAnApplyWhoseAnswerWasLostIsRecognised(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	// What is left of an apply whose answer was lost is an object on the server
	// and nothing in memory: as if another start of the program had made it.
	set := b.set(t, configMap("a", "1"))
	a := b.start(t)
	other := b.start(t)
	apply1(t, other, set)
	await.Eventually(t, "what it waits for, at ./apply/apply_test.go", func() bool {
		for range a.Live.All() {
			return true
		}
		return false
	})
	before := len(b.requests(t))
	require.Equal(t, 1, apply1(t, a, set).Unchanged)
	require.Len(t, b.requests(t), before)
}

func TestPeersDefect12ReplicasLeftToAnAutoscalerAreNotTouched(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	set := b.mixed(t)
	apply1(t, a, set)
	b.kubectl(t, "scale", "-n", b.ns+"-more", "deployment/web", "--replicas=3")
	b.kubectl(t, "wait", "-n", b.ns+"-more", "--for=jsonpath={.status.observedGeneration}=2", "deployment/web")
	before := len(b.requests(t))
	require.Equal(t, set.Len(), apply1(t, a, set).Unchanged)
	require.Len(t, b.requests(t), before)
	require.Zero(t, a.drifts.Load())
	require.Equal(t, "3", b.kubectl(t, "get", "-n", b.ns+"-more", "deployment/web", "-o", "jsonpath={.spec.replicas}"))
}

func TestAForeignSuccessorIsNotTakenOver(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	apply1(t, a, b.set(t, configMap("a", "1")))
	a.stop() // the view no longer hears of anything
	b.kubectl(t, "delete", "-n", b.ns, "configmap", "a")
	b.kubectl(t, "create", "-n", b.ns, "configmap", "a", "--from-literal=theirs=1")
	before := b.kubectl(t, "get", "-n", b.ns, "configmap", "a", "-o", "yaml")
	report, err := a.Apply(t.Context(), b.set(t, configMap("a", "2")))
	require.ErrorIs(t, err, apply.ErrNotOurs)
	require.Equal(t, 1, report.Count(apply.Refused))
	require.Equal(t, before, b.kubectl(t, "get", "-n", b.ns, "configmap", "a", "-o", "yaml"))
}

func TestPeersDefect11AStaleViewNeitherCreatesTwiceNorSurfaces(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	b.start(t).stop()
	a.stop()
	set := b.set(t, configMap("a", "1"), configMap("b", "1"))
	require.Equal(t, 2, apply1(t, a, set).Count(apply.Created))
	require.Equal(t, 2, apply1(t, a, set).Unchanged, "what we wrote is known, although the watch never told")
	b.kubectl(t, "delete", "-n", b.ns, "configmap", "a")
	report := apply1(t, a, b.set(t, configMap("a", "2"), configMap("b", "1")))
	require.Equal(t, 1, report.Count(apply.Created), "the server says that it was deleted")
	require.Equal(t, 1, report.Unchanged)
}

func TestDriftWhileWeWereDownIsRepairedAfterARestart(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	set := b.mixed(t)
	apply1(t, a, set)
	a.stop()
	b.kubectl(t, "patch", "-n", b.ns+"-more", "service", "dns", "--type=merge", "-p", `{"spec":{"selector":{"app":"other"}}}`)
	before := len(b.requests(t))
	again := b.start(t)
	report := apply1(t, again, set)
	require.Equal(t, 1, report.Count(apply.Updated))
	require.Equal(t, set.Len()-1, report.Unchanged)
	require.Len(t, b.requests(t), before+1)
	require.Equal(t, "web", b.kubectl(t, "get", "-n", b.ns+"-more", "service", "dns", "-o", "jsonpath={.spec.selector.app}"))
}

func TestAConflictIsReportedAndNotForcedWhenAskedSo(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	a.Conflicts = apply.ReportConflicts
	set := b.set(t, configMap("a", "1"), configMap("b", "1"))
	apply1(t, a, set)
	b.kubectl(t, "patch", "-n", b.ns, "configmap", "a", "--type=merge", "-p", `{"data":{"key":"theirs"}}`, "--field-manager=somebody")
	a.waitWoken(t, "ConfigMap", "a")
	report, err := a.Apply(t.Context(), set)
	require.ErrorContains(t, err, `ConfigMap/`+b.ns+`/a: owned with another value: .data.key by "somebody"`)
	conflict, ok := errors.AsType[*apply.ConflictError](err)
	require.True(t, ok)
	require.Equal(t, []apply.Conflict{{Field: ".data.key", Manager: "somebody"}}, conflict.Conflicts)
	require.Equal(t, 1, report.Count(apply.Refused))
	require.Equal(t, 1, report.Unchanged)
	require.Equal(t, "theirs", b.kubectl(t, "get", "-n", b.ns, "configmap", "a", "-o", "jsonpath={.data.key}"))
	sent := len(b.requests(t))
	_, err = a.Apply(t.Context(), set)
	require.Error(t, err)
	require.Len(t, b.requests(t), sent, "it is not tried again at once")

	a.Conflicts = apply.ForceConflicts
	require.Equal(t, 1, apply1(t, a, set).Count(apply.Updated))
	require.Equal(t, "1", b.kubectl(t, "get", "-n", b.ns, "configmap", "a", "-o", "jsonpath={.data.key}"))
}
