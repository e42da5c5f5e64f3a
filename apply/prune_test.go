package apply_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

var complete = apply.PruneOptions{Complete: true}

func (b *bench) names(t *testing.T) string {
	t.Helper()
	all := strings.Fields(b.kubectl(t, "get", "-n", b.ns, "configmap", "-o", "jsonpath={.items[*].metadata.name}"))
	return strings.Join(slices.DeleteFunc(all, func(name string) bool { return name == "kube-root-ca.crt" }), " ")
}

func TestPruneDeletesWhatIsAbsentInReverseOrder(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	account := "{apiVersion: v1, kind: ServiceAccount, metadata: {name: x, namespace: NAMESPACE}}"
	service := "{apiVersion: v1, kind: Service, metadata: {name: x, namespace: NAMESPACE}, spec: {ports: [{port: 1}]}}"
	apply1(t, a, b.set(t, configMap("a", "1"), configMap("b", "1"), account, service))
	keep := b.set(t, configMap("a", "1"))
	report, err := a.Prune(t.Context(), keep, complete)
	require.NoError(t, err)
	require.Equal(t, []apply.Result{
		{ID: apply.ID{Kind: "Service", Namespace: b.ns, Name: "x"}, Action: apply.Deleted},
		{ID: apply.ID{Kind: "ConfigMap", Namespace: b.ns, Name: "b"}, Action: apply.Deleted},
		{ID: apply.ID{Kind: "ServiceAccount", Namespace: b.ns, Name: "x"}, Action: apply.Deleted},
	}, report.Results)
	require.Equal(t, "a", b.names(t))

	before := len(b.requests(t))
	report, err = a.Prune(t.Context(), keep, complete)
	require.NoError(t, err)
	require.Empty(t, report.Results)
	require.Len(t, b.requests(t), before)
	require.Zero(t, a.drifts.Load(), "our own deletions start no pass")
}

func TestPruneDeletesNothingBeyondItsLimit(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	var all []string
	for name := range strings.SplitSeq("abcdefgh", "") {
		all = append(all, configMap(name, "1"))
	}
	apply1(t, a, b.set(t, all...))
	keep := b.set(t, all[:2]...)
	report, err := a.Prune(t.Context(), keep, complete)
	over, ok := errors.AsType[*apply.LimitError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, &apply.LimitError{Units: over.Units, Limit: 5, Owned: 8, Window: time.Hour, Digest: report.Held.Digest}, over)
	require.Len(t, over.Units, 6)
	require.ErrorContains(
		t,
		err,
		"6 of 8 units are absent, and 0 were deleted within 1h0m0s; the limit is 5, so these are held: ConfigMap/"+b.ns+"/c, ",
	)
	require.ErrorContains(t, err, " and 1 more")
	require.Len(t, report.Held.Units, 6)
	refused := report.Held.Digest
	require.Empty(t, report.Results)
	require.Equal(t, "a b c d e f g h", b.names(t))

	keeping := complete
	keeping.Guard = &apply.Guard{}
	keeping.Keep = func(o apply.Observed) bool { return o.ID.Name == "c" }
	report, err = a.Prune(t.Context(), keep, keeping)
	require.NoError(t, err, "five are within the limit")
	require.Len(t, report.Results, 5)
	require.Equal(t, "a b c", b.names(t))

	none := complete
	none.Guard = &apply.Guard{Absent: apply.Limit{Count: -1}}
	_, err = a.Prune(t.Context(), keep, none)
	require.ErrorContains(t, err, "the limit is 0, so these are held")

	lifted := complete
	lifted.Guard = &apply.Guard{Absent: apply.Limit{Count: 0, Percent: 33}}
	report, err = a.Prune(t.Context(), keep, lifted)
	require.ErrorContains(t, err, "1 of 3 units")
	require.NotEqual(t, refused, report.Held.Digest)
	lifted.Approved = refused
	_, err = a.Prune(t.Context(), keep, lifted)
	require.ErrorContains(t, err, "the held set has changed")
	require.Equal(t, "a b c", b.names(t))
	lifted.Approved = report.Held.Digest
	report, err = a.Prune(t.Context(), keep, lifted)
	require.NoError(t, err)
	require.Empty(t, report.Held)
	require.Equal(t, "a b", b.names(t))
}

// A program that finds out by itself what is absent names it to Delete, within a guard.
func TestDeletionsByNameAreHeldByAGuardUntilTheyAreApproved(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	apply1(t, a, b.set(t, configMap("a", "1"), configMap("b", "1"), configMap("c", "1")))
	id := func(name string) apply.ID { return apply.ID{Kind: "ConfigMap", Namespace: b.ns, Name: name} }
	options := apply.DeleteOptions{Guard: &apply.Guard{Absent: apply.Limit{Count: 1}}}
	report, err := a.Delete(t.Context(), []apply.ID{id("a"), id("b")}, options)
	require.ErrorContains(t, err, "2 of 3 units are absent, and 0 were deleted within 1h0m0s; the limit is 1")
	require.Empty(t, report.Results)
	require.ElementsMatch(t, []apply.ID{id("a"), id("b")}, report.Held.IDs())
	options.Approved = report.Held.Digest
	report, err = a.Delete(t.Context(), []apply.ID{id("a"), id("b")}, options)
	require.NoError(t, err)
	require.Len(t, report.Results, 2)
	require.Empty(t, report.Held)
	require.Equal(t, "c", b.names(t))
	_, err = a.Delete(t.Context(), []apply.ID{id("c")}, apply.DeleteOptions{})
	require.NoError(t, err, "without a guard a name is meant")
}

