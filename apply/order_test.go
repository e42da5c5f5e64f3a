package apply_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/seed-9e1ffd66/trueup/apply"
	"github.com/seed-9e1ffd66/trueup/apply/applytest"
	"github.com/seed-9e1ffd66/trueup/internal/test/await"
)

func after(name, dependencies string) string {
	return "{apiVersion: v1, kind: ConfigMap, metadata: {name: " + name + ", namespace: NAMESPACE, annotations: {example.com/depends-on: '" + dependencies + "'}}}"
}

func TestASetRefusesDependenciesThatCannotBeMet(t *testing.T) {
	t.Parallel()
	set, err := apply.NewSet(owner, parsed(
		t,
		after("a", "ConfigMap/x/b"),
		after("b", "ConfigMap/x/c"),
		after("c", "ConfigMap/x/a"),
		after(
			"lost",
			"ConfigMap/x/none",
		),
		after("bad", "ConfigMap"),
		configMap("good", "1"),
		after("fine", "ConfigMap/x/good, ConfigMap/x/good"),
	), apply.SetOptions{})
	require.ErrorContains(
		t,
		err,
		"ConfigMap/x/a: depends on ConfigMap/x/b: depends on ConfigMap/x/c: depends on itself: ConfigMap/x/a -> ConfigMap/x/b -> ConfigMap/x/c -> ConfigMap/x/a",
	)
	require.ErrorContains(t, err, "ConfigMap/x/lost: depends on ConfigMap/x/none, which the set does not state")
	require.ErrorContains(t, err, `ConfigMap/x/bad: metadata.annotations: example.com/depends-on: "ConfigMap": want Kind.group/namespace/name`)
	require.Equal(t, 2, set.Len())
	require.True(t, set.Has(apply.ID{Kind: "ConfigMap", Namespace: "x", Name: "a"}), "it still counts as wanted")
}

