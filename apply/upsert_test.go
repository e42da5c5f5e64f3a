package apply_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/diff"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

func (b *bench) startUpsert(t *testing.T) *agent {
	t.Helper()
	a := b.start(t)
	a.Upsert = func(schema.GroupKind) bool { return true }
	return a
}

func TestUpsertCreatesIsSilentRepairsAndKeepsWhatIsNotStated(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.startUpsert(t)
	set := b.mixed(t)
	require.Equal(t, set.Len(), apply1(t, a, set).Count(apply.Created))
	require.Equal(t, set.Len(), a.net.Count("create"))
	require.Len(t, a.net.Writes(), set.Len(), "one request for each object")
	a.net.Reset()
	for range 20 {
		require.Equal(t, set.Len(), apply1(t, a, set).Unchanged)
	}
	a.net.NoRequests(t)

	// What is not stated is left to others, in every pass.
	b.kubectl(t, "scale", "-n", b.ns+"-more", "deployment/web", "--replicas=3")
	b.kubectl(t, "annotate", "-n", b.ns+"-more", "service/dns", "theirs=1")
	b.kubectl(t, "wait", "-n", b.ns+"-more", "--for=jsonpath={.status.observedGeneration}=2", "deployment/web")
	ip := b.kubectl(t, "get", "-n", b.ns+"-more", "service", "dns", "-o", "jsonpath={.spec.clusterIP}")
	for range 20 {
		apply1(t, a, set)
	}
	// And when something else of the object has to be put right.
	b.kubectl(t, "patch", "-n", b.ns+"-more", "service", "dns", "--type=merge", "-p", `{"spec":{"selector":{"app":"other"}}}`)
	a.waitWoken(t, "Service", "dns")
	await.Eventually(t, "apply1(t, a, set).Count(apply.Updated) == 1", func() bool { return apply1(t, a, set).Count(apply.Updated) == 1 })
	require.Equal(
		t,
		ip+" web 1",
		b.kubectl(
			t,
			"get",
			"-n",
			b.ns+"-more",
			"service",
			"dns",
			"-o",
			"jsonpath={.spec.clusterIP} {.spec.selector.app} {.metadata.annotations.theirs}",
		),
	)
	require.Equal(t, "3", b.kubectl(t, "get", "-n", b.ns+"-more", "deployment/web", "-o", "jsonpath={.spec.replicas}"))
	a.stop()

	again := b.startUpsert(t)
	require.Equal(t, set.Len(), apply1(t, again, set).Unchanged)
	again.net.NoWrites(t)
	require.Equal(t, set.Len(), again.net.Count("get"), "a restart reads each object once")
	again.net.Reset()
	require.Equal(t, set.Len(), apply1(t, again, set).Unchanged)
	again.net.NoRequests(t)
	report, err := again.Prune(t.Context(), b.set(t, configMap("other", "1")), apply.PruneOptions{Complete: true, Guard: noLimit()})
	require.NoError(t, err)
	require.Equal(t, set.Len(), Report(report).Count(apply.Deleted))
}

func TestUpsertGivesUpWhatIsNoLongerStated(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.startUpsert(t)
	apply1(t, a, b.set(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NAMESPACE}, data: {one: '1', two: '2'}}"))
	b.kubectl(t, "patch", "-n", b.ns, "configmap", "a", "--type=merge", "-p", `{"data":{"theirs":"3"}}`)
	require.Equal(
		t,
		1,
		apply1(
			t,
			a,
			b.set(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NAMESPACE}, data: {one: '1'}}"),
		).Count(apply.Updated),
	)
	require.Equal(t, "map[one:1 theirs:3]", b.kubectl(t, "get", "-n", b.ns, "configmap", "a", "-o", "go-template={{.data}}"))

	// One that exists is not taken over, and one deleted behind our back comes back.
	b.kubectl(t, "create", "-n", b.ns, "configmap", "foreign")
	_, err := a.Apply(t.Context(), b.set(t, configMap("foreign", "1")))
	require.ErrorIs(t, err, apply.ErrNotOurs)
	set := b.set(t, configMap("b", "1"))
	apply1(t, a, set)
	a.stop() // the view no longer hears of anything
	b.kubectl(t, "delete", "-n", b.ns, "configmap", "b")
	require.Equal(t, 1, apply1(t, a, b.set(t, configMap("b", "2"))).Count(apply.Created))
	_, err = a.Apply(
		t.Context(),
		b.set(t, "{apiVersion: v1, kind: Service, metadata: {name: bad, namespace: NAMESPACE}, spec: {ports: [{port: 70000}]}}"),
	)
	require.ErrorContains(t, err, "spec.ports[0].port")
}

func TestUpsertCarriesOutItsPlanAndNoOther(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.startUpsert(t)
	a.Recreate = []schema.GroupKind{{Group: "apps", Kind: "Deployment"}}
	apply1(t, a, b.set(t, selecting("one"), configMap("a", "1")))
	next := b.set(t, selecting("two"), configMap("a", "2"), configMap("b", "1"))
	a.net.Reset()
	plan, err := a.Plan(t.Context(), next, apply.PruneOptions{})
	require.NoError(t, err)
	a.net.NoWrites(t)
	require.Zero(t, a.net.Count("patch"), "the dry run is none of a server-side apply")
	actions := map[string]diff.Action{}
	for _, c := range plan.Changes {
		actions[c.Name] = c.Action
	}
	require.Equal(t, map[string]diff.Action{"web": diff.Recreate, "a": diff.Update, "b": diff.Create}, actions)

	// What comes about between the look and the write makes it another plan.
	for _, verb := range []string{"create", "update"} {
		a.net.Fault = func(r applytest.Request) applytest.Fault {
			if r.Writes() && r.Verb == "create" && r.Resource == "configmaps" {
				b.kubectl(t, "create", "-n", b.ns, "configmap", "b", "--from-literal=theirs=1")
			}
			return applytest.Fault{}
		}
		if verb == "update" {
			a.net.Fault = func(r applytest.Request) applytest.Fault {
				if r.Writes() && r.Verb == "update" && r.Resource == "configmaps" {
					b.kubectl(t, "delete", "-n", b.ns, "configmap", "a")
				}
				return applytest.Fault{}
			}
		}
		only := diff.Plan{Changes: slices.DeleteFunc(slices.Clone(plan.Changes), func(c diff.Change) bool {
			return c.Name != map[string]string{"create": "b", "update": "a"}[verb]
		})}
		_, err = a.Execute(t.Context(), next, apply.PruneOptions{}, only)
		require.ErrorIs(t, err, apply.ErrStalePlan, verb)
	}
	require.Equal(t, "b", b.names(t), "the deleted object was not created again")
	require.Equal(t, "map[theirs:1]", b.kubectl(t, "get", "-n", b.ns, "configmap", "b", "-o", "go-template={{.data}}"))
}
