package kube_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// busy is a widget with the metadata of a real object: labels, annotations,
// conditions, and managedFields.
func busy(name string) *widget {
	w := newWidget(name, 1)
	w.Labels = map[string]string{"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "operator", "app.kubernetes.io/instance": name}
	w.Annotations = map[string]string{"example.com/hash": "0123456789abcdef0123456789abcdef", "example.com/owner": "team-a"}
	fields := `{"f:metadata":{"f:labels":{"f:app.kubernetes.io/name":{},"f:app.kubernetes.io/managed-by":{}}},"f:spec":{"f:size":{},"f:secret":{}}}`
	for _, manager := range []string{"operator", "kubectl", "status"} {
		w.ManagedFields = append(w.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: "Apply", APIVersion: "example.com/v1", FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)},
		})
	}
	kube.SetState(&w.Status.Conditions, kube.Ready, "PodsReady", "3 of 3 pods are ready")
	return w
}

func started(b *testing.B, w *world, objects int, passed chan<- types.NamespacedName) *kube.Controller[*widget] {
	b.Helper()
	fill(w, objects)
	c := &kube.Controller[*widget]{Client: w, Kind: kube.Kind{Resource: widgets}}
	c.Reconcile = func(_ context.Context, key types.NamespacedName, _ *widget) (reconcile.Result, error) {
		if passed != nil {
			passed <- key
		}
		return reconcile.Result{}, nil
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- c.Start(ctx) }()
	b.Cleanup(func() {
		cancel()
		require.NoError(b, <-done)
	})
	require.Eventually(b, func() bool { synced, _ := c.Synced(); return synced }, 3*time.Minute, time.Millisecond)
	return c
}

// BenchmarkControllerEvent is the time and the allocations from an event to the
// end of its pass, including the fake server.
func BenchmarkControllerEvent(b *testing.B) {
	w, passed := newWorld(), make(chan types.NamespacedName)
	started(b, w, 1, passed)
	<-passed
	object := busy("widget-000000")
	b.ReportAllocs()
	for b.Loop() {
		object.Spec.Size++
		w.put(widgets, object)
		<-passed
		w.mu.Lock()
		w.history[widgets] = nil
		w.mu.Unlock()
	}
}

// BenchmarkControllerGet is one read of the cache, beside a deep copy of the
// decoded object, which others do at that point.
func BenchmarkControllerGet(b *testing.B) {
	c := started(b, newWorld(), 1000, nil)
	key := keyOf("shop", "widget-000500")
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Get(key); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("keys of 1000", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.Keys("")
		}
	})
}

// BenchmarkControllerMemory is the memory of one object in the cache, beside the
// same object as an informer keeps it: decoded, or unstructured.
func BenchmarkControllerMemory(b *testing.B) {
	const objects = 10_000
	for b.Loop() {
		w := newWorld()
		fill(w, objects)
		base := heap()
		passed := make(chan types.NamespacedName)
		c := started(b, w, 0, passed)
		for range objects {
			<-passed
		}
		cached := heap()
		var decoded []*widget
		for i := range objects {
			each, err := c.Get(keyOf("shop", fmt.Sprintf("widget-%06d", i)))
			require.NoError(b, err)
			each.ManagedFields = busy(each.Name).ManagedFields
			decoded = append(decoded, each)
		}
		typed := heap()
		copies := w.all(widgets)
		for i, each := range copies {
			copies[i] = each.DeepCopy()
		}
		loose := heap()
		b.ReportMetric(float64(cached-base)/objects, "B/object")
		b.ReportMetric(float64(typed-cached)/objects, "B/object-decoded")
		b.ReportMetric(float64(loose-typed)/objects, "B/object-unstructured")
		runtime.KeepAlive(decoded)
		runtime.KeepAlive(copies)
		runtime.KeepAlive(c)
	}
}

func fill(w *world, objects int) {
	for i := range objects {
		w.put(widgets, busy(fmt.Sprintf("widget-%06d", i)))
	}
}

func heap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