func TestAnIDReadsWhatItPrints(t *testing.T) {
	t.Parallel()
	for _, id := range []apply.ID{
		{Kind: "Namespace", Name: "shop"},
		{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"},
		{Group: "gateway.networking.k8s.io", Kind: "HTTPRoute", Namespace: "a", Name: "b.c"},
	} {
		got, err := apply.ParseID(id.String())
		require.NoError(t, err)
		require.Equal(t, id, got)
	}
	for _, bad := range []string{"", "/", "a", "a/", "/a", "a//b", "a/b/c/d", ".g/a"} {
		_, err := apply.ParseID(bad)
		require.ErrorContains(t, err, fmt.Sprintf("%q: want Kind.group/namespace/name", bad))
	}
}

func TestADependencyIsWaitedForUntilItIsReady(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	// No scheduler runs, so the Deployment is ready only once the test writes its status.
	web := strings.Replace(selecting("one"), "replicas: 0", "replicas: 1", 1)
	early := after("early", "Deployment.apps/NAMESPACE/web")
	late := after("late", "ConfigMap/NAMESPACE/early")
	set := b.set(t, early, late, configMap("other", "1"), web)
	report, err := a.Apply(t.Context(), set)
	require.ErrorIs(t, err, apply.ErrBlocked)
	require.ErrorContains(t, err, "ConfigMap/"+b.ns+"/early: held back: it depends on Deployment.apps/"+b.ns+"/web, which is InProgress")
	require.ErrorContains(t, err, "ConfigMap/"+b.ns+"/late: held back: it depends on ConfigMap/"+b.ns+"/early")
	require.Equal(t, 2, report.Count(apply.Created), "what depends on nothing goes on")
	require.Equal(t, 2, report.Count(apply.Waiting))

	b.kubectl(t, "scale", "-n", b.ns, "deployment/web", "--replicas=0") // its status follows
	a.waitWoken(t, "Deployment", "web")
	none := strings.Replace(web, "replicas: 1", "replicas: 0", 1)
	await.Eventually(t, "err == nil", func() bool {
		_, err := a.Apply(t.Context(), b.set(t, early, late, configMap("other", "1"), none))
		return err == nil
	})
	require.Equal(t, "early late other", b.names(t))
}

func TestADefinitionIsWaitedForUntilItIsEstablished(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	group := strings.ReplaceAll(b.ns, "-", "") + ".example.com"
	definition := definitionOf(group, "v1")
	widget := "{apiVersion: " + group + "/v1, kind: Widget, metadata: {name: a, namespace: NAMESPACE}, spec: {size: 1}}"
	kind := schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Widget"}
	a := b.startUnsynced(t, kind, definitionKind)
	await.Eventually(t, "ok && err != nil", func() bool {
		ok, _ := a.Live.Synced(definitionKind.GroupKind())
		_, err := a.Live.Synced(kind.GroupKind())
		return ok && err != nil
	})
	set := b.set(t, widget, definition)
	report, err := a.Apply(t.Context(), set)
	require.ErrorIs(t, err, apply.ErrNotSynced)
	require.Equal(t, []apply.Action{apply.Created, apply.Waiting}, []apply.Action{report.Results[0].Action, report.Results[1].Action})

	// The establishment starts the watch, and the watch calls for the pass.
	for found := range a.synced {
		if found == kind.GroupKind() {
			break
		}
	}
	require.Equal(t, 1, apply1(t, a, set).Count(apply.Created))
	require.Equal(t, 2, apply1(t, a, set).Unchanged)
}

func TestPeersDefect14TwoManagersTakingTurnsAreToldApartAndNamed(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	set := b.set(t, configMap("a", "ours"), configMap("b", "1"))
	apply1(t, a, set)
	const turns = 6
	for range turns {
		b.kubectl(t, "patch", "-n", b.ns, "configmap", "a", "--type=merge", "-p", `{"data":{"key":"theirs"}}`, "--field-manager=other-team")
		var fight error
		await.Eventually(t, "report.Unchanged == 1", func() bool {
			report, err := a.Apply(t.Context(), set)
			fight = err
			return report.Unchanged == 1
		})
		if fight != nil {
			require.ErrorContains(t, fight, `changed back after each of 5 repairs; owned with another value: .data.key by "other-team"`)
			require.Equal(t, "theirs", b.kubectl(t, "get", "-n", b.ns, "configmap", "a", "-o", "jsonpath={.data.key}"))
			sent := len(a.net.Writes())
			_, err := a.Apply(t.Context(), set)
			require.Error(t, err)
			require.Len(t, a.net.Writes(), sent, "it is left alone for a while")
			// Another desired state is not the fight.
			require.Equal(t, 1, apply1(t, a, b.set(t, configMap("a", "new"), configMap("b", "1"))).Count(apply.Updated))
			return
		}
	}
	t.Fatalf("the fight was not noticed within %d turns", turns)
}

// TestAnObjectThatIsDeletedAgainAndAgainIsLeftAlone for a while, and the error says so.
func TestAnObjectThatIsDeletedAgainAndAgainIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	set := b.set(t, configMap("a", "ours"))
	apply1(t, a, set)
	var err error
	for created := 0; err == nil && created < 8; {
		b.kubectl(t, "delete", "-n", b.ns, "configmap", "a")
		await.Eventually(t, "it is made again, or left alone", func() bool {
			var report apply.Report
			report, err = a.Apply(t.Context(), set)
			return err != nil || report.Count(apply.Created) == 1
		})
		created++
	}
	require.ErrorContains(t, err, "deleted after each of 5 creations")
}

// TestARepairThatFailsIsNoTurnOfAFight: while a webhook is down the server refuses the writes. What a
// person has deleted comes back as soon as it takes them again.
func TestARepairThatFailsIsNoTurnOfAFight(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	set := b.set(t, configMap("a", "ours"))
	apply1(t, a, set)
	var down atomic.Bool
	a.net.Fault = func(r applytest.Request) applytest.Fault {
		if down.Load() && r.Writes() {
			return applytest.Fault{Status: http.StatusInternalServerError}
		}
		return applytest.Fault{}
	}
	down.Store(true)
	b.kubectl(t, "delete", "-n", b.ns, "configmap", "a")
	for refused := 0; refused < 8; {
		await.Eventually(t, "the write is refused", func() bool {
			_, err := a.Apply(t.Context(), set)
			var fight *apply.FightError
			require.NotErrorAs(t, err, &fight)
			return err != nil
		})
		refused++
	}
	down.Store(false)
	await.Eventually(t, "it is made again", func() bool {
		report, err := a.Apply(t.Context(), set)
		return err == nil && report.Count(apply.Created) == 1
	})
}

