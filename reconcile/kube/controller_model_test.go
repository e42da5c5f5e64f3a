package kube_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed-9e1ffd66/trueup/reconcile"
	"github.com/seed-9e1ffd66/trueup/reconcile/kube"
)

// TestNoChangeIsLostWhateverTheWatchesDo makes random changes to objects, their
// children and the objects they refer to, while watches are cut, expire, stand still
// and fail, and passes fail at random. The dumb model is the world itself: in the
// end, the last pass of each object must have seen the current state.
func TestNoChangeIsLostWhateverTheWatchesDo(t *testing.T) {
	t.Parallel()
	for range 10 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { randomWorld(t, seed) })
		})
	}
}

func randomWorld(t *testing.T, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	w := newWorld()
	var mu sync.Mutex
	seen := map[types.NamespacedName][]string{}
	failing := rand.New(rand.NewPCG(seed, 2))

	c := &kube.Controller[*widget]{Client: w, Kind: kube.Kind{Resource: widgets}, Workers: 3}
	c.Owned = []kube.Kind{{Resource: maps1}}
	c.Referenced = []kube.Kind{{Resource: secrets}}
	c.References = func(o *widget) []kube.Reference {
		return []kube.Reference{{Resource: secrets, Namespace: o.Namespace, Name: o.Spec.Secret}}
	}
	c.Reconcile = func(_ context.Context, key types.NamespacedName, o *widget) (reconcile.Result, error) {
		mu.Lock()
		fails := failing.IntN(5) == 0
		mu.Unlock()
		if fails {
			return reconcile.Result{}, errNetwork
		}
		if o == nil {
			mu.Lock()
			defer mu.Unlock()
			delete(seen, key)
			return reconcile.Result{}, nil
		}
		parts := []string{o.ResourceVersion}
		if secret, err := c.Lookup(kube.Reference{Resource: secrets, Namespace: o.Namespace, Name: o.Spec.Secret}); err == nil {
			parts = append(parts, "secret "+secret.GetResourceVersion())
		}
		children, err := c.Children(o.UID, maps1)
		if err != nil {
			return reconcile.Result{}, err
		}
		for _, each := range children {
			parts = append(parts, each.GetName()+" "+each.GetResourceVersion())
		}
		mu.Lock()
		defer mu.Unlock()
		seen[key] = parts
		return reconcile.Result{}, nil
	}
	stop := run(t, c)
	for range 1000 {
		randomEvent(w, random)
		if random.IntN(4) == 0 {
			time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
		}
	}
	for _, resource := range []int{0, 1, 2} {
		w.fails(kinds(resource), nil)
		w.hold(kinds(resource), false)
	}
	time.Sleep(10 * time.Minute)

	want := map[types.NamespacedName][]string{}
	for _, o := range w.all(widgets) {
		key := keyOf(o.GetNamespace(), o.GetName())
		parts := []string{o.GetResourceVersion()}
		name, _, _ := unstructured.NestedString(o.Object, "spec", "secret")
		if secret := w.get(secrets, keyOf("shop", name)); secret != nil {
			parts = append(parts, "secret "+secret.GetResourceVersion())
		}
		for i := range 20 {
			each := w.get(maps1, keyOf("shop", fmt.Sprintf("child-%02d", i)))
			if each != nil && each.GetOwnerReferences()[0].UID == o.GetUID() {
				parts = append(parts, each.GetName()+" "+each.GetResourceVersion())
			}
		}
		want[key] = parts
	}
	mu.Lock()
	require.Empty(t, cmp.Diff(want, seen), "seed %d", seed)
	mu.Unlock()
	require.NoError(t, stop())
}

func kinds(i int) schema.GroupVersionResource {
	return []schema.GroupVersionResource{widgets, secrets, maps1}[i]
}

func randomEvent(w *world, random *rand.Rand) {
	name := fmt.Sprintf("w%d", random.IntN(8))
	secret := fmt.Sprintf("s%d", random.IntN(4))
	configMap := fmt.Sprintf("child-%02d", random.IntN(20))
	switch random.IntN(16) {
	case 0, 1, 2, 3, 4:
		o := newWidget(name, random.Int64N(1000))
		o.Spec.Secret = secret
		w.put(widgets, o)
	case 5, 6:
		w.remove(widgets, keyOf("shop", name))
	case 7, 8:
		w.put(secrets, newSecret(secret, fmt.Sprint(random.Int64())))
	case 9:
		w.remove(secrets, keyOf("shop", secret))
	case 10, 11:
		if owner := w.get(widgets, keyOf("shop", name)); owner != nil {
			w.put(maps1, child(configMap, owner))
		}
	case 12:
		w.remove(maps1, keyOf("shop", configMap))
	default:
		disturb(w, random)
	}
}

// disturb does something to the watches.
func disturb(w *world, random *rand.Rand) {
	switch random.IntN(3) {
	case 0:
		w.cut(random.IntN(2) == 0)
	case 1:
		w.hold(kinds(random.IntN(3)), random.IntN(2) == 0)
	case 2:
		var err error
		if random.IntN(3) == 0 {
			err = errNetwork
		}
		w.fails(kinds(random.IntN(3)), err)
	}
}
