package apply_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/diff"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

func TestAnUpsertThatIsOvertakenReadsAgain(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.startUpsert(t)
	apply1(t, a, b.set(t, configMap("a", "1")))
	a.deaf(once(func(r applytest.Request) bool { return r.Verb == "update" }, func() {
		b.kubectl(t, "patch", "-n", b.ns, "configmap", "a", "--type=merge", "-p", `{"data":{"theirs":"1"}}`)
	}))
	require.Equal(t, 1, apply1(t, a, b.set(t, configMap("a", "2"))).Count(apply.Updated))
	require.Equal(t, 2, a.net.Count("update"), "refused, as the object had changed since it was read")
	require.Equal(t, "map[key:2 theirs:1]", b.kubectl(t, "get", "-n", b.ns, "configmap", "a", "-o", "go-template={{.data}}"))

	// A planned change is made in the planned version, or not at all.
	next := b.set(t, configMap("a", "3"))
	plan, err := a.Plan(t.Context(), next, apply.PruneOptions{})
	require.NoError(t, err)
	a.net.Reset()
	a.net.Fault = once(func(r applytest.Request) bool { return r.Verb == "get" && len(a.net.Requests()) == 2 }, func() {
		b.kubectl(t, "patch", "-n", b.ns, "configmap", "a", "--type=merge", "-p", `{"data":{"key":"theirs"}}`)
	})
	_, err = a.Execute(t.Context(), next, apply.PruneOptions{}, plan)
	require.ErrorIs(t, err, apply.ErrStalePlan)
	require.Equal(t, "theirs", b.kubectl(t, "get", "-n", b.ns, "configmap", "a", "-o", "jsonpath={.data.key}"))
}

func TestAnUpsertRecreatesWhatIsImmutable(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.startUpsert(t)
	a.Recreate = []schema.GroupKind{{Group: "apps", Kind: "Deployment"}}
	apply1(t, a, b.set(t, selecting("one")))
	before := b.uid(t, "deployment")
	require.Equal(t, 1, apply1(t, a, b.set(t, selecting("two"))).Count(apply.Recreated))
	require.NotEqual(t, before, b.uid(t, "deployment"))
}

func TestAPlanHoldsBackWhatAPruneWould(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	more := "{apiVersion: v1, kind: Namespace, metadata: {name: NAMESPACE-more}}"
	inside := "{apiVersion: v1, kind: ConfigMap, metadata: {name: inside, namespace: NAMESPACE-more}}"
	apply1(t, a, b.set(t, configMap("a", "1"), configMap("b", "1"), more, inside))
	keep := b.set(t, configMap("a", "1"), inside)

	options := complete
	options.Orphan = func(o apply.Observed) bool { return o.ID.Name == "b" }
	plan, err := a.Plan(t.Context(), keep, options)
	require.ErrorIs(t, err, apply.ErrNeeded, "it says what Prune would refuse")
	require.Len(t, plan.Changes, 1)
	require.Equal(t, diff.Release, plan.Changes[0].Action)
	a.net.Reset()
	_, err = a.Execute(t.Context(), keep, options, diff.Plan{})
	require.NoError(t, err)
	a.net.NoWrites(t) // nothing was approved
	stale := plan
	stale.Changes = []diff.Change{plan.Changes[0]}
	stale.Changes[0].Action = diff.Delete
	_, err = a.Execute(t.Context(), keep, options, stale)
	require.ErrorIs(t, err, apply.ErrStalePlan, "a deletion is not a release")

	options = complete
	options.Guard = &apply.Guard{Absent: apply.Limit{Count: -1}}
	plan, err = a.Plan(t.Context(), keep, options)
	require.ErrorContains(t, err, "the limit is 0, so these are held")
	require.Empty(t, plan.Changes)

	options = complete
	options.Grace = func(schema.GroupKind) apply.Grace { return apply.Grace{Passes: 2} }
	for range 3 {
		_, err = a.Plan(t.Context(), b.set(t, configMap("a", "1"), more, inside), options)
		require.NoError(t, err)
	}
	report, err := a.Prune(t.Context(), b.set(t, configMap("a", "1"), more, inside), options)
	require.NoError(t, err)
	require.Equal(t, 1, report.Pending, "a plan counts as no pass")
}

func TestAnExecutionWaitsForWhatItDependsOn(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	web := strings.Replace(selecting("one"), "replicas: 0", "replicas: 1", 1) // no scheduler runs: its pod stays pending
	set := b.set(t, web, after("late", "Deployment.apps/NAMESPACE/web"))
	plan, err := a.Plan(t.Context(), set, apply.PruneOptions{})
	require.NoError(t, err)
	require.Len(t, plan.Changes, 2)
	report, err := a.Execute(t.Context(), set, apply.PruneOptions{}, plan)
	require.ErrorIs(t, err, apply.ErrBlocked)
	require.Equal(t, 1, report.Count(apply.Created))
	require.Equal(t, 1, report.Count(apply.Waiting))
}

