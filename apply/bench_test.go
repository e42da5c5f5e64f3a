package apply //nolint:testpackage // fills the live view without a server

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientmetadata "k8s.io/client-go/metadata"

	"github.com/seed-9e1ffd66/trueup/apply/internal/view"
)

// deploymentOwned is the field set that a real server keeps for the Deployment
// of benchmarkSet.
const deploymentOwned = `{"f:metadata":{"f:annotations":{"f:example.com/desired-hash":{}},"f:labels":{"f:app":{},"f:example.com/owner":{}}},` +
	`"f:spec":{"f:replicas":{},"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{` +
	`"k:{\"name\":\"main\"}":{".":{},"f:env":{"k:{\"name\":\"A\"}":{".":{},"f:name":{},"f:value":{}},"k:{\"name\":\"B\"}":{".":{},"f:name":{},"f:value":{}}},` +
	`"f:image":{},"f:name":{},"f:ports":{"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}},` +
	`"f:resources":{"f:limits":{"f:memory":{}},"f:requests":{"f:cpu":{},"f:memory":{}}}}}}}}}`

func benchmarkSet(tb testing.TB, n int) *Set {
	tb.Helper()
	objects := make([]*unstructured.Unstructured, n)
	for i := range objects {
		objects[i] = &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apps/v1",
			"kind":       "Deployment",
			"metadata": map[string]any{
				"name":      fmt.Sprintf("web-%05d", i),
				"namespace": fmt.Sprintf("ns-%d", i%100),
				"labels":    map[string]any{"app": "web"},
			},
			"spec": map[string]any{
				"replicas": 2, "selector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
				"template": map[string]any{
					"metadata": map[string]any{"labels": map[string]any{"app": "web"}},
					"spec": map[string]any{"containers": []any{map[string]any{
						"name": "main", "image": "example.com/web:1", "ports": []any{map[string]any{"containerPort": 8080}},
						"env":       []any{map[string]any{"name": "A", "value": "1"}, map[string]any{"name": "B", "value": "2"}},
						"resources": map[string]any{"requests": map[string]any{"cpu": "0.1", "memory": "1024Mi"}, "limits": map[string]any{"memory": "1Gi"}},
					}}},
				},
			},
		}}
	}
	set, err := NewSet(
		Owner{Manager: "me", Labels: map[string]string{"example.com/owner": "me"}, Domain: "example.com"},
		objects,
		SetOptions{},
	)
	require.NoError(tb, err)
	return set
}

// benchmarkApplier has a live view that holds exactly what the set states, as
// after a list: nothing is remembered yet.
func benchmarkApplier(tb testing.TB, set *Set, configure ...func(*Live)) *Applier {
	tb.Helper()
	kind := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(kind, meta.RESTScopeNamespace)
	live := &Live{Client: struct{ clientmetadata.Interface }{}, Mapper: mapper, Owner: set.owner, Kinds: []schema.GroupVersionKind{kind}}
	for _, change := range configure {
		change(live)
	}
	require.NoError(tb, live.prepare())
	v := live.registry.view(kind.GroupKind())
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	require.NoError(tb, err)
	v.Serve(mapping, nil)
	require.NoError(tb, v.Sink("").Replace(benchmarkObjects(set), "100000"))
	return &Applier{Live: live}
}

// benchmarkObjects are the objects of a set on the server.
func benchmarkObjects(set *Set) []any {
	list := make([]any, len(set.items))
	for i, it := range set.items {
		list[i] = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			// Strings of their own, as from a decoder, and a label that no other has.
			Name:            strings.Clone(it.id.Name),
			Namespace:       strings.Clone(it.id.Namespace),
			UID:             types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i)),
			ResourceVersion: fmt.Sprint(1000 + i),
			Labels:          map[string]string{"app": "web", "example.com/owner": "me", "app.kubernetes.io/instance": fmt.Sprintf("web-%05d", i)},
			Annotations:     map[string]string{"example.com/desired-hash": it.hash.String()},
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: "me", Operation: metav1.ManagedFieldsOperationApply, FieldsV1: &metav1.FieldsV1{Raw: []byte(deploymentOwned)},
			}},
		}}
	}
	return list
}

func TestAFirstPassRecallsWhatWasAppliedWithoutARequest(t *testing.T) {
	t.Parallel()
	set := benchmarkSet(t, 10)
	a := benchmarkApplier(t, set)
	report, err := a.Apply(t.Context(), set) // a request would panic: there is no client
	require.NoError(t, err)
	require.Equal(t, 10, report.Unchanged)
	for _, v := range a.Live.registry.views() {
		v.Each(func(_ view.Name, r *view.Record) bool {
			require.Empty(t, r.Owned(), "the field set has served its purpose")
			return true
		})
	}
}

func TestASweepOverUnchangedObjectsAllocatesNothingForEach(t *testing.T) { //nolint:paralleltest // counts allocations
	set := benchmarkSet(t, 1000)
	a := benchmarkApplier(t, set)
	sweep := func() {
		report, err := a.Apply(t.Context(), set)
		if err != nil || report.Unchanged != 1000 {
			t.Errorf("%d unchanged, %v", report.Unchanged, err)
		}
	}
	sweep()
	require.Less(t, testing.AllocsPerRun(10, sweep), 20.0, "a pass has a few of its own")
}

