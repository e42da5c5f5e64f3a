package apply_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

// observed returns the names of the ConfigMaps that the view shows.
func (a *agent) observed() string {
	names := map[string]bool{}
	for o := range a.Live.All() {
		if o.ID.Kind == "ConfigMap" {
			names[o.ID.Name] = true
		}
	}
	var b strings.Builder
	for _, name := range []string{"a", "b", "c", "d"} {
		if names[name] {
			b.WriteString(name)
		}
	}
	return b.String()
}

func (b *bench) labelled(t *testing.T, name string) {
	t.Helper()
	b.kubectl(t, "create", "-n", b.ns, "configmap", name)
	b.kubectl(t, "label", "-n", b.ns, "configmap", name, "example.com/owner="+b.ns)
}

func TestWhatLostWatchesDidNotTellIsSeen(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	set := b.set(t, configMap("a", "1"))
	apply1(t, a, set)
	// Whatever becomes of the watches, what happened meanwhile is seen.
	for i, lose := range []func(){a.net.Cut, a.net.Expire} {
		b.kubectl(t, "patch", "-n", b.ns, "configmap", "a", "--type=merge", "-p", fmt.Sprintf(`{"data":{"key":"x%d"}}`, i))
		a.waitWoken(t, "ConfigMap", "a")
		apply1(t, a, set)
		a.net.Freeze()
		b.labelled(t, string(rune('b'+i)))
		lose()
		a.net.Thaw()
		want := "abc"[:2+i]
		await.Eventually(t, "a.observed() == want", func() bool { return a.observed() == want })
	}
	require.Equal(t, 1, apply1(t, a, set).Unchanged)
}

func TestAReplayedWatchChangesNothing(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	set := b.set(t, configMap("a", "1"), configMap("b", "1"))
	apply1(t, a, set)
	apply1(t, a, b.set(t, configMap("a", "2"), configMap("b", "1")))
	b.kubectl(t, "delete", "-n", b.ns, "configmap", "b")
	a.waitWoken(t, "ConfigMap", "b")
	set = b.set(t, configMap("a", "2"))
	require.Equal(t, 1, apply1(t, a, set).Unchanged)
	a.net.Reset()
	for range 3 {
		a.net.Replay()
		b.labelled(t, "c") // after which the replay is through
		await.Eventually(t, `strings.Contains(a.observed(), "c")`, func() bool { return strings.Contains(a.observed(), "c") })
		require.Equal(t, 1, apply1(t, a, set).Unchanged, "old words change nothing")
		b.kubectl(t, "delete", "-n", b.ns, "configmap", "c")
		await.Eventually(t, `!strings.Contains(a.observed(), "c")`, func() bool { return !strings.Contains(a.observed(), "c") })
	}
	a.net.NoWrites(t)
}

func TestAFrozenWatchMisleadsNobody(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	a.net.Freeze()
	set := b.set(t, configMap("a", "1"), configMap("b", "1"))
	require.Equal(t, 2, apply1(t, a, set).Count(apply.Created))
	require.Len(t, a.net.Writes(), 2, "no second create")
	require.Equal(t, 2, apply1(t, a, set).Unchanged)
	// Deleted and made again by another manager, which the view does not show.
	b.kubectl(t, "delete", "-n", b.ns, "configmap", "b")
	b.kubectl(t, "create", "-n", b.ns, "configmap", "b", "--from-literal=theirs=1")
	_, err := a.Apply(t.Context(), b.set(t, configMap("a", "1"), configMap("b", "2")))
	require.ErrorIs(t, err, apply.ErrNotOurs)
	_, err = a.Prune(t.Context(), b.set(t, configMap("a", "1")), complete)
	require.ErrorContains(t, err, "UID in the precondition")
	require.Equal(t, "map[theirs:1]", b.kubectl(t, "get", "-n", b.ns, "configmap", "b", "-o", "go-template={{.data}}"))
	a.net.Thaw()
	await.Eventually(t, `a.observed() == "a"`, func() bool { return a.observed() == "a" })
}

