package apply_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply"
)

func selecting(app string) string {
	return "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: NAMESPACE}, spec: {replicas: 0, selector: {matchLabels: {app: " + app +
		"}}, template: {metadata: {labels: {app: " + app + "}}, spec: {containers: [{name: main, image: example.com/web}]}}}}"
}

func (b *bench) uid(t *testing.T, kind string) string {
	t.Helper()
	return b.kubectl(t, "get", "-n", b.ns, kind, "web", "-o", "jsonpath={.metadata.uid}")
}

func TestAnImmutableFieldIsChangedByRecreationOnlyIfAsked(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	apply1(t, a, b.set(t, selecting("one"), configMap("a", "1")))
	before := b.uid(t, "deployment")
	changed := b.set(t, selecting("two"), configMap("a", "2"))
	report, err := a.Apply(t.Context(), changed)
	require.ErrorContains(t, err, "field is immutable")
	require.Equal(t, 1, report.Count(apply.Failed))
	require.Equal(t, 1, report.Count(apply.Updated), "the others go on")
	require.Equal(t, before, b.uid(t, "deployment"))
	require.Zero(t, a.net.Count("delete"))

	// Another kind named is not this one.
	again := b.start(t)
	again.Recreate = []schema.GroupKind{{Group: "apps", Kind: "StatefulSet"}}
	_, err = again.Apply(t.Context(), changed)
	require.ErrorContains(t, err, "field is immutable")
	require.Zero(t, again.net.Count("delete"))

	named := b.start(t)
	named.Recreate = []schema.GroupKind{{Group: "apps", Kind: "Deployment"}}
	report, err = named.Apply(t.Context(), changed)
	require.NoError(t, err)
	require.Equal(t, 1, report.Count(apply.Recreated))
	require.Equal(t, 1, named.net.Count("delete"))
	require.NotEqual(t, before, b.uid(t, "deployment"))
	require.Equal(t, "two", b.kubectl(t, "get", "-n", b.ns, "deployment", "web", "-o", "jsonpath={.spec.selector.matchLabels.app}"))
	require.Equal(t, 2, apply1(t, named, changed).Unchanged)
}

func TestPeersDefect2ARecreationHeldByAFinalizerDeletesOnce(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	a.Recreate = []schema.GroupKind{{Group: "apps", Kind: "Deployment"}}
	apply1(t, a, b.set(t, selecting("one")))
	b.kubectl(t, "patch", "-n", b.ns, "deployment", "web", "--type=merge", "-p", `{"metadata":{"finalizers":["example.com/hold"]}}`)
	changed := b.set(t, selecting("two"))
	for range 20 {
		report, err := a.Apply(t.Context(), changed)
		require.ErrorIs(t, err, apply.ErrTerminating)
		require.Equal(t, 1, report.Count(apply.Waiting))
	}
	require.Equal(t, 1, a.net.Count("delete"))
	require.Len(t, a.net.Writes(), 4, "create, the refused change, one deletion, the refused creation")

	b.kubectl(t, "patch", "-n", b.ns, "deployment", "web", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	a.waitWoken(t, "Deployment", "web")
	require.Equal(t, 1, apply1(t, a, changed).Count(apply.Created))
	require.Equal(t, 1, a.net.Count("delete"))
}

func TestPeersDefect1AnInvalidObjectIsNeverDeleted(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	a.Recreate = []schema.GroupKind{{Group: "apps", Kind: "Deployment"}, {Kind: "Service"}}
	service := func(port string) string {
		return "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: NAMESPACE}, spec: {ports: [{port: " + port + "}]}}"
	}
	apply1(t, a, b.set(t, selecting("one"), service("80")))
	deployment, svc := b.uid(t, "deployment"), b.uid(t, "service")
	// An immutable field and an invalid one in one object, and an invalid object.
	both := "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: NAMESPACE}, spec: {replicas: -1, selector: {matchLabels: {app: two}}," +
		" template: {metadata: {labels: {app: two}}, spec: {containers: [{name: main, image: example.com/web}]}}}}"
	for range 3 {
		report, err := a.Apply(t.Context(), b.set(t, both, service("70000"), configMap("a", time.Now().String())))
		require.ErrorContains(t, err, "spec.replicas")
		require.ErrorContains(t, err, "spec.ports[0].port")
		require.Equal(t, 2, report.Count(apply.Failed))
	}
	require.Zero(t, a.net.Count("delete"))
	require.Equal(t, deployment, b.uid(t, "deployment"))
	require.Equal(t, svc, b.uid(t, "service"))
}