func BenchmarkSweep(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			set := benchmarkSet(b, n)
			a := benchmarkApplier(b, set)
			if _, err := a.Apply(b.Context(), set); err != nil { // from here on it is remembered
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if report, err := a.Apply(b.Context(), set); err != nil || report.Unchanged != n {
					b.Fatal(report.Unchanged, err)
				}
			}
			perObject := float64(b.Elapsed().Nanoseconds()) / float64(b.N) / float64(n)
			b.ReportMetric(perObject, "ns/object")
			fmt.Printf("figure apply_sweep_%d_ns_per_object %.1f ns\n", n, perObject)
		})
	}
}

func BenchmarkFirstPassAfterRestart(b *testing.B) {
	const n = 1000
	set := benchmarkSet(b, n)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		a := benchmarkApplier(b, set)
		b.StartTimer()
		if report, err := a.Apply(b.Context(), set); err != nil || report.Unchanged != n {
			b.Fatal(report.Unchanged, err)
		}
	}
	perObject := float64(b.Elapsed().Microseconds()) / float64(b.N) / n
	b.ReportMetric(perObject, "us/object")
	fmt.Printf("figure apply_first_pass_us_per_object %.1f us\n", perObject)
}

// BenchmarkLiveMemory measures what a watched object keeps in memory once it has
// been compared with the desired state.
func BenchmarkLiveMemory(b *testing.B) {
	const n = 100_000
	set := benchmarkSet(b, n)
	held := func() float64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return float64(stats.HeapAlloc)
	}
	var perObject float64
	for b.Loop() {
		before := held()
		a := benchmarkApplier(b, set)
		if report, err := a.Apply(b.Context(), set); err != nil || report.Unchanged != n {
			b.Fatal(report.Unchanged, err)
		}
		perObject = (held() - before) / n
		runtime.KeepAlive(a)
	}
	b.ReportMetric(perObject, "B/object")
	fmt.Printf("figure apply_live_bytes_per_object %.0f bytes\n", perObject)
}

// benchmarkParts are the sets of that many parents of ten children in seven kinds,
// and an applier whose live view shows them all.
func benchmarkParts(b *testing.B, parents int) (*Applier, []*Set) {
	b.Helper()
	kinds := []schema.GroupVersionKind{
		{Version: "v1", Kind: "ConfigMap"},
		{Version: "v1", Kind: "Secret"},
		{Version: "v1", Kind: "Service"},
		{Version: "v1", Kind: "ServiceAccount"},
		{Group: "apps", Version: "v1", Kind: "Deployment"},
		{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
		{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
	}
	owner := Owner{Manager: "me", Labels: map[string]string{"example.com/owner": "me"}, Domain: "example.com", PartLabel: "example.com/part"}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range kinds {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	a := &Applier{Live: &Live{Client: struct{ clientmetadata.Interface }{}, Mapper: mapper, Owner: owner, Kinds: kinds}}
	require.NoError(b, a.Live.prepare())
	sets := make([]*Set, parents)
	lists := map[schema.GroupKind][]any{}
	for i := range sets {
		part := fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
		objects := make([]*unstructured.Unstructured, 10)
		for j := range objects {
			objects[j] = &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"key": part}}}
			objects[j].SetGroupVersionKind(kinds[j%len(kinds)])
			objects[j].SetNamespace("bench")
			objects[j].SetName(fmt.Sprintf("parent-%04d-child-%d", i, j))
		}
		var err error
		sets[i], err = NewSet(owner, objects, SetOptions{Part: part})
		require.NoError(b, err)
		for _, it := range sets[i].items {
			kind := it.id.GroupKind()
			lists[kind] = append(lists[kind], &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Name:            strings.Clone(it.id.Name),
				Namespace:       "bench",
				UID:             types.UID(fmt.Sprintf("00000000-0000-4000-8001-%012d", 10*i+len(lists[kind]))),
				ResourceVersion: "1000",
				Labels:          map[string]string{"example.com/owner": "me", "example.com/part": part},
				Annotations:     map[string]string{"example.com/desired-hash": it.hash.String()},
				ManagedFields: []metav1.ManagedFieldsEntry{{
					Manager: "me", Operation: metav1.ManagedFieldsOperationApply, FieldsV1: &metav1.FieldsV1{Raw: []byte(
						`{"f:metadata":{"f:annotations":{"f:example.com/desired-hash":{}},"f:labels":{"f:example.com/owner":{},"f:example.com/part":{}}},"f:data":{"f:key":{}}}`,
					)},
				}},
			}})
		}
	}
	for _, kind := range kinds {
		v := a.Live.registry.view(kind.GroupKind())
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		require.NoError(b, err)
		v.Serve(mapping, nil)
		require.NoError(b, v.Sink("").Replace(lists[kind.GroupKind()], "100000"))
	}
	return a, sets
}

// BenchmarkParts measures an Apply and a Prune for each of many parents in turn.
func BenchmarkParts(b *testing.B) {
	a, sets := benchmarkParts(b, 1000)
	pass := func(set *Set) {
		report, err := a.Apply(b.Context(), set)
		if err != nil || report.Unchanged != set.Len() {
			b.Fatal(report, err)
		}
		if _, err := a.Prune(b.Context(), set, PruneOptions{Complete: true}); err != nil {
			b.Fatal(err)
		}
	}
	for _, set := range sets {
		pass(set)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		pass(sets[i%len(sets)])
		i++
	}
}