func TestRightsInSomeNamespacesAreEnough(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	for _, ns := range []string{b.ns, b.ns + "-two"} {
		if ns != b.ns {
			b.kubectl(t, "create", "namespace", ns)
		}
		require.NoError(t, b.cluster.Apply(t.Context(), strings.ReplaceAll(`
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: agent, namespace: NS}, rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list, watch, create, patch, delete]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: agent, namespace: NS}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: agent}, subjects: [{kind: User, name: `+b.user+`}]}
`, "NS", ns)))
	}
	b.config.Impersonate = rest.ImpersonationConfig{UserName: b.user}
	everywhere := b.startKinds(t, nil, schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
	soon, cancel := contextWithTimeout(t, 2*time.Second)
	defer cancel()
	require.ErrorContains(t, everywhere.Live.WaitSynced(soon), `cannot list resource "configmaps" in API group "" at the cluster scope`)

	a := b.startKinds(t, []string{b.ns, b.ns + "-two"}, schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
	waitSynced(t, a)
	there := strings.ReplaceAll(configMap("b", "1"), "NAMESPACE", "NAMESPACE-two")
	set := b.set(t, configMap("a", "1"), there)
	require.Equal(t, 2, apply1(t, a, set).Count(apply.Created))
	require.Equal(t, 2, apply1(t, a, set).Unchanged)
	await.Eventually(t, `a.observed() == "ab"`, func() bool { return a.observed() == "ab" })
	a.net.Expire() // one list of one namespace does not lose the other
	b.kubectl(t, "patch", "-n", b.ns+"-two", "configmap", "b", "--type=merge", "-p", `{"data":{"key":"x"}}`)
	a.waitWoken(t, "ConfigMap", "b")
	require.Equal(t, 1, apply1(t, a, set).Count(apply.Updated))
	require.Equal(t, "ab", a.observed())
	_, err := a.Apply(t.Context(), b.set(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: default}}"))
	require.ErrorContains(t, err, `ConfigMap/default/x: metadata.namespace is "default", which is not in Live.Namespaces`)
	report, err := a.Prune(t.Context(), b.set(t, configMap("a", "1")), complete)
	require.NoError(t, err)
	require.Equal(t, 1, Report(report).Count(apply.Deleted))
}

func TestANarrowerSelectorShowsAndTouchesItsPartOnly(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	start := func(shard string) *agent {
		a := b.startKinds(t, nil, schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
		a.stop()
		a.Live = &apply.Live{
			Client: a.Live.Client,
			Mapper: a.Live.Mapper,
			Owner:  b.owner,
			Kinds:  a.Live.Kinds,
			Selector: func(kind schema.GroupKind) string {
				require.Equal(t, "ConfigMap", kind.Kind)
				return "shard=" + shard
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Live.Start(ctx) }()
		t.Cleanup(func() {
			cancel()
			require.NoError(t, <-done)
		})
		waitSynced(t, a)
		return a
	}
	sharded := func(name, shard string) string {
		return "{apiVersion: v1, kind: ConfigMap, metadata: {name: " + name + ", namespace: NAMESPACE, labels: {shard: '" + shard + "'}}}"
	}
	one, two := start("1"), start("2")
	apply1(t, one, b.set(t, sharded("a", "1")))
	apply1(t, two, b.set(t, sharded("b", "2")))
	await.Eventually(
		t,
		`one.observed() == "a" && two.observed() == "b"`,
		func() bool { return one.observed() == "a" && two.observed() == "b" },
	)
	report, err := one.Prune(t.Context(), b.set(t, sharded("c", "1")), complete)
	require.NoError(t, err)
	require.Equal(
		t,
		[]apply.Result{{ID: apply.ID{Kind: "ConfigMap", Namespace: b.ns, Name: "a"}, Action: apply.Deleted}},
		report.Results,
		"what it does not see it does not delete",
	)

	set := b.set(t, sharded("d", "2"))
	report2, err := one.Apply(t.Context(), set)
	require.ErrorContains(t, err, `metadata.labels map[example.com/owner:`+b.ns+` shard:2] are not selected by Live.Selector "shard=1"`)
	require.Equal(t, 1, report2.Count(apply.Refused))
	_, err = one.Plan(t.Context(), set, apply.PruneOptions{})
	require.ErrorContains(t, err, "are not selected by Live.Selector")
	bad := &apply.Live{
		Client:   one.Live.Client,
		Mapper:   one.Live.Mapper,
		Owner:    b.owner,
		Kinds:    one.Live.Kinds,
		Selector: func(schema.GroupKind) string { return "a in b" },
	}
	require.ErrorContains(t, bad.Start(t.Context()), `apply: Live.Selector: is "a in b" for ConfigMap`)
}

func Test429IsWaitedOut(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	var all []string
	for i := range 30 {
		all = append(all, configMap(fmt.Sprintf("c%d", i), "1"))
	}
	a.throttle.Store(10)
	report := apply1(t, a, b.set(t, all...))
	require.Equal(t, 30, report.Count(apply.Created), "postponed writes were sent again")
	require.Zero(t, a.throttle.Load())
}