func TestPruneIsInDoubtAboutMuch(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	var all []string
	for name := range strings.SplitSeq("abcdefg", "") {
		all = append(all, after(name, "Namespace/NAMESPACE-more"))
	}
	more := "{apiVersion: v1, kind: Namespace, metadata: {name: NAMESPACE-more}}"
	all = append(all, more)
	apply1(t, a, b.set(t, all...))
	keep := b.set(t, more, all[0])

	options := complete
	options.Orphan = func(apply.Observed) bool { return true }
	_, err := a.Prune(t.Context(), keep, options)
	require.ErrorContains(t, err, "6 of 8 units", "a release counts like a deletion")

	options = complete
	options.Guard = noLimit()
	options.Gone = func(apply.Observed) bool { return true }
	options.Keep = func(apply.Observed) bool { return true }
	report, err := a.Prune(t.Context(), keep, options)
	require.NoError(t, err)
	require.Empty(t, report.Results, "kept objects stay, even if named as deleted")

	options.Keep = func(o apply.Observed) bool { return o.ID.Name != "b" && o.ID.Name != "c" }
	options.Orphan = func(o apply.Observed) bool { return o.ID.Name == "c" }
	b.kubectl(t, "patch", "-n", b.ns, "configmap", "b", "--type=merge", "-p", `{"metadata":{"finalizers":["example.com/hold"]}}`)
	await.Eventually(t, "err == nil && len(report.Results) == 0", func() bool {
		a.net.Reset()
		report, err = a.Prune(t.Context(), keep, options)
		return err == nil && len(report.Results) == 0 // after the watch has told of the finalizer, and of the release
	})
	a.net.NoWrites(t)
	require.Empty(
		t,
		b.kubectl(t, "get", "-n", b.ns, "configmap", "c", "-o", `go-template={{with .metadata.annotations}}{{.}}{{end}}`),
		"nothing of ours is left",
	)
	again := b.start(t)
	for range 2 {
		report, err = again.Prune(t.Context(), keep, options)
		require.NoError(t, err)
		require.Empty(t, report.Results)
	}
	again.net.NoWrites(t) // an object being deleted is not deleted again, after a restart, too
	b.kubectl(t, "patch", "-n", b.ns, "configmap", "b", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)

	// What carries our labels and is not proven to be ours stays, and so does its
	// namespace.
	again.net.Freeze()
	b.kubectl(t, "create", "-n", b.ns+"-more", "configmap", "d")
	b.kubectl(t, "label", "-n", b.ns+"-more", "configmap", "d", "example.com/owner="+b.ns)
	options = complete
	options.Guard = noLimit()
	prune := func() error {
		_, err := again.Prune(t.Context(), b.set(t, configMap("a", "1")), options)
		return err
	}
	require.ErrorContains(t, prune(), "1 objects of others would go with it, such as ConfigMap d", "also before the watch has shown it")
	again.net.Thaw()
	await.Eventually(t, "ConfigMap/"+b.ns+"-more/d must stay", func() bool {
		err = prune()
		return err != nil && strings.Contains(err.Error(), "ConfigMap/"+b.ns+"-more/d must stay")
	}, func() string { return fmt.Sprint(err) })
	b.kubectl(t, "get", "namespace", b.ns+"-more", "-o", "jsonpath={.status.phase}")
}

func TestAWishThatChangedWhileWeWereDownIsApplied(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	apply1(t, a, b.set(t, configMap("a", "1")))
	a.stop()
	require.Equal(t, 1, apply1(t, b.start(t), b.set(t, configMap("a", "2"))).Count(apply.Updated))
	require.Equal(t, "2", b.kubectl(t, "get", "-n", b.ns, "configmap", "a", "-o", "jsonpath={.data.key}"))
}

func TestAFailureEndsTheWaitForReadiness(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	claim := "{apiVersion: v1, kind: Service, metadata: {name: a, namespace: NAMESPACE}, spec: {type: LoadBalancer, ports: [{port: 1}]}}"
	set := b.set(t, claim, configMap("a", "1"))
	apply1(t, a, set)
	b.kubectl(
		t,
		"patch",
		"-n",
		b.ns,
		"service",
		"a",
		"--subresource=status",
		"--type=merge",
		"-p",
		`{"status":{"conditions":[{"type":"Stalled","status":"True","reason":"NoQuota","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`,
	)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	await.Eventually(t, `err != nil && strings.Contains(err.Error(), "Service/"+b.ns+"/a is Failed: Stalled is True, NoQuota")`, func() bool {
		err := a.WaitReady(ctx, set)
		return err != nil && strings.Contains(err.Error(), "Service/"+b.ns+"/a is Failed: Stalled is True, NoQuota")
	})
	require.NoError(t, ctx.Err(), "it does not wait for what has failed")
}

func TestAReleaseAndAnOrphanKeepWhatTheyHad(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	b.owner.ApplySet = apply.ID{Kind: "ConfigMap", Namespace: b.ns, Name: "everything"}
	a := b.start(t)
	apply1(t, a, b.set(t, configMap("a", "1"), configMap("b", "1"), selecting("one")))
	b.kubectl(t, "wait", "-n", b.ns, "--for=jsonpath={.status.observedGeneration}=1", "deployment/web")
	options := complete
	options.Orphan = func(o apply.Observed) bool { return o.ID.Name == "b" }
	options.Propagation = metav1.DeletePropagationOrphan
	_, err := a.Prune(t.Context(), b.set(t, configMap("a", "1")), options)
	require.NoError(t, err)
	require.Empty(t, b.kubectl(t, "get", "-n", b.ns, "configmap", "b", "-o", `go-template={{with .metadata.labels}}{{.}}{{end}}`))
	b.kubectl(t, "wait", "-n", b.ns, "--for=delete", "--timeout=20s", "deployment/web")
	require.Equal(
		t,
		"web ",
		b.kubectl(
			t,
			"get",
			"-n",
			b.ns,
			"replicaset",
			"-o",
			`go-template={{range .items}}web {{with .metadata.ownerReferences}}{{.}}{{end}}{{end}}`,
		),
	)
}