func TestAProgramUnderOurOwnNameIsNoticed(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	set := b.set(t, configMap("a", "ours"))
	apply1(t, a, set)
	file := filepath.Join(t.TempDir(), "theirs.yaml")
	theirs := strings.ReplaceAll(
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NAMESPACE, labels: {example.com/owner: NAMESPACE}}, data: {key: theirs}}",
		"NAMESPACE",
		b.ns,
	)
	for range 12 {
		require.NoError(t, os.WriteFile(file, []byte(theirs), 0o600))
		b.kubectl(t, "apply", "--server-side", "--field-manager="+b.owner.Manager, "-f", file)
		var err error
		await.Eventually(t, "report.Unchanged == 0", func() bool {
			var report apply.Report
			report, err = a.Apply(t.Context(), set)
			return report.Unchanged == 0
		})
		if err != nil {
			require.ErrorContains(t, err, "no other manager owns the changed fields")
			return
		}
	}
	t.Fatal("the fight was not noticed")
}

// The times in managedFields are full seconds, so an older replica's write may leave our
// entry as it was.
func TestAnOlderReplicaInTheSameSecondIsNoticed(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a, old := b.start(t), b.start(t)
	for try := range 20 {
		// Another object each time: one that is changed again and again calls for no pass.
		name := fmt.Sprint("a-", try)
		entry := func() string {
			live, err := a.Objects.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).
				Namespace(b.ns).Get(t.Context(), name, metav1.GetOptions{}) // kubectl may take a second to start
			require.NoError(t, err)
			written, _, err := unstructured.NestedSlice(live.Object, "metadata", "managedFields")
			require.NoError(t, err)
			return fmt.Sprint(written)
		}
		set, before := b.set(t, configMap(name, "new")), b.set(t, configMap(name, "old"))
		old.net.Freeze() // it has not seen our write
		apply1(t, a, set)
		ours := entry()
		apply1(t, old, before)
		same := entry() == ours
		old.net.Thaw()
		a.waitWoken(t, "ConfigMap", name)
		require.Equal(t, 1, apply1(t, a, set).Count(apply.Updated))
		require.Equal(t, "new", b.kubectl(t, "get", "-n", b.ns, "configmap", name, "-o", "jsonpath={.data.key}"))
		if same {
			return
		}
	}
	t.Fatal("no two writes fell into one second")
}

func TestPruneGoesAgainstDependencies(t *testing.T) {
	t.Parallel()
	b := serverBench(t)
	a := b.start(t)
	apply1(
		t,
		a,
		b.set(t, configMap("keep", "1"), configMap("a", "1"), after("b", "ConfigMap/NAMESPACE/a"), after("c", "ConfigMap/NAMESPACE/b")),
	)
	a.net.Reset()
	_, err := a.Prune(t.Context(), b.set(t, configMap("keep", "1")), complete)
	require.NoError(t, err)
	var order []string
	for _, r := range a.net.Writes() {
		order = append(order, r.Name)
	}
	require.Equal(t, []string{"c", "b", "a"}, order)
}

// Defect 10.
func TestSortingASetAllocatesNothingPerComparison(t *testing.T) {
	of := func(n int) float64 {
		manifests := make([]string, n)
		for i := range manifests {
			manifests[i] = configMap(fmt.Sprintf("c%07d", (i*7919)%n), "1")
		}
		objects := parsed(t, manifests...)
		return testing.AllocsPerRun(1, func() {
			_, err := apply.NewSet(owner, objects, apply.SetOptions{})
			require.NoError(t, err)
		}) / float64(n)
	}
	// Comparisons grow faster than the objects, allocations do not.
	require.InDelta(t, of(100), of(10_000), 2)
}