func TestPruneDeletesNothingWithoutACompleteAndNonEmptySet(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	apply1(t, a, b.set(t, configMap("a", "1")))
	_, err := a.Prune(t.Context(), b.set(t), apply.PruneOptions{})
	require.ErrorIs(t, err, apply.ErrIncomplete)
	_, err = a.Prune(t.Context(), b.set(t), complete)
	require.ErrorIs(t, err, apply.ErrKeepNothing)
	nameless, err := apply.NewSet(
		b.owner,
		b.objects(t, "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: x}}", configMap("b", "1")),
		apply.SetOptions{},
	)
	require.ErrorContains(t, err, "object 0 (ConfigMap/x): apiVersion, kind and metadata.name are required")
	_, err = a.Prune(t.Context(), nameless, complete)
	require.ErrorIs(t, err, apply.ErrIncomplete)
	require.Equal(t, "a", b.names(t))

	empty := complete
	empty.AllowEmpty = true
	_, err = a.Prune(t.Context(), b.set(t), empty)
	require.NoError(t, err)
	require.Equal(t, "", b.names(t))
}

func TestPruneWaitsOutTheGrace(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	apply1(t, a, b.set(t, configMap("a", "1"), configMap("b", "1"), configMap("c", "1")))
	keep := b.set(t, configMap("a", "1"))
	options := complete
	options.Grace = func(kind schema.GroupKind) apply.Grace {
		require.Equal(t, "ConfigMap", kind.Kind)
		return apply.Grace{Passes: 3}
	}
	options.Gone = func(o apply.Observed) bool { return o.ID.Name == "c" }
	report, err := a.Prune(t.Context(), keep, options)
	require.NoError(t, err)
	require.Equal(t, 1, report.Pending)
	require.Equal(t, "a b", b.names(t), "an object named as deleted is deleted at once")

	// Desired again in between: the count starts again.
	_, err = a.Prune(t.Context(), b.set(t, configMap("a", "1"), configMap("b", "1")), options)
	require.NoError(t, err)
	for range 2 {
		report, err = a.Prune(t.Context(), keep, options)
		require.NoError(t, err)
		require.Equal(t, 1, report.Pending)
		require.Empty(t, report.Results)
	}
	report, err = a.Prune(t.Context(), keep, options)
	require.NoError(t, err)
	require.Len(t, report.Results, 1)
	require.Equal(t, "a", b.names(t))

	// An age that has not passed holds whatever the number of passes.
	options.Grace = func(schema.GroupKind) apply.Grace { return apply.Grace{Age: time.Hour} }
	for range 5 {
		report, err = a.Prune(t.Context(), b.set(t, configMap("other", "1")), options)
		require.NoError(t, err)
		require.Equal(t, 1, report.Pending)
	}
	require.Equal(t, "a", b.names(t))
}

func TestPruneSparesWhatWeDidNotApply(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	apply1(t, a, b.set(t, configMap("a", "1")))
	b.kubectl(t, "create", "-n", b.ns, "configmap", "copy")
	b.kubectl(t, "label", "-n", b.ns, "configmap", "copy", "example.com/owner="+b.ns)
	await.Eventually(t, "n == 2", func() bool {
		n := 0
		for range a.Live.All() {
			n++
		}
		return n == 2
	})
	report, err := a.Prune(t.Context(), b.set(t, configMap("a", "1")), complete)
	require.NoError(t, err)
	require.Empty(t, report.Results)
	require.Equal(t, "a copy", b.names(t))
}

func TestPeersDefect9PruneSparesASuccessor(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	apply1(t, a, b.set(t, configMap("a", "1"), configMap("b", "1")))
	a.stop() // the view no longer hears of anything
	b.kubectl(t, "delete", "-n", b.ns, "configmap", "b")
	b.kubectl(t, "create", "-n", b.ns, "configmap", "b")
	report, err := a.Prune(t.Context(), b.set(t, configMap("a", "1")), complete)
	require.ErrorContains(t, err, "the UID in the precondition")
	require.Equal(t, 1, report.Results[0].ID.Compare(apply.ID{Kind: "ConfigMap", Namespace: b.ns, Name: "a"}))
	require.Equal(t, apply.Failed, report.Results[0].Action)
	require.Equal(t, "a b", b.names(t))
}
