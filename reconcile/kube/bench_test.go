package kube_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/internal/test/await"
	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// busy is a widget with the metadata of a real object: labels, annotations,
// conditions, and managedFields.
func busy(name string) *widget {
	w := newWidget(name, 1)
	w.Labels = map[string]string{
		"app.kubernetes.io/name":       name,
		"app.kubernetes.io/managed-by": "operator",
		"app.kubernetes.io/instance":   name,
	}
	w.Annotations = map[string]string{"example.com/hash": "0123456789abcdef0123456789abcdef", "example.com/owner": "team-a"}
	fields := `{"f:metadata":{"f:labels":{"f:app.kubernetes.io/name":{},"f:app.kubernetes.io/managed-by":{}}},"f:spec":{"f:size":{},"f:secret":{}}}`
	for _, manager := range []string{"operator", "kubectl", "status"} {
		w.ManagedFields = append(w.ManagedFields, metav1.ManagedFieldsEntry{
			Manager:    manager,
			Operation:  "Apply",
			APIVersion: "example.com/v1",
			FieldsType: "FieldsV1",
			FieldsV1:   &metav1.FieldsV1{Raw: []byte(fields)},
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
	begin(b, c)
	await.Eventually(b, "synced", func() bool { synced, _ := c.Synced(); return synced })
	return c
}

// begin starts a controller until the end of the benchmark.
func begin(b *testing.B, c *kube.Controller[*widget]) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- c.Start(ctx) }()
	b.Cleanup(func() {
		cancel()
		require.NoError(b, <-done)
	})
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
		w.forget(widgets)
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

// BenchmarkControllerAddUID is the time and the allocations of a wake-up by UID
// among 1,000 parents: from the call to the end of the pass, and the call alone for
// a UID that the cache does not hold.
func BenchmarkControllerAddUID(b *testing.B) {
	const parents = 1000
	w, passed := newWorld(), make(chan types.NamespacedName)
	c := started(b, w, parents, passed)
	for range parents {
		<-passed
	}
	uid := w.get(widgets, keyOf("shop", "widget-000500")).GetUID()
	b.Run("pass", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.AddUID(uid)
			<-passed
		}
	})
	b.Run("not held", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.AddUID("none")
		}
	})
}

// BenchmarkControllerReferences is the cost of a change of a referenced object with
// 1,000 users, directly or over two more objects, among 10,000 objects that refer
// elsewhere: from the change to the end of the last pass, and Users alone. Beside it
// stands the change of an object without users.
func BenchmarkControllerReferences(b *testing.B) {
	const users, others = 1000, 10_000
	w, passed := newWorld(), make(chan types.NamespacedName, users)
	for i := range others {
		referring(w, fmt.Sprintf("configmaps/other-%d", i), fmt.Sprintf("secrets/other-%d", i%100))
	}
	referring(w, "configmaps/runtime", "configmaps/class")
	referring(w, "configmaps/class", "secrets/key")
	fill(w, users)
	c, _ := chained(w)
	c.Reconcile = func(_ context.Context, key types.NamespacedName, _ *widget) (reconcile.Result, error) {
		passed <- key
		return reconcile.Result{}, nil
	}
	c.References = func(*widget) []kube.Reference {
		return []kube.Reference{ref("configmaps/runtime"), ref("secrets/direct")}
	}
	begin(b, c)
	for range users {
		<-passed
	}
	require.Len(b, c.Users(ref("secrets/key")), users)
	for name, secret := range map[string]string{"direct": "secrets/direct", "in 3 steps": "secrets/key"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				referring(w, secret, "")
				for range users {
					<-passed
				}
				w.forget(secrets)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/users, "ns/user")
		})
		b.Run(name+", Users", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.Users(ref(secret))
			}
		})
	}
	b.Run("no users", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.Users(ref("secrets/other-7"))
		}
	})
}

// BenchmarkControllerReferenceMemory is the memory of one reference: of each of
// 10,000 objects to 10 of 1,000.
func BenchmarkControllerReferenceMemory(b *testing.B) {
	const objects, references, targets = 10_000, 10, 1000
	for b.Loop() {
		var used [2]int64
		for i := range used {
			w, passed := newWorld(), make(chan types.NamespacedName)
			fill(w, objects)
			base := heap()
			c := &kube.Controller[*widget]{Client: w, Kind: kube.Kind{Resource: widgets}}
			c.Reconcile = func(_ context.Context, key types.NamespacedName, _ *widget) (reconcile.Result, error) {
				passed <- key
				return reconcile.Result{}, nil
			}
			next := 0
			c.References = func(*widget) []kube.Reference {
				var list []kube.Reference
				for range references * i {
					list = append(list, ref(fmt.Sprintf("secrets/s%d", next%targets)))
					next++
				}
				return list
			}
			begin(b, c)
			for range objects {
				<-passed
			}
			used[i] = heap() - base
			runtime.KeepAlive(c)
			runtime.KeepAlive(w)
		}
		b.ReportMetric(float64(used[1]-used[0])/objects/references, "B/reference")
	}
}
